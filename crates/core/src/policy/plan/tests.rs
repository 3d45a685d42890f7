#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::{policy::Policy, run::PlanSummary};
use serde_json::{Value, json};

use super::*;
use crate::policy::{Labels, effective, tests::policy};

fn rules(message: &str) -> Value {
    json!({"plan": {"rules": [{"name": "r", "action": "Deny", "find": "true", "message": message}]}})
}

fn of(policies: &[Policy]) -> Effective {
    effective(policies, [], &Labels::new(), &Labels::new())
}

#[test]
fn the_digest_of_the_rules_stands_for_their_content_and_their_policies() {
    let digest = |policies: &[Policy]| of(policies).rules_digest();
    let (one, other) = (policy("a", rules("x")), policy("a", rules("y")));
    let floor = policy("z", json!({"review": {"floor": "Manual"}}));
    assert_eq!(digest(&[]), None);
    assert_eq!(digest(std::slice::from_ref(&floor)), None);
    assert_ne!(digest(std::slice::from_ref(&one)), digest(&[other]));
    assert_ne!(digest(std::slice::from_ref(&one)), digest(&[policy("b", rules("x"))]));
    assert_eq!(digest(&[one.clone(), floor.clone()]), digest(&[floor, one]));
}

#[test]
fn rules_judge_every_run_that_plans() {
    let with = of(&[policy("p", rules("x"))]);
    for (operation, expect) in [
        (Operation::Plan, true),
        (Operation::Apply, true),
        (Operation::Destroy, true),
        (Operation::Refresh, true),
        (Operation::Command, false),
    ] {
        let spec = RunSpec { operation, ..RunSpec::default() };
        assert_eq!(is_judged(&spec, &with), expect, "{operation:?}");
        assert!(!is_judged(&spec, &of(&[])));
    }
}

#[test]
fn commands_and_hooks_are_no_way_around_rules_that_bind() {
    let warn = json!({"plan": {"rules": [{"name": "r", "action": "Warn", "find": "true", "message": "x"}]}});
    let (binding, harmless) = (of(&[policy("p", rules("x"))]), of(&[policy("p", warn)]));
    assert!(command_reason(&binding).is_some_and(|why| why.contains("`p`")));
    assert!(hook_could_apply(&binding).is_some_and(|why| why.field == "spec.plan"));
    assert_eq!((command_reason(&harmless), hook_could_apply(&harmless)), (None, None));
    assert_eq!((command_reason(&of(&[])), hook_could_apply(&of(&[]))), (None, None));
}

fn verdict(action: Option<RuleAction>, overridable: bool) -> PlanVerdict {
    let results =
        action.map(|action| RuleResult { policy: "p".into(), rule: "r".into(), action, ..RuleResult::default() });
    let denied_by = if action == Some(RuleAction::Deny) { vec!["p".to_owned()] } else { Vec::new() };
    let results = results.into_iter().collect();
    PlanVerdict {
        plan: Some("d".into()),
        rules: Some("sha256:r".into()),
        isolated: None,
        action,
        overridable,
        denied_by,
        results,
        omitted: 0,
    }
}

#[track_caller]
fn check(verdict: Option<PlanVerdict>, plan: Option<(&str, bool)>, is_reviewed: bool, expect: Option<&str>) {
    let plan =
        plan.map(|(digest, changes)| PlanSummary { digest: Some(digest.into()), changes, ..PlanSummary::default() });
    let status = RunStatus { plan, plan_verdict: verdict, ..RunStatus::default() };
    let found = refusal(&status, is_reviewed);
    assert_eq!(found.as_ref().map(|cause| cause.reason.as_str()), expect, "{found:?}");
}

#[test]
fn a_plan_goes_on_only_with_a_verdict_on_itself() {
    use RuleAction::{Deny, RequireApproval, Warn};
    let (plan, other, empty) = (Some(("d", true)), Some(("e", true)), Some(("d", false)));
    check(None, plan, true, None);
    check(Some(PlanVerdict::default()), plan, true, Some(reason::PLAN_NOT_JUDGED));
    check(Some(PlanVerdict::default()), None, true, Some(reason::PLAN_NOT_JUDGED));
    check(Some(PlanVerdict::default()), empty, true, None);
    check(Some(verdict(None, false)), plan, true, None);
    check(Some(verdict(None, false)), other, true, Some(reason::PLAN_NOT_JUDGED));
    check(Some(verdict(Some(Warn), false)), plan, true, None);
    check(Some(verdict(Some(RequireApproval), false)), plan, true, None);
    check(Some(verdict(Some(Deny), false)), plan, true, Some(reason::POLICY_VIOLATION));
    check(Some(verdict(Some(Deny), true)), plan, true, None);
    // Nothing follows a run that only plans, so there is nothing to override.
    check(Some(verdict(Some(Deny), true)), plan, false, Some(reason::POLICY_VIOLATION));
}

#[test]
fn rules_that_have_changed_have_not_judged_a_plan_that_waits() {
    let run = |plan_verdict: Option<PlanVerdict>, phase: RunPhase| {
        let plan = Some(PlanSummary { digest: Some("d".into()), changes: true, ..PlanSummary::default() });
        let mut run = Run::new("r", RunSpec { operation: Operation::Apply, ..RunSpec::default() });
        run.status = Some(RunStatus { phase, plan, plan_verdict, ..RunStatus::default() });
        run
    };
    let now = of(&[policy("p", rules("x"))]);
    let judged = |rules: Option<String>| Some(PlanVerdict { rules, ..verdict(None, false) });
    let review = RunPhase::Review;
    assert_eq!(not_judged(&run(judged(now.rules_digest()), review), &now), None);
    assert!(not_judged(&run(judged(Some("sha256:other".into())), review), &now).is_some());
    let newer = not_judged(&run(None, review), &now).unwrap();
    assert!(newer.message.contains("newer") && newer.from == "Policy `p`", "{newer:?}");
    // Without rules nothing is demanded, and a run that has not planned yet is judged later.
    assert_eq!(not_judged(&run(judged(Some("sha256:other".into())), review), &of(&[])), None);
    assert_eq!(not_judged(&run(None, RunPhase::Queued), &now), None);
}

#[test]
fn the_policies_of_this_moment_say_who_may_override() {
    let mut run = Run::new("r", RunSpec::default());
    run.status = Some(RunStatus { plan_verdict: Some(verdict(Some(RuleAction::Deny), true)), ..RunStatus::default() });
    let mut spec = rules("x");
    spec["plan"]["override"] = json!({"groups": ["sre"]});
    assert_eq!(of(&[policy("p", spec)]).overriders(&run), [("p".to_owned(), vec!["sre".to_owned()])].into());
    for gone in [vec![], vec![policy("p", rules("x"))]] {
        assert_eq!(of(&gone).overriders(&run), [("p".to_owned(), vec![])].into());
    }
}
