//! [`AtomVersion`]: one version of the objects of an Atom.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube_derive::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{rules, variables::ValueFrom};

/// The objects of a version. They never change.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "knoll.dev",
    version = "v1alpha1",
    kind = "AtomVersion",
    namespaced,
    status = "AtomVersionStatus",
    derive = "PartialEq",
    shortname = "av",
    category = "knoll",
    doc = "One version of the objects of an Atom.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Healthy", type_ = "date", json_path = ".status.provenAt"),
    printcolumn(name = "Digest", type_ = "string", json_path = ".status.digest", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::immutable("an AtomVersion never changes: create another one and name it in the Atom"))]
#[x_kube(validation = rules::exactly_one(&["template", "templateFrom"], "set exactly one of template or templateFrom"))]
pub struct AtomVersionSpec {
    /// The objects, as YAML documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1048576))]
    #[x_kube(validation = rules::not_empty("write at least one object"))]
    pub template: Option<String>,
    /// A key of a ConfigMap or of a Secret that holds them, instead of `template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_from: Option<ValueFrom>,
}

/// The observed state of an AtomVersion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomVersionStatus {
    /// `Ready` is true when the template can be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The digest of the template as it was when an Atom first used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// When an Atom last reached `Running` with it, which makes it a healthy version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_at: Option<MicroTime>,
    /// When an Atom last began to roll it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_at: Option<MicroTime>,
}
