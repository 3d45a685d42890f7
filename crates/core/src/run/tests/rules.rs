use knoll_api::{
    approval::PolicyDecision,
    policy::RuleAction,
    verdict::{PlanVerdict, RuleResult},
};
use serde_json::json;

use super::*;

fn rules(override_groups: &[&str]) -> Effective {
    let mut plan = json!({"rules": [{"name": "r", "action": "Deny", "find": "true", "message": "No."}]});
    if !override_groups.is_empty() {
        plan["override"] = json!({"groups": override_groups});
    }
    let policy = knoll_api::Policy::new("p", serde_json::from_value(json!({"plan": plan})).unwrap());
    crate::policy::effective([&policy], [], &BTreeMap::new(), &BTreeMap::new())
}

/// A world whose run has planned, after its plan was judged so.
fn judged(mut world: World, action: Option<RuleAction>, overridable: bool) -> World {
    world.step(1);
    let results =
        action.map(|action| RuleResult { policy: "p".into(), rule: "r".into(), action, ..RuleResult::default() });
    let verdict = PlanVerdict {
        plan: Some("d".to_owned()),
        rules: world.policy.rules_digest(),
        isolated: None,
        action,
        denied_by: if action == Some(RuleAction::Deny) { vec!["p".to_owned()] } else { Vec::new() },
        overridable,
        results: results.into_iter().collect(),
        omitted: 0,
    };
    world.run.status = Some(progress::judge(&world.run, &verdict));
    world.report(2, &plans("d", true));
    world
}

fn auto(override_groups: &[&str]) -> World {
    let mut world = World::apply(RunApproval::Auto);
    world.policy = rules(override_groups);
    world
}

#[test]
fn a_plan_that_rules_judge_is_applied_by_a_second_pod() {
    let world = auto(&[]);
    assert_eq!(creates(&world.decide(1)), Some(Stage::Plan));
    let mut free = World::apply(RunApproval::Auto);
    assert_eq!(creates(&free.step(1)), Some(Stage::Whole), "without rules it costs nothing");
    assert_eq!(free.status().plan_verdict, None);

    let mut world = judged(auto(&[]), None, false);
    assert_eq!(creates(&world.step(3)), Some(Stage::Apply));
    let mut world = judged(auto(&[]), Some(RuleAction::Warn), false);
    assert_eq!(creates(&world.step(3)), Some(Stage::Apply));
}

#[test]
fn a_prompt_is_no_way_around_the_rules() {
    let mut world = World::apply(RunApproval::Prompt);
    world.policy = rules(&[]);
    assert_eq!(creates(&world.step(1)), Some(Stage::Plan));
    assert_eq!(world.status().approval, Some(RunApproval::Manual));
}

#[test]
fn a_plan_without_a_verdict_is_never_applied() {
    let mut world = auto(&[]);
    world.step(1);
    world.report(2, &plans("d", true));
    world.expect(RunPhase::Failed, reason::PLAN_NOT_JUDGED);

    let mut other = auto(&[]);
    other.step(1);
    let verdict =
        PlanVerdict { plan: Some("another".to_owned()), rules: other.policy.rules_digest(), ..PlanVerdict::default() };
    other.run.status = Some(progress::judge(&other.run, &verdict));
    other.report(2, &plans("d", true));
    other.expect(RunPhase::Failed, reason::PLAN_NOT_JUDGED);
}

#[test]
fn a_denied_plan_ends_its_run_and_names_the_rule() {
    let world = judged(auto(&[]), Some(RuleAction::Deny), false);
    world.expect(RunPhase::Failed, reason::POLICY_VIOLATION);
    let ready = conditions::find(&world.status().conditions, condition::READY).unwrap();
    assert!(ready.message.starts_with("Policy `p`, rule `r`, denies the plan"), "{}", ready.message);
}

#[test]
fn a_rule_that_demands_a_review_makes_a_run_with_auto_wait() {
    let mut world = judged(auto(&[]), Some(RuleAction::RequireApproval), false);
    world.step(3);
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    let review = status::step(world.status(), StepName::Review).unwrap().message.clone().unwrap();
    assert!(review.starts_with("Policy `p`, rule `r`, demands a review of the plan"), "{review}");
    let digest = world.status().review_digest.clone().unwrap();
    world.approve("one", &digest, Choice::Approve);
    assert_eq!(creates(&world.step(4)), Some(Stage::Apply));
}

#[test]
fn rules_that_changed_after_they_judged_a_plan_refuse_its_approval() {
    let mut world = judged(auto(&["sre"]), None, false);
    world.policy = rules(&["others"]);
    world.step(3);
    world.expect(RunPhase::Failed, reason::POLICY_VIOLATION);
    let ready = conditions::find(&world.status().conditions, condition::READY).unwrap();
    assert!(ready.message.contains("the rules have changed since they judged the plan"), "{}", ready.message);
}

#[test]
fn only_an_override_by_who_may_lifts_a_denial() {
    let mut world = judged(auto(&["sre"]), Some(RuleAction::Deny), true);
    world.step(3);
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    let digest = world.status().review_digest.clone().unwrap();
    let mut with = |name: &str, policy: Option<PolicyDecision>, groups: &[&str]| {
        world.approve(name, &digest, Choice::Approve);
        let spec = &mut world.approvals.last_mut().unwrap().spec;
        spec.policy = policy;
        spec.by = if name == "other" { "uma".to_owned() } else { "ann".to_owned() };
        spec.groups = groups.iter().map(|group| (*group).to_owned()).collect();
        creates(&world.step(4))
    };
    assert_eq!(with("plain", None, &["sre"]), None, "an approval is no override");
    assert_eq!(with("other", Some(PolicyDecision::Override), &["dev"]), None, "of another group");
    assert_eq!(with("right", Some(PolicyDecision::Override), &["sre"]), Some(Stage::Apply));
    assert_eq!(world.status().decision.as_ref().unwrap().approvals, ["plain", "right"]);
}
