//! The verdict of all Policies on one plan, within the limits of a status. Pure.

use knoll_api::policy::RuleAction;
use knoll_api::verdict::{PlanVerdict, RuleResult};

use crate::request::Finding;

/// What the rules of one Policy say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    pub policy: String,
    /// The Policy says who may override its denials.
    pub overridable: bool,
    pub findings: Vec<Finding>,
}

/// The verdict on the plan of this digest, by the rules of that digest.
#[must_use]
pub fn verdict(plan: &str, rules: Option<String>, judged: Vec<Judged>) -> PlanVerdict {
    let mut results = Vec::new();
    let (mut denied_by, mut overridable) = (Vec::new(), true);
    for Judged { policy, overridable: has_override, findings } in judged {
        let denies = |found: &Finding| found.failed || found.action == RuleAction::Deny;
        if findings.iter().any(denies) {
            denied_by.push(policy.clone());
            // Nobody knows what a rule without a result would have said.
            overridable &= has_override && !findings.iter().any(|found| found.failed);
        }
        results.extend(findings.into_iter().map(|found| result(&policy, found)));
    }
    results.sort_by(|a, b| {
        let key = |result: &RuleResult| (std::cmp::Reverse(result.action), !result.failed);
        key(a).cmp(&key(b)).then_with(|| (&a.policy, &a.rule).cmp(&(&b.policy, &b.rule)))
    });
    let omitted = u32::try_from(results.len().saturating_sub(PlanVerdict::MAX_RESULTS)).unwrap_or(u32::MAX);
    let action = results.first().map(|result| result.action);
    results.truncate(PlanVerdict::MAX_RESULTS);
    let overridable = overridable && !denied_by.is_empty();
    PlanVerdict { plan: Some(plan.to_owned()), rules, isolated: None, action, denied_by, overridable, results, omitted }
}

fn result(policy: &str, found: Finding) -> RuleResult {
    let Finding { rule, action, message, addresses, omitted, failed } = found;
    let action = if failed { RuleAction::Deny } else { action };
    RuleResult { policy: policy.to_owned(), rule, action, message, addresses, omitted, failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(action: RuleAction, failed: bool) -> Finding {
        Finding { rule: "r".into(), action, message: "m".into(), failed, ..Finding::default() }
    }

    fn of(policy: &str, overridable: bool, findings: Vec<Finding>) -> Judged {
        Judged { policy: policy.into(), overridable, findings }
    }

    #[test]
    fn the_strictest_action_counts_and_a_failed_rule_denies() {
        use RuleAction::{Deny, RequireApproval, Warn};
        let row = |judged: Vec<Judged>| {
            let PlanVerdict { action, denied_by, overridable, .. } = verdict("p", None, judged);
            (action, denied_by.join(" "), overridable)
        };
        assert_eq!(row(vec![of("a", true, vec![])]), (None, String::new(), false));
        assert_eq!(row(vec![of("a", true, vec![found(Warn, false)])]), (Some(Warn), String::new(), false));
        let both = vec![of("a", true, vec![found(RequireApproval, false)]), of("b", false, vec![found(Warn, false)])];
        assert_eq!(row(both), (Some(RequireApproval), String::new(), false));
        assert_eq!(row(vec![of("a", true, vec![found(Deny, false)])]), (Some(Deny), "a".into(), true));
        let two = vec![of("a", true, vec![found(Deny, false)]), of("b", false, vec![found(Deny, false)])];
        assert_eq!(row(two), (Some(Deny), "a b".into(), false));
        assert_eq!(row(vec![of("a", true, vec![found(Warn, true)])]), (Some(Deny), "a".into(), false));
    }

    #[test]
    fn results_beyond_the_limit_are_counted() {
        let many = (0..100).map(|_| found(RuleAction::Warn, false)).chain([found(RuleAction::Deny, false)]).collect();
        let verdict = verdict("p", Some("d".into()), vec![of("a", false, many)]);
        assert_eq!((verdict.results.len(), verdict.omitted, verdict.results[0].action), (64, 37, RuleAction::Deny));
    }
}
