use knoll_api::stack::{StackApproval, StackSpec};
use serde_json::{Value, json};

use super::*;

fn policy(spec: Value) -> Effective {
    let policy = knoll_api::Policy::new("p", serde_json::from_value(spec).unwrap());
    crate::policy::effective([&policy], [], &BTreeMap::new(), &BTreeMap::new())
}

fn floor(floor: &str) -> Effective {
    policy(json!({"review": {"floor": floor}}))
}

/// A world whose run has planned this plan.
fn planned(mut world: World, destroy: u32) -> World {
    world.step(1);
    let mut progress = plans("d", true);
    progress.plan.as_mut().unwrap().destroy = destroy;
    world.report(2, &progress);
    world
}

#[test]
fn the_approval_of_a_stack_holds_for_every_run_on_its_workspace() {
    let mut world = World::apply(RunApproval::Auto);
    world.stack = Some(Stack::new("w", StackSpec { approval: StackApproval::Manual, ..StackSpec::default() }));
    assert_eq!(creates(&world.step(1)), Some(Stage::Plan));
    assert_eq!(world.status().approval, Some(RunApproval::Manual));
    world.report(2, &plans("d", true));
    world.step(3);
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
}

#[test]
fn a_floor_makes_a_review_of_a_prompt() {
    let mut world = World::apply(RunApproval::Prompt);
    world.policy = floor("Manual");
    assert_eq!(creates(&world.step(1)), Some(Stage::Plan));
    let steps = steps::of_stage(&world.run.spec, world.status(), Stage::Plan);
    assert!(steps.contains(&StepName::Plan) && !steps.contains(&StepName::Apply), "{steps:?}");
}

#[test]
fn a_policy_that_became_stricter_holds_for_a_run_that_waits() {
    let mut world = World::apply(RunApproval::Auto);
    world.policy = floor("ManualOnDestroy");
    let mut world = planned(world, 0);
    let mut free = world.clone();
    assert_eq!(creates(&free.step(3)), Some(Stage::Apply), "its plan destroys nothing");

    world.policy = floor("Manual");
    world.step(3);
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    // And then it needs two.
    world.policy = policy(json!({"review": {"floor": "Manual", "approvers": 2}}));
    let digest = world.status().review_digest.clone().unwrap();
    world.approve("one", &digest, Choice::Approve);
    world.step(4);
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    let ready = conditions::find(&world.status().conditions, condition::READY).unwrap();
    let review = status::step(world.status(), StepName::Review).unwrap().message.clone().unwrap();
    assert!(ready.message.ends_with(&review), "{}", ready.message);
    assert_eq!(review, "Policy `p` demands a review (spec.review.floor). It has 1 of 2 Approvals (by user-of-one).");
    world.approve("two", &digest, Choice::Approve);
    assert_eq!(creates(&world.step(5)), Some(Stage::Apply));
    assert_eq!(world.status().decision.as_ref().unwrap().approvals, ["one", "two"]);
}

#[test]
fn what_is_not_allowed_gets_no_pod() {
    let mut world = World::apply(RunApproval::Auto);
    world.workspace.as_mut().unwrap().spec.image = Some("evil.com/x".to_owned());
    world.policy = policy(json!({"allow": {"images": ["registry.example.com/*"]}}));
    assert_eq!(action(&world.step(1)), None);
    world.expect(RunPhase::Failed, reason::POLICY_VIOLATION);
    let ready = conditions::find(&world.status().conditions, condition::READY).unwrap();
    assert!(ready.message.contains("Policy `p`") && ready.message.contains("spec.allow.images"), "{}", ready.message);
}

/// A run that was planned in this image and is approved when the Workspace names another.
fn approved(planned_in: &str, workspace_now: &str) -> World {
    let mut world = World::apply(RunApproval::Manual);
    world.workspace.as_mut().unwrap().spec.image = Some(planned_in.to_owned());
    let mut world = planned(world, 0);
    world.workspace.as_mut().unwrap().spec.image = Some(workspace_now.to_owned());
    world.policy = policy(json!({"allow": {"images": ["registry.example.com/*"]}}));
    world.step(3);
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    let digest = world.status().review_digest.clone().unwrap();
    world.approve("yes", &digest, Choice::Approve);
    world
}

#[test]
fn what_is_no_longer_allowed_is_not_applied() {
    for now in ["evil.com/x", "registry.example.com/x"] {
        let mut world = approved("evil.com/x", now);
        assert_eq!(action(&world.step(4)), None, "the image of the frozen job counts");
        world.expect(RunPhase::Failed, reason::POLICY_VIOLATION);
    }
}

#[test]
fn a_frozen_job_that_is_allowed_is_applied_whatever_became_of_the_workspace() {
    let mut world = approved("registry.example.com/x", "evil.com/x");
    assert_eq!(creates(&world.step(4)), Some(Stage::Apply));
}

#[test]
fn a_frozen_job_that_is_lost_is_not_approved() {
    let mut world = approved("registry.example.com/x", "registry.example.com/x");
    world.frozen = None;
    assert_eq!(action(&world.step(4)), None);
    world.expect(RunPhase::Failed, reason::CHANGED_SINCE_PLANNED);
}

#[test]
fn nobody_approves_a_run_while_its_workspace_is_gone() {
    let mut world = planned(World::apply(RunApproval::Manual), 0);
    let digest = world.status().review_digest.clone().unwrap();
    world.approve("yes", &digest, Choice::Approve);
    world.workspace = None;
    assert_eq!(action(&world.step(3)), None);
    assert_eq!(world.status().decision, None, "the Policies of the Workspace are not known");
}

#[test]
fn a_run_of_two_accounts_waits_when_a_policy_demands_a_review_after_its_start() {
    let mut world = planned(super::frozen::two_accounts(RunApproval::Auto), 0);
    let mut free = world.clone();
    assert_eq!(creates(&free.step(3)), Some(Stage::Apply), "nobody demands a review");
    world.policy = floor("Manual");
    world.step(3);
    world.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
}

#[test]
fn only_its_stack_changes_the_infrastructure_of_a_stack() {
    let mut stack = Stack::new("w", StackSpec::default());
    stack.metadata.uid = Some("uid-of-stack".to_owned());
    let rows = [
        (json!({"operation": "apply"}), true, false),
        (json!({"operation": "destroy"}), true, false),
        (json!({"operation": "refresh"}), true, false),
        (json!({"operation": "apply", "overrideStack": true}), true, true),
        (json!({"operation": "plan"}), true, true),
        (json!({"operation": "command", "command": "state rm"}), true, true),
        (json!({"operation": "apply"}), false, true),
    ];
    for (spec, owned, expect) in rows {
        let mut whole = spec.clone();
        whole["workspace"] = "w".into();
        let mut world = World::apply(RunApproval::Auto);
        world.run.spec = serde_json::from_value(whole).unwrap();
        world.stack = Some(stack.clone());
        if owned {
            let workspace = world.workspace.as_mut().unwrap();
            workspace.metadata.labels = Some(crate::stack::owner_labels(&stack));
            workspace.metadata.annotations = Some(crate::stack::owner_annotations(&stack));
        }
        world.step(1);
        let is_refused = world.status().phase == RunPhase::Failed;
        assert_eq!(!is_refused, expect, "{spec} {owned}");
        if is_refused {
            world.expect(RunPhase::Failed, reason::BELONGS_TO_STACK);
        }
    }
}
