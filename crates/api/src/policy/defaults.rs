//! `spec.defaults` of a Policy: settings for Workspaces and Atoms that do not have their own.

use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{
    pod::PodSettings,
    rules,
    source::LocalRef,
    step::Timeouts,
    variables::{KeyRef, ValueFrom, Variable},
};

/// Settings for the Workspaces that match and do not have their own. What a Workspace says itself wins, and is judged by
/// `allow`; what a Policy supplies is not. Of several Policies, the first by name that has a setting supplies it; lists and
/// maps are joined by their keys. Secrets and ConfigMaps are those of the Workspace's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefaultSettings {
    /// Settings of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
    /// Variables of every run. A value of the Workspace, of the Stack or of the Run goes before them. A change of them
    /// starts no run of a Stack; its next run has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into(), "category".into()]))]
    pub variables: Vec<Variable>,
    /// Timeouts of the runs. `limits.timeouts` are those that no Workspace and no Run may exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// The proxy that terraform, its providers and hooks use. The runner reaches the hub without it. The pod that describes
    /// plans (`plan.isolated`) has it as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxySettings>,
    /// How terraform gets providers and modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistrySettings>,
    /// Settings of Atoms in the namespaces that match, whatever `workspaceSelector` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atom: Option<AtomDefaults>,
}

/// A proxy, as environment variables in both spellings (`HTTPS_PROXY` and `https_proxy`). A proxy that needs a password is
/// set with `pod.env` from a Secret instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxySettings {
    /// The proxy of `http://` addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = proxy_address())]
    pub http: Option<String>,
    /// The proxy of `https://` addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = proxy_address())]
    pub https: Option<String>,
    /// The hosts, domains and networks that are reached without a proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = Rule::new("self.all(host, host.matches('^[^,[:space:]]+$'))")
        .message("write one host, domain or network per item, without commas and spaces"))]
    pub exclude: Vec<String>,
}

/// How terraform gets providers and modules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistrySettings {
    /// A fragment of terraform's CLI configuration (`.terraformrc`), such as a `provider_installation` block with a mirror.
    /// Of blocks that several fragments have, the first counts: that of the pod's image, then those of Policies by name. A
    /// Workspace that sets `TF_CLI_CONFIG_FILE` has that file alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terraformrc: Option<TextSource>,
    /// Tokens of registries and of other services, as environment variables `TF_TOKEN_*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["host".into()]))]
    pub tokens: Vec<RegistryToken>,
    /// A key of a Secret with a `.netrc` file: the passwords with which terraform gets modules over https, by host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netrc: Option<KeyRef>,
    /// A Secret for modules over ssh: `identity` (or `ssh-privatekey`) is the private key, `known_hosts` the trusted host
    /// keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<LocalRef>,
}

/// A text, or the key of a Secret or ConfigMap that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(&["value", "valueFrom"], "set exactly one of value or valueFrom"))]
pub struct TextSource {
    /// The text. Everybody who may read the Policy can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub value: Option<String>,
    /// A key of a Secret or ConfigMap in the namespace of the Workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueFrom>,
}

/// The token of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryToken {
    /// The name of the host, such as `registry.example.com`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::form(
        "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        "write the name of a host such as registry.example.com, without a scheme, a port and a path",
    ))]
    pub host: String,
    /// The key of a Secret that has the token.
    pub secret_key_ref: KeyRef,
}

impl RegistryToken {
    /// The name of the environment variable, as terraform derives it from the host.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("TF_TOKEN_{}", self.host.replace('-', "__").replace('.', "_"))
    }
}

/// Settings of Atoms that do not have their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomDefaults {
    /// The service account that Atoms act as, in their own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::account_name())]
    pub service_account_name: Option<String>,
}

fn proxy_address() -> kube_core::Rule {
    rules::form(
        "^(https?|socks5)://[^/@[:space:]]+/?$",
        "write an address such as http://proxy.example.com:3128, without a user and without a path",
    )
}
