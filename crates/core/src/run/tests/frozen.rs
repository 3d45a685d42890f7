//! Runs with a frozen job: two accounts, the reviewed images, and the snapshot of a Stack.

use super::*;

/// A Workspace whose plans have another account than its applies.
pub(super) fn two_accounts(approval: RunApproval) -> World {
    let mut world = World::apply(approval);
    let plan = Some(StageSettings { service_account_name: Some("reader".to_owned()) });
    world.workspace.as_mut().unwrap().spec.pod = Some(PodSettings { plan, ..PodSettings::default() });
    world
}

#[test]
fn with_two_accounts_a_run_plans_in_one_pod_and_applies_in_another() {
    let mut world = two_accounts(RunApproval::Auto);
    assert_eq!(creates(&world.step(1)), Some(Stage::Plan));
    world.expect(RunPhase::Starting, reason::POD_CREATED);
    // The Workspace of today does not matter any more.
    world.workspace.as_mut().unwrap().spec.pod = None;
    world.report(2, &plans("sha256:a", true));
    assert_eq!(world.status().phase, RunPhase::Review);
    assert_eq!(creates(&world.step(3)), Some(Stage::Apply), "nobody has to approve it");
    world.expect(RunPhase::Running, reason::POD_CREATED);
    assert_eq!(world.status().decision.as_ref().unwrap().by, "the rule Auto");
    world.report(4, &ends(0));
    world.expect(RunPhase::Succeeded, reason::SUCCEEDED);

    let mut asked = two_accounts(RunApproval::Manual);
    asked.step(1);
    asked.report(2, &plans("sha256:a", true));
    assert_eq!(action(&asked.step(3)), None, "with a review it waits all the same");
    asked.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);

    let mut prompted = two_accounts(RunApproval::Prompt);
    prompted.step(1);
    prompted.expect(RunPhase::Failed, reason::INVALID_SPEC);
}

#[test]
fn a_plan_whose_files_are_not_kept_is_not_reviewed() {
    let mut world = World::apply(RunApproval::Manual);
    world.step(1);
    world.report(2, &Progress { bundle: None, ..plans("sha256:a", true) });
    world.expect(RunPhase::Failed, reason::RUNNER_LOST);
}

#[test]
fn the_images_of_the_plan_are_part_of_what_is_reviewed() {
    let image_digests: BTreeMap<_, _> = [("runner".to_owned(), "terraform@sha256:1".to_owned())].into();
    let mut world = World::apply(RunApproval::Manual);
    world.step(1);
    let mut plain = world.clone();
    plain.report(2, &plans("sha256:a", true));
    world.report(2, &Progress { image_digests: image_digests.clone(), ..plans("sha256:a", true) });
    assert_eq!(world.status().job.as_ref().unwrap().image_digests, image_digests);
    assert_ne!(world.status().review_digest, plain.status().review_digest);
    let digest = world.status().review_digest.clone().unwrap();
    world.approve("yes", &digest, Choice::Approve);
    world.step(3);
    world.report(4, &ends(0));
    assert_eq!(world.status().job.as_ref().unwrap().image_digests, image_digests, "a later pod changes nothing");
}

#[test]
fn a_snapshot_is_run_only_for_the_stack_that_started_the_run() {
    let started = |uid: &str| StartedRun { name: "r".to_owned(), uid: uid.to_owned(), ..StartedRun::default() };
    let own = World::of_stack(|status| status.started_runs.push(started("run-uid")));
    assert!(matches!(own.decide(0).next, Next::Act(RunAction::CreatePod(..))));

    let intent = LaunchIntent { name: "r".to_owned(), ..LaunchIntent::default() };
    let intended = World::of_stack(|status| status.launching = Some(intent));
    let waits = intended.decide(0);
    assert!(matches!(waits.next, Next::Status(status) if !status.phase.is_finished()));
    assert!(waits.requeue_at.is_some());

    let mut without_a_stack = World::of_stack(|_| {});
    without_a_stack.stack = None;
    let foreign = World::of_stack(|status| status.started_runs.push(started("the UID of another run")));
    for mut world in [without_a_stack, foreign, World::of_stack(|_| {})] {
        world.step(0);
        let status = world.run.status.unwrap();
        assert_eq!(status.phase, RunPhase::Discarded);
        let ready = conditions::find(&status.conditions, condition::READY).unwrap();
        assert_eq!(ready.reason, reason::NOT_OF_ITS_STACK);
    }
}
