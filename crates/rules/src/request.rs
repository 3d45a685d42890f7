//! What goes to the process that evaluates rules, and what comes back.

use std::collections::BTreeMap;

use knoll_api::policy::{PlanRule, RuleAction, RulePack};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The rules of one Policy, and what they may read besides the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleSet {
    pub rules: Vec<PlanRule>,
    pub packs: Vec<Pack>,
    /// `name`, `namespace` and `labels` of the Workspace.
    pub workspace: Value,
    /// `name`, `operation`, `requestedBy` and `labels` of the Run.
    pub run: Value,
    /// There is no plan: the findings are the rules and packs that cannot be read.
    #[serde(default)]
    pub is_check: bool,
}

/// A pack of rules with its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pack {
    pub name: String,
    /// The texts by the names of their files.
    pub files: BTreeMap<String, String>,
    /// The packages whose sets count; all of them when empty.
    pub packages: Vec<String>,
}

impl Pack {
    /// A pack of one text. It is in Rego unless its key in the ConfigMap says otherwise.
    #[must_use]
    pub fn of(pack: &RulePack, text: String) -> Self {
        let is_cel = pack.config_map.as_ref().is_some_and(|at| at.key.ends_with(RulePack::CEL));
        let end = if is_cel { RulePack::CEL } else { RulePack::REGO };
        Self::of_files(pack, BTreeMap::from([(format!("{}{end}", pack.name), text)]))
    }

    #[must_use]
    pub fn of_files(pack: &RulePack, files: BTreeMap<String, String>) -> Self {
        Self { name: pack.name.clone(), files, packages: pack.packages.clone() }
    }
}

/// An objection of a rule, or the reason why the rule has no result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub rule: String,
    pub action: RuleAction,
    pub message: String,
    pub addresses: Vec<String>,
    /// The number of addresses that are not listed.
    pub omitted: u32,
    /// The rule has no result.
    pub failed: bool,
}

impl Finding {
    /// A rule that has no result.
    pub fn failure(rule: &str, why: impl Into<String>) -> Self {
        Self { rule: rule.to_owned(), message: why.into(), failed: true, ..Self::default() }
    }
}

/// A line of the evaluating process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Report {
    /// A rule is about to be evaluated.
    Begun(String),
    Found(Finding),
    /// All rules have been evaluated.
    Done,
}
