//! `spec.plan` of a [`Policy`](super::Policy): rules on the plans of runs.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Rules on the plans of runs. The hub evaluates them before a plan is reviewed or applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.rules) || has(self.rego)")
    .message("write at least one rule into rules or rego, or leave plan out"))]
pub struct PlanRules {
    /// Rules in CEL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub rules: Vec<PlanRule>,
    /// Packs of rules in Rego.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub rego: Vec<RegoPack>,
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

/// A pack of rules in Rego, in Conftest's form: sets `deny` (or `violation`), `require_approval` and `warn`, also with a
/// suffix such as `deny_tags`, in any package. `input` is terraform's plan as JSON. Both Rego v0 and v1 are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(&["inline", "configMap"], "write exactly one of inline and configMap"))]
pub struct RegoPack {
    /// The name of the pack, once in the Policy.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
    /// The text of the pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub inline: Option<String>,
    /// A key of a ConfigMap that has the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<PackRef>,
    /// The packages whose sets count, such as `main`; all packages of the pack when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub packages: Vec<String>,
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

/// Who may let a run go on that a rule denies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanOverride {
    /// An Approval with `policy: override` counts only if its user is in one of these groups.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253)))]
    pub groups: Vec<String>,
}
