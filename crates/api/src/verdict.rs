//! [`PlanVerdict`]: what the rules of the Policies say of the plan of a Run.

use kube_derive::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::policy::RuleAction;

/// What the rules of the Policies say of a plan. It has no values of the plan that terraform marks as sensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanVerdict {
    /// The digest of the plan's bytes. Absent until the plan is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The digest of the rules that judged it. Nothing is applied after they have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// Present where the JSON of the plan is made in a pod of its own (`plan.isolated` of a Policy).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<IsolatedPlan>,
    /// The strictest action of all results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<RuleAction>,
    /// The Policies that deny the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub denied_by: Vec<String>,
    /// Whether each of those Policies has an `override`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overridable: bool,
    /// The results, the strictest first, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub results: Vec<RuleResult>,
    /// The number of results that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

/// The pod that makes the JSON of a plan from the stored plan alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsolatedPlan {
    /// The image that a Policy names; the installation's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The address of the only mirror that providers come from; any place when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
}

impl PlanVerdict {
    /// The maximum number of listed results.
    pub const MAX_RESULTS: usize = 64;

    /// Whether the rules do not let the plan be applied, unless somebody overrides them.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.action == Some(RuleAction::Deny)
    }

    /// The results that have this action.
    pub fn with(&self, action: RuleAction) -> impl Iterator<Item = &RuleResult> {
        self.results.iter().filter(move |result| result.action == action)
    }
}

/// What one rule says of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleResult {
    /// The name of the Policy.
    pub policy: String,
    /// The name of the rule; for one of a pack `PACK/RULE`, or `PACK/PACKAGE.SET` in Rego. Empty for the Policy as a whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rule: String,
    /// What follows.
    pub action: RuleAction,
    /// The message of the rule, or why the rule has no result.
    #[schemars(length(max = 1100))]
    pub message: String,
    /// The addresses of the resources, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub addresses: Vec<String>,
    /// The number of addresses that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
    /// Whether the rule could not be evaluated. The plan is denied until the Policy is corrected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl RuleResult {
    /// The maximum number of listed addresses.
    pub const MAX_ADDRESSES: usize = 16;

    /// The result as a sentence that names the Policy, the rule and the resources.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { policy, rule, action, message, addresses, omitted, failed } = self;
        let verb = match action {
            _ if *failed => "cannot be evaluated",
            RuleAction::Deny => "denies the plan",
            RuleAction::RequireApproval => "demands a review of the plan",
            RuleAction::Warn => "warns",
        };
        let rule = if rule.is_empty() { String::new() } else { format!(", rule `{rule}`,") };
        let mut at: Vec<String> = addresses.iter().map(|address| format!("`{address}`")).collect();
        if *omitted > 0 {
            at.push(format!("{omitted} more"));
        }
        let at = if at.is_empty() { String::new() } else { format!(" ({})", at.join(", ")) };
        format!("Policy `{policy}`{rule} {verb}: {message}{at}")
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_reads_as_a_sentence() {
        let result = RuleResult {
            policy: "production".into(),
            rule: "no-database".into(),
            action: RuleAction::Deny,
            message: "A database is destroyed.".into(),
            addresses: vec!["aws_db_instance.a".into()],
            omitted: 2,
            failed: false,
        };
        assert_eq!(
            result.sentence(),
            "Policy `production`, rule `no-database`, denies the plan: A database is destroyed. (`aws_db_instance.a`, 2 more)"
        );
        let broken = RuleResult { rule: String::new(), failed: true, addresses: vec![], omitted: 0, ..result };
        assert_eq!(broken.sentence(), "Policy `production` cannot be evaluated: A database is destroyed.");
    }
}
