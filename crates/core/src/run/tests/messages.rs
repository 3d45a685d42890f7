//! What the status of a run says of the obstacles that it meets.

use super::*;

#[test]
fn a_run_in_image_pull_back_off_says_so_gives_way_and_ends_by_itself() {
    let mut world = World::apply(RunApproval::Auto);
    world.step(1);
    assert_eq!(start_problem(&world.run), None);
    world.pulls_in_vain();
    world.step(2);
    world.expect(RunPhase::Starting, reason::IMAGE_PULL_BACK_OFF);
    let told = start_problem(&world.run).unwrap().message;
    let way_on = "The run ends by itself after 15m (timeouts.pending), or with: knoll cancel r -n ns";
    assert_eq!(told, format!("Container `runner` waits: ImagePullBackOff {way_on}"));

    let mut replaced = world.clone();
    replaced.supersede();
    let decision = replaced.step(3);
    assert!(matches!(action(&decision), Some(RunAction::DeletePod { .. })), "{decision:?}");
    replaced.pod = None;
    replaced.step(4);
    replaced.expect(RunPhase::Discarded, reason::SUPERSEDED);

    let mut started = world.clone();
    started.supersede();
    started.runs();
    assert_eq!(action(&started.step(3)), None, "one that has started is not superseded");
    started.dies("Error", 1);
    started.step(4);
    started.expect(RunPhase::Failed, reason::RUNNER_LOST);

    let due = 1 + i64::try_from(Timeouts::DEFAULT_PENDING.as_secs()).unwrap();
    assert_eq!(action(&world.step(due - 1)), None);
    assert!(matches!(action(&world.step(due)), Some(RunAction::DeletePod { .. })));
    world.pod = None;
    world.step(due + 1);
    world.expect(RunPhase::Failed, reason::TIMED_OUT);
}

#[test]
fn a_run_that_ended_in_the_queue_or_in_review_keeps_no_stale_conditions() {
    let told = |world: &World, type_: &str| {
        let found = conditions::find(&world.status().conditions, type_).unwrap();
        (found.status.clone(), found.reason.clone(), found.message.clone())
    };
    let of = |status: &str, reason: &str, message: &str| (status.to_owned(), reason.to_owned(), message.to_owned());
    let mut queued = World::apply(RunApproval::Auto).placed(Some("other"), &["r"]);
    queued.step(1);
    queued.cancel();
    queued.step(2);
    queued.expect(RunPhase::Cancelled, reason::CANCELLED);
    assert_eq!(told(&queued, condition::QUEUED), of("False", "Cancelled", "It left the queue."));
    assert_eq!(told(&queued, condition::ACTIVE), of("False", "Cancelled", "It ended before it got the lock."));

    let mut review = World::apply(RunApproval::Manual);
    review.step(1);
    review.runs();
    review.report(2, &plans("sha256:1", true));
    review.expect(RunPhase::Review, reason::WAITING_FOR_APPROVAL);
    review.cancel();
    review.step(3);
    review.expect(RunPhase::Cancelled, reason::CANCELLED);
    assert_eq!(told(&review, condition::APPROVED), of("False", "Cancelled", "It ended without a decision."));
}

#[test]
fn a_report_names_undeclared_variables_within_limits() {
    let mut world = World::apply(RunApproval::Auto);
    world.step(1);
    world.runs();
    let names = |count: usize| (0..count).map(|number| format!("v{number}")).chain(["x".repeat(254)]).collect();
    world.report(2, &Progress { undeclared_variables: names(40), ..steps(&[(StepName::Init, StepState::Running)]) });
    assert_eq!(world.status().undeclared_variables.len(), 32);
    world.report(3, &Progress { undeclared_variables: names(1), ..steps(&[(StepName::Init, StepState::Succeeded)]) });
    assert_eq!(world.status().undeclared_variables, ["v0"]);
}
