//! `spec.plan` of a [`Policy`](super::Policy): rules on the plans of runs.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{rules, source::LocalRef};

/// Rules on the plans of runs. The hub evaluates them before a plan is reviewed or applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.rules) || has(self.packs)")
    .message("write at least one rule into rules or packs, or leave plan out"))]
#[x_kube(validation = Rule::new("(has(self.isolated) && self.isolated) || (!has(self.image) && !has(self.mirror))")
    .message("set isolated: true, or leave image and mirror out: only the pod of isolated uses them"))]
pub struct PlanRules {
    /// Rules in CEL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub rules: Vec<PlanRule>,
    /// Packs of rules, in files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub packs: Vec<RulePack>,
    /// Whether the JSON that the rules judge, and the text that people review, are made from the stored plan in a pod of its
    /// own, which has nothing of the user's: no module, hooks, environment, variables, volumes or service account. Of
    /// `defaults` it has the proxy. Without it, the pod that plans makes them, and code of a hostile module could forge them
    /// there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// The image of that pod, such as `registry.example.com/terraform`, with terraform or tofu on its PATH. Without a tag or a
    /// digest, the version of the Workspace, or the installation's, is the tag: a plan can be read only by the version that
    /// made it. Defaults to the installation's image of the tool. The image that a Workspace names is never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = rules::form(
        "^[A-Za-z0-9][A-Za-z0-9._:-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$",
        "write an image such as registry.example.com/terraform, registry.example.com/terraform:1.11.4 or one with a digest",
    ))]
    pub image: Option<String>,
    /// The address of a provider network mirror, from which that pod takes providers and from nowhere else. Providers run in
    /// that pod to describe their resources, so without a mirror whoever may choose a provider could still forge the JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::form("^https://[^ \"$%]+/$", "write the https address of a network mirror with a / at the end, such as https://mirror.example.com/providers/"))]
    pub mirror: Option<String>,
    /// Who may let a run go on that a rule of this Policy denies. Nobody when absent.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub overrides: Option<PlanOverride>,
}

/// A rule in CEL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanRule {
    /// The name of the rule, once in the Policy.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
    /// What follows if the rule finds something.
    pub action: RuleAction,
    /// A CEL expression for what the rule objects to: a list of changes such as
    /// `changes.filter(c, 'delete' in c.actions)`, a list of addresses, or `true`. An empty list or `false` is no
    /// objection. Variables: `plan` (terraform's plan as JSON), `changes` (`address`, `previousAddress`, `module`, `mode`,
    /// `type`, `name`, `index`, `provider`, `actions`, `reason`, `importing`, `before`, `after`, `afterUnknown`),
    /// `prior` (the resources of the prior state: `address`, `module`, `mode`, `type`, `name`, `provider`, `values`),
    /// `workspace` (`name`, `namespace`, `labels`) and `run` (`name`, `operation`, `requestedBy`, `labels`). An action
    /// that this version of Knoll does not know stands in `actions` together with `delete`.
    #[schemars(length(min = 1, max = 16384))]
    pub find: String,
    /// A sentence for the people who see the result: what is wrong and what to do.
    #[schemars(length(min = 1, max = 1024))]
    pub message: String,
    /// A CEL expression for a text that takes the place of `message`. It has the variables of `find`, and `found`, the
    /// addresses. Where it has no value, `message` is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub message_expression: Option<String>,
}

/// What follows if a rule finds something, in the order of strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum RuleAction {
    /// The result is shown.
    Warn,
    /// The plan is reviewed, whatever the run asks for.
    RequireApproval,
    /// The plan is not applied.
    #[default]
    Deny,
}

impl RuleAction {
    /// The serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warn => "Warn",
            Self::RequireApproval => "RequireApproval",
            Self::Deny => "Deny",
        }
    }
}

