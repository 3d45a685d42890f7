//! What the rules of Policies say of a plan, for a terminal. Pure.

use std::fmt::Write;

use knoll_api::run::RunStatus;
use knoll_api::verdict::{PlanVerdict, RuleResult};

use crate::output::table::Table;

/// The results of the rules; empty for a run that no rule judges.
pub fn text(status: &RunStatus) -> String {
    let Some(verdict) = &status.plan_verdict else { return String::new() };
    let PlanVerdict { plan, results, omitted, overridable, isolated, .. } = verdict;
    let mut out = match (plan, results.is_empty()) {
        (None, _) if status.plan.as_ref().is_some_and(|plan| !plan.changes) => {
            return "The plan changes nothing, so the rules of Policies have nothing to judge.\n".to_owned();
        }
        (None, _) => return "The rules of Policies have not judged the plan yet.\n".to_owned(),
        (Some(_), true) => "The rules of Policies have no objection.\n".to_owned(),
        (Some(_), false) => results_table(results).to_string(),
    };
    if isolated.is_some() {
        out.push_str("A pod of its own, with the stored plan alone, has described the plan to them and to you.\n");
    }
    if *omitted > 0 {
        let _ = writeln!(out, "and {omitted} more");
    }
    if *overridable {
        let _ =
            writeln!(out, "Whom these Policies allow to can override them: knoll approve RUN --override --comment WHY");
    }
    out
}

/// A table of results.
pub fn results_table(results: &[RuleResult]) -> Table {
    let mut table = Table::new(&["RULES SAY", "POLICY", "RULE", "MESSAGE", "RESOURCES"]);
    for RuleResult { policy, rule, action, message, addresses, omitted, failed } in results {
        let mut at = addresses.join(", ");
        if *omitted > 0 {
            let _ = write!(at, " and {omitted} more");
        }
        let word = if *failed { "Failed" } else { action.as_str() };
        table.row([word.into(), policy.as_str().into(), rule.as_str().into(), message.as_str().into(), at.into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use knoll_api::policy::RuleAction;
    use knoll_api::run::PlanSummary;
    use knoll_api::verdict::IsolatedPlan;

    use super::*;

    #[test]
    fn what_the_rules_say_is_shown_in_plain_words() {
        let shown = |plan_verdict: Option<PlanVerdict>, changes: bool| {
            let plan = Some(PlanSummary { changes, ..PlanSummary::default() });
            text(&RunStatus { plan, plan_verdict, ..RunStatus::default() })
        };
        let judged = PlanVerdict { plan: Some("sha256:1".into()), ..PlanVerdict::default() };
        assert_eq!(shown(None, true), "");
        assert!(shown(Some(PlanVerdict::default()), true).contains("have not judged"));
        assert!(shown(Some(PlanVerdict::default()), false).contains("nothing to judge"));
        assert!(shown(Some(judged.clone()), true).contains("no objection"));
        let isolated = PlanVerdict { isolated: Some(IsolatedPlan::default()), ..judged.clone() };
        assert!(shown(Some(isolated), true).contains("A pod of its own"));
        let result = RuleResult {
            policy: "p".into(),
            rule: "r".into(),
            action: RuleAction::Deny,
            message: "No.".into(),
            addresses: vec!["a.b".into()],
            ..RuleResult::default()
        };
        let shown = shown(Some(PlanVerdict { results: vec![result], overridable: true, ..judged }), true);
        assert!(shown.contains("Deny") && shown.contains("a.b") && shown.contains("--override"), "{shown}");
    }
}
