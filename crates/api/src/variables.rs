//! The variables of a module, and their sources.

use std::collections::BTreeMap;

use kube_derive::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rules;

/// Values of input variables by name, as any JSON value.
pub type Variables = BTreeMap<String, Value>;

/// A variable of a Workspace, set for every run in it. With `category: env` and a `valueFrom`, terraform gets credentials of
/// clouds (`AWS_ACCESS_KEY_ID`), tokens of private registries (`TF_TOKEN_registry_example_com`), and settings such as a
/// mirror of providers (`TF_CLI_CONFIG_FILE`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(&["value", "valueFrom"], "set exactly one of value or valueFrom"))]
#[x_kube(validation = Rule::new("self.category == 'env' || self.key.matches('^[A-Za-z_][A-Za-z0-9_-]*$')")
    .message("write the name of a terraform variable: letters, digits, _ and -, with a letter or _ first")
    .field_path(".key"))]
#[x_kube(validation = Rule::new("self.category == 'env' || !(self.key in ['source', 'version', 'providers', 'count', 'for_each', 'lifecycle', 'depends_on', 'locals'])")
    .message("write another name: terraform keeps source, version, providers, count, for_each, lifecycle, depends_on and locals for itself")
    .field_path(".key"))]
#[x_kube(validation = Rule::new("self.category != 'env' || self.key.matches('^[A-Za-z_][A-Za-z0-9_]*$')")
    .message("write the name of an environment variable: letters, digits and _, with no digit first")
    .field_path(".key"))]
#[x_kube(validation = Rule::new("self.category != 'env' || !(self.key.startsWith('KNOLL_') || self.key in ['TF_DATA_DIR', 'TF_WORKSPACE'])")
    .message("write another name: names that begin with KNOLL_, TF_DATA_DIR and TF_WORKSPACE are set by Knoll")
    .field_path(".key"))]
pub struct Variable {
    /// The name of the input variable or environment variable.
    #[schemars(length(max = 253))]
    pub key: String,
    /// The value, as text. Terraform parses it like `-var`: literally for a string, as an expression (such as JSON) for
    /// any other type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262144))]
    pub value: Option<String>,
    /// A Secret or ConfigMap key with the value, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueFrom>,
    /// Whether this is an input variable or an environment variable.
    #[serde(default)]
    pub category: VariableCategory,
    /// Whether the value is masked in logs and reports. A value from a Secret always is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

/// The kind of a variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = crate::values::describe)]
pub enum VariableCategory {
    /// An input variable of the module, declared by a `variable` block.
    #[default]
    Terraform,
    /// An environment variable of terraform, such as `AWS_REGION` or `TF_TOKEN_registry_example_com`.
    Env,
}

/// A key of a Secret or a ConfigMap. Exactly one of the fields must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(
    &["secretKeyRef", "configMapKeyRef"],
    "set exactly one of secretKeyRef or configMapKeyRef",
))]
pub struct ValueFrom {
    /// A key of a Secret in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// A key of a ConfigMap in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
}

/// A key of a Secret or ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
    /// The key in the object.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A source of several variables. Exactly one of the fields must be set. Later sources override earlier ones, and
/// `variables` overrides all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(
    &["secretRef", "configMapRef", "stackRef"],
    "set exactly one of secretRef, configMapRef or stackRef",
))]
pub struct VariablesFrom {
    /// A Secret: each `*.tfvars` and `*.tfvars.json` key is a variable file, and every other key a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KeysRef>,
    /// A ConfigMap, with the same rules as a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<KeysRef>,
    /// The outputs of another Stack in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_ref: Option<StackOutputsRef>,
}

/// A Secret or ConfigMap, or some of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeysRef {
    /// The name of the object, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
    /// The keys to use. Defaults to all keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = rules::not_empty("name at least one key, or leave keys out for all of them"))]
    pub keys: Vec<String>,
    /// Whether a missing object or key is ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// The outputs of another Stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StackOutputsRef {
    /// The name of the Stack, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
    /// A map from variable names to output names. Defaults to all outputs under their own names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "outputs_by_variable")]
    #[x_kube(validation = rules::not_empty("name at least one output, or leave outputs out for all of them"))]
    #[x_kube(validation = Rule::new("self.all(variable, variable.matches('^[A-Za-z_][A-Za-z0-9_-]*$'))")
        .message("write variable: output, with the name of a terraform variable first: letters, digits, _ and -"))]
    pub outputs: BTreeMap<String, String>,
}

fn outputs_by_variable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 128,
        "additionalProperties": { "type": "string", "minLength": 1, "maxLength": 253 },
    })
}

/// The schema of a map from names to any JSON value, including null.
pub(crate) fn any_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "nullable": true, "x-kubernetes-preserve-unknown-fields": true },
    })
}
