use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::*;

fn policy(spec: Value) -> Effective {
    let policy = knoll_api::Policy::new("p", serde_json::from_value(spec).unwrap());
    crate::policy::effective([&policy], [], &BTreeMap::new(), &BTreeMap::new())
}

/// Puts the Run's pod among those that have its label, and ends it.
fn with_ended_pod(mut world: World) -> World {
    world.run.metadata.uid = Some("run".to_owned());
    let mut pod = world.pod.clone().unwrap();
    let owner = OwnerReference { uid: "run".to_owned(), ..OwnerReference::default() };
    pod.metadata.owner_references = Some(vec![owner]);
    pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    world.pod = Some(pod.clone());
    world.leftover = Some(pod);
    world.placed(None, &[])
}

fn deletes(decision: &RunDecision) -> Option<&str> {
    match action(decision)? {
        RunAction::DeletePod { name, .. } => Some(name),
        _ => None,
    }
}

#[test]
fn a_finished_runs_pod_goes_when_clients_have_read_its_log() {
    let mut world = World::apply(RunApproval::Auto);
    world.step(1);
    world.runs();
    world.report(10, &ends(0));
    let mut world = with_ended_pod(world);
    assert_eq!(world.step(11).requeue_at, Some(at(30)));
    assert_eq!(deletes(&world.decide(29)), None);
    assert_eq!(deletes(&world.decide(30)), Some("r"));
    world.leftover.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(at(31)));
    assert_eq!(deletes(&world.decide(40)), None, "nothing is done twice");
}

#[test]
fn a_pod_that_tells_why_its_runner_was_lost_is_kept_for_an_hour() {
    let mut world = World::apply(RunApproval::Auto);
    world.step(1);
    world.dies("OOMKilled", 137);
    world.step(10);
    assert!(world.status().phase.is_finished());
    let mut world = with_ended_pod(world);
    assert_eq!(world.step(11).requeue_at, Some(at(3610)));
    assert_eq!(deletes(&world.decide(3610)), Some("r"));
}

#[test]
fn the_pod_that_planned_goes_during_the_review() {
    let mut world = World::apply(RunApproval::Manual);
    world.step(1);
    world.report(10, &plans("d", true));
    let world = with_ended_pod(world).placed(Some("r"), &[]);
    assert_eq!(deletes(&world.decide(11)), None);
    assert_eq!(deletes(&world.decide(30)), Some("r"));
}

#[test]
fn a_run_without_a_slot_waits_and_says_so() {
    let mut world = World::apply(RunApproval::Auto);
    assert_eq!(creates(&world.decide(1)), Some(Stage::Whole));
    let full = || RunOutcome::NoSlot { message: "full".to_owned(), again_in: Duration::from_secs(30) };
    let settled = world.with_facts(|facts| settle(facts, full(), at(1)));
    assert_eq!(settled.requeue_at, Some(at(31)));
    world.settle(full(), 1);
    world.expect(RunPhase::Pending, reason::WAITING_FOR_SLOT);
    assert_eq!(creates(&world.decide(2)), Some(Stage::Whole), "it asks again");
}

#[test]
fn what_applies_waits_for_its_window_and_what_plans_does_not() {
    let freeze = json!({"windows": {"freezes": [{"reason": "The fair", "from": at(0).to_string(), "until": at(500).to_string()}]}});
    let mut world = World::apply(RunApproval::Auto);
    world.policy = policy(freeze.clone());
    assert_eq!(world.step(1).requeue_at, Some(at(500)));
    world.expect(RunPhase::Pending, reason::WAITING_FOR_WINDOW);
    assert_eq!(creates(&world.decide(500)), Some(Stage::Whole));

    let mut world = World::apply(RunApproval::Manual);
    world.policy = policy(freeze);
    assert_eq!(creates(&world.step(1)), Some(Stage::Plan));
    world.report(2, &plans("d", true));
    let digest = world.status().review_digest.clone().unwrap();
    world.approve("one", &digest, Choice::Approve);
    world.step(3);
    world.expect(RunPhase::Review, reason::WAITING_FOR_WINDOW);
    assert_eq!(world.status().decision, None, "it may still be discarded");
    assert_eq!(creates(&world.step(500)), Some(Stage::Apply));
}

#[test]
fn a_policy_shortens_the_timeouts_of_a_run_and_the_run_keeps_them() {
    let mut world = World::apply(RunApproval::Auto);
    world.policy = policy(json!({"limits": {"timeouts": {"pending": "60s", "apply": "5m"}}}));
    world.step(1);
    let timeouts = world.status().timeouts.clone().unwrap();
    assert_eq!(serde_json::to_value(timeouts).unwrap(), json!({"pending": "60s", "apply": "5m"}));
    world.step(61);
    assert!(world.status().start_failure.is_some(), "{:?}", world.status());
}
