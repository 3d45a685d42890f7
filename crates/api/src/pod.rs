//! [`PodSettings`]: the user's settings for the pods of a Workspace's runs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements, SecurityContext,
    Toleration, Volume, VolumeMount,
};
use kube_core::Rule;
use kube_derive::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::rules;

/// Settings of the pods of a Workspace's runs.
///
/// Fields with a very large Kubernetes schema are stored as they are and validated when a pod is created. An invalid
/// value affects only this Workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    /// The service account of the pods. Defaults to `default`, without a token in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub service_account_name: Option<String>,
    /// Settings of the pods that plan, and of commands that cannot change the state. If its service account differs from
    /// that of `apply`, a run plans in one pod and applies in another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<StageSettings>,
    /// Settings of the pods that apply, and of commands that may change the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<StageSettings>,
    /// Resource requests and limits of the terraform container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Node labels that the pods require.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Node taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Scheduling constraints, as in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub affinity: Option<Value>,
    /// Environment variables of the terraform container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "environment")]
    #[x_kube(validation = Rule::new("self.all(variable, !variable.name.startsWith('KNOLL_'))")
        .message("write another name: names that begin with KNOLL_ are set by Knoll"))]
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps whose keys become environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub env_from: Vec<EnvFromSource>,
    /// Additional volumes, as in a Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "named_objects")]
    #[x_kube(validation = Rule::new("self.all(volume, !(volume.name in ['knoll', 'knoll-token']))")
        .message("write another name: the volumes knoll and knoll-token are Knoll's own"))]
    pub volumes: Vec<Value>,
    /// Mounts of these volumes in the terraform container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "mounts")]
    #[x_kube(validation = Rule::new("self.all(mount, !mount.mountPath.matches('^(/knoll|/var/run/knoll)(/|$)'))")
        .message("write another mountPath: /knoll and /var/run/knoll are Knoll's own"))]
    pub volume_mounts: Vec<VolumeMount>,
    /// Secrets for pulling images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// The priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// The security context of the pods, as in a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub security_context: Option<Value>,
    /// The security context of the containers, as in a container of a Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub container_security_context: Option<Value>,
    /// Additional labels of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts")]
    #[x_kube(validation = own_prefix())]
    pub labels: BTreeMap<String, String>,
    /// Additional annotations of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "texts")]
    #[x_kube(validation = own_prefix())]
    pub annotations: BTreeMap<String, String>,
}

/// Settings of the pods of one stage of a run, over those of all pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageSettings {
    /// The service account of these pods, instead of `pod.serviceAccountName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub service_account_name: Option<String>,
}

/// A field of [`PodSettings`] is invalid.
#[derive(Debug)]
pub struct PodSettingsError {
    field: &'static str,
    source: serde_json::Error,
}

impl std::fmt::Display for PodSettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`pod.{}` is invalid: {}", self.field, self.source)
    }
}

impl std::error::Error for PodSettingsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl PodSettings {
    /// The service account of the pods that plan, if the user named one.
    #[must_use]
    pub fn plan_account(&self) -> Option<&str> {
        self.account_of(self.plan.as_ref())
    }

    /// The service account of the pods that apply, if the user named one.
    #[must_use]
    pub fn apply_account(&self) -> Option<&str> {
        self.account_of(self.apply.as_ref())
    }

    fn account_of<'a>(&'a self, stage: Option<&'a StageSettings>) -> Option<&'a str> {
        stage.and_then(|stage| stage.service_account_name.as_deref()).or(self.service_account_name.as_deref())
    }

    /// The volumes, read as Kubernetes reads them.
    pub fn volumes(&self) -> Result<Vec<Volume>, PodSettingsError> {
        self.volumes.iter().map(|volume| read("volumes", volume)).collect()
    }

    /// The affinity, read as Kubernetes reads it.
    pub fn affinity(&self) -> Result<Option<Affinity>, PodSettingsError> {
        self.affinity.as_ref().map(|value| read("affinity", value)).transpose()
    }

    /// The security context of the pod, read as Kubernetes reads it.
    pub fn security_context(&self) -> Result<Option<PodSecurityContext>, PodSettingsError> {
        self.security_context.as_ref().map(|value| read("securityContext", value)).transpose()
    }

    /// The security context of its containers, read as Kubernetes reads it.
    pub fn container_security_context(&self) -> Result<Option<SecurityContext>, PodSettingsError> {
        self.container_security_context.as_ref().map(|value| read("containerSecurityContext", value)).transpose()
    }
}

fn read<T: DeserializeOwned>(field: &'static str, value: &Value) -> Result<T, PodSettingsError> {
    T::deserialize(value).map_err(|source| PodSettingsError { field, source })
}

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The rules need the name of a volume; the rest is validated with the pod.
fn named_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": { "name": { "type": "string", "minLength": 1, "maxLength": 63 } },
            "x-kubernetes-preserve-unknown-fields": true,
        },
    })
}

fn environment(generator: &mut SchemaGenerator) -> Schema {
    limited::<EnvVar>(generator, 256, "name", 1024)
}

fn mounts(generator: &mut SchemaGenerator) -> Schema {
    limited::<VolumeMount>(generator, 64, "mountPath", 1024)
}

/// A list of a Kubernetes type with a length limit for the field that a rule reads, so that the API server can estimate
/// the cost of the rule.
fn limited<T: JsonSchema>(generator: &mut SchemaGenerator, items: u32, field: &str, length: u32) -> Schema {
    let mut item = generator.subschema_for::<T>();
    if let Some(text) = item.pointer_mut(&format!("/properties/{field}")).and_then(Value::as_object_mut) {
        text.insert("maxLength".to_owned(), length.into());
    }
    json_schema!({ "type": "array", "maxItems": items, "items": item })
}

fn texts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 128,
        "additionalProperties": { "type": "string", "maxLength": 65_536 },
    })
}

fn own_prefix() -> Rule {
    Rule::new("self.all(key, !key.startsWith('knoll.dev/') && key != 'app.kubernetes.io/managed-by')")
        .message("write other keys: those that begin with knoll.dev/ and app.kubernetes.io/managed-by are Knoll's own")
}