/// A pack of rules, in files that end in `.rego` or `.cel.yaml`.
///
/// Rego is read in Conftest's form: sets `deny` (or `violation`), `require_approval` and `warn`, also with a suffix such as
/// `deny_tags`, in any package. `input` is terraform's plan as JSON. Both Rego v0 and v1 are read. A file of CEL has a list
/// `rules` in the form of `spec.plan.rules`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(
    &["inline", "configMap", "git", "oci"],
    "write exactly one of inline, configMap, git and oci",
))]
pub struct RulePack {
    /// The name of the pack, once in the Policy.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
    /// The text of the pack, in Rego. Rules in CEL stand in `rules` of the Policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub inline: Option<String>,
    /// A key of a ConfigMap that has the text, in Rego unless the key ends in `.cel.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<PackRef>,
    /// Files in a git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitPack>,
    /// An artifact in an OCI registry, as `conftest push` makes it, or an archive of files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciPack>,
    /// The packages of Rego whose sets count, such as `main`; all packages of the pack when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub packages: Vec<String>,
}

impl RulePack {
    /// The end of the name of a file with rules in Rego.
    pub const REGO: &str = ".rego";
    /// The end of the name of a file with rules in CEL.
    pub const CEL: &str = ".cel.yaml";

    /// Whether a file of this name has rules. Tests of rules are not rules.
    #[must_use]
    pub fn is_file_of_rules(name: &str) -> bool {
        name.ends_with(Self::CEL) || name.ends_with(Self::REGO) && !name.ends_with("_test.rego")
    }
}

/// A key of a ConfigMap with the text of a pack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackRef {
    /// The namespace of the ConfigMap.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::object_name())]
    pub namespace: String,
    /// The name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
    /// The key with the text.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::form("^[-._A-Za-z0-9]+$", "write the key of a ConfigMap: letters, digits, -, _ and ."))]
    pub key: String,
    /// The digest of the text: `sha256:` and what `sha256sum` prints. With another text, no plan passes.
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::digest())]
    pub digest: String,
}

/// A pack in a git repository, at one commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitPack {
    /// The URL of the repository: `https://`, `ssh://`, `git://` or `user@host:path`.
    #[schemars(length(max = 2048))]
    #[x_kube(validation = rules::form(
        "^((https?|ssh|git|file)://.+|[^@:/ ]+@[^@:/ ]+:.+)$",
        "write an address that begins with https://, http://, ssh://, git:// or file://, or user@host:path",
    ))]
    #[x_kube(validation = rules::no_password())]
    pub url: String,
    /// The full hash of the commit. A branch or a tag can change, so none can be named.
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::form("^([0-9a-f]{40}|[0-9a-f]{64})$", "write the full hash of a commit in lower case: 40 or 64 hex digits"))]
    pub commit: String,
    /// A file that ends in `.rego` or `.cel.yaml`, or a directory, whose files of those names all count, also in its
    /// directories. Tests (`_test.rego`) are left out. Defaults to the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::inner_path())]
    pub path: Option<String>,
    /// A Secret of the operator's own namespace with credentials: `username` and `password`, or `token`, and `ca.crt` for a
    /// private certificate authority; for ssh `identity` and `known_hosts`. It needs the label
    /// `knoll.dev/credentials: "true"`; no other Secret is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
}

/// A pack in an OCI registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciPack {
    /// The registry and the repository, such as `registry.example.com/team/policies`, without a tag.
    #[schemars(length(min = 3, max = 512))]
    #[x_kube(validation = rules::form(
        "^([a-zA-Z0-9.-]+|[[][0-9a-f:.]+[]])(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$",
        "write a registry and a repository such as registry.example.com/team/policies, without a scheme, a tag or a digest",
    ))]
    pub repository: String,
    /// The digest of the manifest: `sha256:` and 64 hex digits, as `conftest push` prints it. What it names never changes.
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::digest())]
    pub digest: String,
    /// A Secret of the operator's own namespace with `username` and `password`, or `token`, and `ca.crt` for a private
    /// certificate authority. It needs the label `knoll.dev/credentials: "true"`; no other Secret is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalRef>,
}

/// Who may let a run go on that a rule denies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanOverride {
    /// An Approval with `policy: override` counts only if its user is in one of these groups.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253)))]
    pub groups: Vec<String>,
}
