//! Every transition, by example.

use knoll_api::{
    AtomStatus,
    atom::{AtomPhase, AtomRevision},
    run::{ChangeAction, Operation, ResourceChange, RunApproval},
    source::LocalRef,
    stack::{DriftAction, DriftIgnore, DriftSpec, StackApproval, StackDeletionPolicy},
    variables::{StackOutputsRef, VariablesFrom},
};
use serde_json::json;

use super::{super::conditions::Kstatus, *};

#[track_caller]
pub(super) fn check(world: &World, expect: &str) {
    assert_eq!(world.shown(), expect, "{}", world.message());
}

pub(super) fn ready(spec: StackSpec) -> World {
    let mut world = World::new(spec);
    world.settle().succeed();
    check(&world, "Ready ready | apply(a) Succeeded");
    world
}

pub(super) fn on_failure(on_failure: OnFailure) -> StackSpec {
    StackSpec { on_failure, ..StackSpec::default() }
}

#[test]
fn a_new_stack_is_held_gets_its_workspace_and_one_run() {
    let mut world = World::new(StackSpec::default());
    let first = world.step(usize::MAX);
    assert_eq!(first.next, Next::Act(StackAction::AddFinalizer));
    let intent = world.step(usize::MAX);
    assert!(matches!(intent.next, Next::Act(StackAction::Intend(_))), "the intent is recorded first: {intent:?}");
    let Next::Act(StackAction::Launch(launch)) = world.decide().next else { panic!("{:?}", world.decide()) };
    assert_eq!((launch.store, launch.apply_workspace), (Some(snapshot("a")), true));
    world.settle();
    check(&world, "Running working | apply(a) Pending");
    let run = world.current().unwrap();
    assert_eq!((run.name_any().as_str(), run.spec.operation), ("net-1-a", Operation::Apply));
    assert_eq!(run.spec.snapshot, Some(snapshot("a")));
    assert!(run.spec.variables.is_empty(), "no value of a variable is in a Run");
    world.succeed();
    check(&world, "Ready ready | apply(a) Succeeded");
    let status = world.status();
    assert_eq!((status.revision.as_deref(), status.bundle.as_deref()), (Some("a"), Some("bundle-a")));
    assert_eq!((status.pending_revision, status.variables.as_deref()), (None, Some("variables-a")));
}

/// A Run as a user can create it: a copy of one of the Stack's Runs, with other labels and annotations.
fn forged(world: &World, name: &str, number: u32) -> Run {
    let mut run = runs::run(&world.stack, number, Purpose::Apply, Some(&snapshot("b")), None);
    run.metadata.name = Some(name.to_owned());
    run.metadata.uid = Some(format!("forged-{name}"));
    run.annotations_mut().insert(annotation::NONCE.to_owned(), "guessed".to_owned());
    run
}

#[test]
fn a_run_with_the_labels_of_a_stack_and_number_99_changed_the_stack() {
    let mut world = ready(StackSpec::default());
    let run = forged(&world, "net-99-b", 99);
    world.runs.push(run);
    world.finish("net-99-b", RunPhase::Succeeded, reason::SUCCEEDED, false);
    let before = world.status();
    world.settle();
    assert_eq!(world.status(), before);
    world.change("b");
    assert_eq!((world.status().phase, world.status().runs), (StackPhase::Running, 2));
    assert_eq!(world.status().last_run.as_deref(), Some("net-2-b"));
}

#[test]
fn somebody_elses_run_under_the_next_name_is_not_taken_for_the_stacks() {
    let mut world = ready(StackSpec::default());
    let run = forged(&world, "net-2-b", 2);
    world.runs.push(run);
    world.change("b");
    let status = world.status();
    assert_eq!((status.last_run.as_deref(), status.runs, status.settled), (Some("net-3-b"), 3, 2));
    assert!(!status.started_runs.iter().any(|record| record.name == "net-2-b"), "{status:?}");
    // The same after a restart, when only the status tells what was intended.
    let mut world = ready(StackSpec::default());
    world.inputs = resolved("b");
    world.step(usize::MAX);
    world.nonces.clear();
    let run = forged(&world, "net-2-b", 2);
    world.runs.push(run);
    world.step(usize::MAX);
    assert!(world.message().contains("`net-2-b` exists that this Stack has not started"), "{}", world.message());
    assert_eq!(world.settle().status().last_run.as_deref(), Some("net-3-b"));
}

#[test]
fn a_run_that_was_created_before_a_crash_is_found_again() {
    let mut world = ready(StackSpec::default());
    world.inputs = resolved("b");
    world.step(usize::MAX);
    // The variables and the Run are written, the status is not.
    world.step(2);
    assert_eq!((world.status().runs, world.runs.len(), world.nonces.len()), (1, 2, 0));
    assert_eq!(launched(Some(&world.stack), world.runs.last().unwrap()), Launched::Intended);
    world.settle();
    assert_eq!((world.status().runs, world.runs.len()), (2, 2));
    assert_eq!(launched(Some(&world.stack), world.runs.last().unwrap()), Launched::Confirmed);
    assert_eq!(launched(Some(&world.stack), &forged(&world, "net-2-b", 2)), Launched::Never, "by UID");
    assert_eq!(launched(None, world.runs.last().unwrap()), Launched::Never);
    // Without the Run, another nonce is chosen.
    let mut world = ready(StackSpec::default());
    world.inputs = resolved("b");
    world.step(usize::MAX);
    world.nonces.clear();
    world.settle();
    assert_eq!(world.status().last_run.as_deref(), Some("net-2-b"));
}

#[test]
fn a_copied_nonce_does_not_fit_another_run() {
    let world = ready(StackSpec::default());
    let intent = LaunchIntent {
        name: "net-2-b".to_owned(),
        commitment: commitment(&forged(&world, "net-2-b", 2), "secret"),
        ..LaunchIntent::default()
    };
    let mut run = forged(&world, "net-2-b", 2);
    assert_eq!(IntendedRun::of(&intent, None), IntendedRun::Absent);
    assert_eq!(IntendedRun::of(&intent, Some(&run)), IntendedRun::Taken, "a guessed nonce");
    run.annotations_mut().insert(annotation::NONCE.to_owned(), "secret".to_owned());
    assert_eq!(IntendedRun::of(&intent, Some(&run)), IntendedRun::Created(&run));
    for change in [
        |run: &mut Run| run.spec.operation = Operation::Destroy,
        |run: &mut Run| run.spec.approval = RunApproval::Manual,
        |run: &mut Run| run.spec.snapshot = Some(snapshot("other")),
        |run: &mut Run| run.metadata.name = Some("net-3-b".to_owned()),
    ] {
        let mut other = run.clone();
        change(&mut other);
        assert_eq!(IntendedRun::of(&intent, Some(&other)), IntendedRun::Taken);
    }
}

#[test]
fn the_same_revision_gives_no_run_and_no_write() {
    let mut world = ready(StackSpec::default());
    world.runs.clear();
    world.second += 1_000_000;
    let again = world.decide();
    assert_eq!(again, Decision::status(world.status()));
}

#[test]
fn a_burst_of_changes_ends_with_the_last_value_in_two_runs() {
    let mut world = ready(StackSpec::default());
    world.change("b").at_phase(RunPhase::Running);
    for revision in ["c", "d", "e", "f"] {
        world.change(revision);
    }
    check(&world, "Running working | apply(a) Succeeded, apply(b) Running");
    world.succeed();
    check(&world, "Running working | apply(a) Succeeded, apply(b) Succeeded, apply(f) Pending");
    world.succeed();
    assert_eq!(world.status().revision.as_deref(), Some("f"));
}

#[test]
fn a_run_that_waits_is_superseded_and_one_that_started_is_not() {
    let mut world = World::new(StackSpec { approval: StackApproval::Manual, ..StackSpec::default() });
    world.settle().at_phase(RunPhase::Review);
    check(&world, "Review working | apply(a) Review");
    assert_eq!(world.current().unwrap().spec.approval, RunApproval::Manual);
    world.change("b");
    check(&world, "Running working | apply(a) Discarded, apply(b) Pending");
    world.at_phase(RunPhase::Queued).change("c");
    check(&world, "Running working | apply(a) Discarded, apply(b) Discarded, apply(c) Pending");
    world.at_phase(RunPhase::Starting).change("d");
    check(&world, "Running working | apply(a) Discarded, apply(b) Discarded, apply(c) Starting");
    assert_eq!(world.status().failure, None, "a superseded run is no failure");
}

#[test]
fn going_back_to_an_earlier_revision_is_another_run() {
    let mut world = ready(StackSpec::default());
    world.change("b").succeed();
    world.change("a").succeed();
    check(&world, "Ready ready | apply(a) Succeeded, apply(b) Succeeded, apply(a) Succeeded");
}

#[test]
fn what_a_person_does_not_want_is_held_whatever_the_policy() {
    for policy in [OnFailure::Hold, OnFailure::Retry, OnFailure::Rollback] {
        let mut world = ready(on_failure(policy));
        world.change("b").end(RunPhase::Discarded, reason::DISCARDED, false);
        check(&world, "Held stuck | apply(a) Succeeded, apply(b) Discarded");
        world.later(100_000);
        world.change("c");
        check(&world, "Running working | apply(a) Succeeded, apply(b) Discarded, apply(c) Pending");
    }
}

#[test]
fn a_failure_holds_until_the_stack_changes() {
    let mut world = World::new(StackSpec::default());
    world.settle().fail().later(100_000);
    check(&world, "Held stuck | apply(a) Failed");
    assert_eq!(world.message(), "Run `net-1-a` ended as Failed: StepFailed in a test.");
    assert_eq!(world.status().attempted.unwrap().revision, "a");
    world.change("b").succeed();
    check(&world, "Ready ready | apply(a) Failed, apply(b) Succeeded");
    assert_eq!(world.status().attempted, None);
}

#[test]
fn half_of_a_revision_is_not_the_one_before() {
    let mut world = ready(StackSpec::default());
    world.change("b").fail();
    world.change("a");
    check(&world, "Running working | apply(a) Succeeded, apply(b) Failed, apply(a) Pending");
}

#[test]
fn retries_wait_longer_each_time_and_end() {
    let spec = StackSpec { retry_limit: Some(2), ..on_failure(OnFailure::Retry) };
    let mut world = World::new(spec);
    world.settle().fail();
    check(&world, "Retrying working | apply(a) Failed");
    assert_eq!(world.requeue_at, Some(at(10)));
    world.later(9);
    check(&world, "Retrying working | apply(a) Failed");
    world.later(1);
    check(&world, "Running working | apply(a) Failed, apply(a) Pending");
    world.fail();
    assert_eq!(world.requeue_at, Some(at(10 + 20)));
    world.later(20).fail();
    check(&world, "Held stuck | apply(a) Failed, apply(a) Failed, apply(a) Failed");
    assert!(world.message().starts_with("3 runs failed"), "{}", world.message());
}

#[test]
fn a_rollback_applies_the_last_good_revision_again() {
    let mut world = ready(on_failure(OnFailure::Rollback));
    world.change("b").fail();
    check(&world, "Rollback working | apply(a) Succeeded, apply(b) Failed, rollback(a) Pending");
    world.at_phase(RunPhase::Running).succeed().later(100_000);
    check(&world, "Reverted stuck | apply(a) Succeeded, apply(b) Failed, rollback(a) Succeeded");
    assert!(world.message().contains("`net-2-b` ended as Failed"), "the reason is kept: {}", world.message());
    assert!(world.message().starts_with("Rolled back to revision a: revision b failed. "), "{}", world.message());
    assert_eq!(world.status().revision.as_deref(), Some("a"));
    // The revision that is applied is wanted again: there is nothing to do.
    world.change("a");
    check(&world, "Ready ready | apply(a) Succeeded, apply(b) Failed, rollback(a) Succeeded");
}

#[test]
fn a_rollback_that_fails_is_the_end() {
    let mut world = ready(on_failure(OnFailure::Rollback));
    world.change("b").fail().fail().later(100_000);
    check(&world, "Failure stuck | apply(a) Succeeded, apply(b) Failed, rollback(a) Failed");
    assert!(
        world.message().contains("`net-2-b`") && world.message().contains("`net-3-rollback`"),
        "{}",
        world.message()
    );
    world.change("c").succeed();
    assert_eq!(world.status().phase, StackPhase::Ready);
}

#[test]
fn a_rollback_needs_something_to_go_back_to_and_something_to_undo() {
    let mut world = World::new(on_failure(OnFailure::Rollback));
    world.settle().fail();
    check(&world, "Failure stuck | apply(a) Failed");
    let mut world = ready(on_failure(OnFailure::Rollback));
    world.change("b").end(RunPhase::Failed, reason::STEP_FAILED, false);
    check(&world, "Reverted stuck | apply(a) Succeeded, apply(b) Failed");
}

fn needing(names: &[&str]) -> StackSpec {
    let depends_on = names.iter().map(|name| LocalRef { name: (*name).to_owned() }).collect();
    StackSpec { depends_on, ..StackSpec::default() }
}

fn other(name: &str, is_ready: bool, is_stuck: bool) -> Stack {
    let mut other = named(name);
    let mut status = StackStatus::default();
    let kstatus = if is_ready {
        Kstatus::Ready
    } else if is_stuck {
        Kstatus::Stalled
    } else {
        Kstatus::Reconciling
    };
    let cause = Cause::new("Test", "its run failed.");
    super::super::conditions::set(&mut status, &other.clone(), StackPhase::Pending, kstatus, &cause, at(0));
    other.status = Some(status);
    other
}

#[test]
fn a_stack_waits_for_those_it_needs_and_names_the_one_that_failed() {
    let mut world = World::new(needing(&["base"]));
    world.settle();
    check(&world, "Waiting working | ");
    assert_eq!(world.message(), "Waiting for Stack `base`, which does not exist.");
    world.others = vec![other("base", false, false)];
    world.settle();
    assert_eq!(world.message(), "Waiting for Stack `base` to be Ready.");
    world.others = vec![other("base", false, true)];
    world.settle();
    assert_eq!(world.message(), "Waiting for Stack `base`, which is stalled: its run failed.");
    // Ready, but of an older generation.
    world.others = vec![other("base", true, false)];
    world.others[0].metadata.generation = Some(2);
    world.settle();
    check(&world, "Waiting working | ");
    world.others = vec![other("base", true, false)];
    world.settle().succeed();
    check(&world, "Ready ready | apply(a) Succeeded");
    // One that goes on working does not make those that need it unready.
    world.others = vec![other("base", false, false)];
    world.inputs = Inputs::Waiting;
    world.settle();
    check(&world, "Ready ready | apply(a) Succeeded");
}

#[test]
fn a_circle_is_named() {
    let mut world = World::new(needing(&["b"]));
    let mut b = named("b");
    b.spec.variables_from = vec![VariablesFrom {
        stack_ref: Some(StackOutputsRef { name: "c".to_owned(), ..StackOutputsRef::default() }),
        ..VariablesFrom::default()
    }];
    let mut c = named("c");
    c.spec = needing(&["net", "d"]);
    world.others = vec![b, c, named("d")];
    world.settle();
    check(&world, "Waiting stuck | ");
    assert!(world.message().contains("`net` -> `b` -> `c` -> `net`"), "{}", world.message());
    // It is told to those in the circle only.
    let others: Vec<&Stack> = world.others.iter().collect();
    assert_eq!(cycle(&named("d"), &others), None);
    // Those that go together do not wait for each other; `d` still goes after who needs it.
    let waits = |world: &World, stack: &Stack| dependents(stack, &world.others.iter().collect::<Vec<_>>());
    assert_eq!(waits(&world, &world.stack), ["c"]);
    world.others[1].metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert!(waits(&world, &world.stack).is_empty());
    assert_eq!(waits(&world, &named("d")), ["c"]);
}

#[test]
fn a_workspace_of_somebody_else_is_left_alone() {
    let mut world = World::new(StackSpec::default());
    world.workspace = Some(Workspace::new("net", Default::default()));
    world.settle();
    check(&world, "Waiting stuck | ");
    assert!(world.message().contains("A Workspace `net` exists that no Stack has created"), "{}", world.message());
    // Deleted, it leaves what the Workspace has made alone.
    let mut deleted = world.clone();
    (deleted.state, deleted.exists) = (1, Some("theirs".to_owned()));
    deleted.settle().delete();
    assert!(deleted.gone && deleted.runs.is_empty() && deleted.exists.is_some());
    // One that an earlier Stack of this name left behind is taken over, with its state.
    let mut left = workspace(&world.stack);
    left.annotations_mut().clear();
    world.workspace = Some(left);
    world.settle();
    check(&world, "Running working | apply(a) Pending");
    assert!(is_owned(world.workspace.as_ref().unwrap(), &world.stack));
}

#[test]
fn what_cannot_be_told_is_said_and_goes_on_when_it_can() {
    let mut world = World::new(StackSpec::default());
    world.inputs = Inputs::Unresolved(Cause::new(reason::SOURCE_FAILED, "the ConfigMap `x` is not there"));
    world.settle();
    check(&world, "Waiting stuck | ");
    world.change("a").succeed();
    world.inputs = Inputs::Unresolved(Cause::new(reason::SOURCE_FAILED, "the ConfigMap `x` is not there"));
    world.settle();
    check(&world, "Waiting stuck | apply(a) Succeeded");
    world.change("a");
    check(&world, "Ready ready | apply(a) Succeeded");
}

#[test]
fn a_suspended_stack_starts_nothing() {
    let mut world = ready(StackSpec::default());
    world.stack.spec.suspend = true;
    world.settle();
    check(&world, "Suspended ready | apply(a) Succeeded");
    world.change("b").later(100_000);
    check(&world, "Suspended paused | apply(a) Succeeded");
    world.stack.spec.suspend = false;
    world.settle();
    check(&world, "Running working | apply(a) Succeeded, apply(b) Pending");
}

#[test]
fn a_source_that_cannot_be_reached_leaves_a_stack_as_it_was_last_told_to_be() {
    let told = |world: &World| conditions::find(&world.status().conditions, condition::FETCHED).cloned();
    let mut world = World::new(StackSpec::default());
    world.inputs = Inputs::Fetching;
    world.remote = Some(RemoteSource::default());
    world.settle();
    check(&world, "Waiting working | ");
    assert_eq!(told(&world).unwrap().reason, reason::FETCHING);

    let fetched = Fetched { source: "s".to_owned(), revision: "c0ffee".to_owned(), bundle: "bundle-a".to_owned() };
    let next = Some(at(60));
    world.remote = Some(RemoteSource { fetched: Some(fetched.clone()), error: None, next });
    world.change("a").succeed();
    check(&world, "Ready ready | apply(a) Succeeded");
    assert_eq!((world.status().fetched, world.requeue_at), (Some(fetched.clone()), next));
    assert_eq!(told(&world).unwrap().message, "The newest revision of the source is c0ffee.");

    let error = Some("Nobody answers.".to_owned());
    world.remote = Some(RemoteSource { fetched: Some(fetched), error, next });
    world.settle();
    check(&world, "Ready ready | apply(a) Succeeded");
    let condition = told(&world).unwrap();
    assert_eq!((condition.status.as_str(), condition.message.as_str()), ("False", "Nobody answers."));

    // Another operator that knows nothing yet.
    world.inputs = Inputs::Fetching;
    world.settle();
    check(&world, "Ready ready | apply(a) Succeeded");
    world.remote = None;
    world.change("a");
    assert_eq!((told(&world), world.status().fetched), (None, None));
}

fn watched(action: DriftAction) -> StackSpec {
    let interval = "1h".parse().unwrap();
    let ignored = DriftIgnore { address: "x.*".to_owned(), ..DriftIgnore::default() };
    StackSpec { drift: Some(DriftSpec { interval, action, ignore: vec![ignored] }), ..StackSpec::default() }
}

fn differs(address: &str) -> PlanSummary {
    let resources = vec![ResourceChange {
        address: address.to_owned(),
        action: ChangeAction::Update,
        attributes: vec!["size".to_owned()],
    }];
    PlanSummary { changes: true, change: 1, resources, ..PlanSummary::default() }
}

#[test]
fn drift_is_looked_for_on_time_and_told() {
    let mut world = ready(watched(DriftAction::Report));
    let due = world.requeue_at.unwrap();
    assert!(due >= at(3600) && due < at(3600 + 360), "{due}");
    world.busy_with(Some("of-somebody-else")).later(4000);
    check(&world, "Ready ready | apply(a) Succeeded");
    world.busy_with(None).settle();
    check(&world, "Ready ready | apply(a) Succeeded, drift(a) Pending");
    assert_eq!(world.current().unwrap().spec.operation, Operation::Plan);
    world.plan(differs("aws.web")).succeed();
    check(&world, "Ready ready | apply(a) Succeeded, drift(a) Succeeded");
    let drifted = |world: &World| conditions::find(&world.status().conditions, condition::DRIFTED).cloned().unwrap();
    assert_eq!(drifted(&world).message, "0 to add, 1 to change, 0 to destroy: `aws.web` (size).");
    let since = world.status().drift.unwrap().since;
    assert!(since.is_some());
    world.later(4000).plan(differs("aws.web")).succeed();
    assert_eq!(world.status().drift.unwrap().since, since, "it is the same drift");
    world.later(4000).plan(differs("x.web")).succeed();
    assert_eq!((drifted(&world).status.as_str(), world.status().drift.unwrap().since), ("False", None));
    world.later(4000).end(RunPhase::Failed, reason::STEP_FAILED, false);
    check(
        &world,
        "Ready ready | apply(a) Succeeded, drift(a) Succeeded, drift(a) Succeeded, drift(a) Succeeded, drift(a) Failed",
    );
    assert_eq!(drifted(&world).status, "Unknown");
}

#[test]
fn drift_is_put_right_as_it_was_asked_for() {
    let mut world = ready(watched(DriftAction::Apply));
    world.later(4000).plan(differs("aws.web")).succeed();
    check(&world, "Running working | apply(a) Succeeded, drift(a) Succeeded, correct(a) Pending");
    assert_eq!(world.current().unwrap().spec.approval, RunApproval::Auto);
    world.succeed();
    check(&world, "Ready ready | apply(a) Succeeded, drift(a) Succeeded, correct(a) Succeeded");
    assert!(!conditions::holds(&world.status().conditions, condition::DRIFTED));

    let mut world = ready(watched(DriftAction::Plan));
    world.later(4000).plan(differs("aws.web")).succeed().at_phase(RunPhase::Review);
    check(&world, "Review working | apply(a) Succeeded, drift(a) Succeeded, correct(a) Review");
    world.end(RunPhase::Discarded, reason::DISCARDED, false).later(60);
    check(&world, "Ready ready | apply(a) Succeeded, drift(a) Succeeded, correct(a) Discarded");
    assert!(conditions::holds(&world.status().conditions, condition::DRIFTED), "nobody wanted it put right");
}

#[test]
fn a_look_for_drift_gives_way_to_a_newer_revision() {
    let mut world = ready(watched(DriftAction::Report));
    world.later(4000);
    world.change("b");
    check(&world, "Running working | apply(a) Succeeded, drift(a) Cancelled, apply(b) Pending");
}

#[test]
fn a_deleted_stack_is_destroyed_with_what_it_kept() {
    let mut world = ready(StackSpec::default());
    world.inputs = Inputs::Unresolved(Cause::new(reason::SOURCE_FAILED, "all of it is gone"));
    world.delete();
    check(&world, "Destroying working | apply(a) Succeeded, destroy(a) Pending");
    let run = world.current().unwrap();
    assert_eq!(run.spec.operation, Operation::Destroy);
    assert_eq!(run.spec.snapshot, Some(snapshot("a")));
    assert!(!world.gone);
    world.succeed();
    assert!(world.gone && world.cleaned);
}

#[test]
fn a_failing_destroy_says_why_and_is_tried_again() {
    let mut world = ready(StackSpec::default());
    world.delete().end(RunPhase::Failed, reason::STEP_FAILED, false);
    check(&world, "Destroying working | apply(a) Succeeded, destroy(a) Failed");
    assert!(world.message().contains("StepFailed in a test") && world.message().contains("knoll.dev/force-orphan"));
    for _ in 0..8 {
        world.later(600).end(RunPhase::Failed, reason::STEP_FAILED, false);
    }
    assert!(!world.gone);
    world.annotate(annotation::FORCE_ORPHAN, "yes").settle();
    assert!(world.gone && !world.cleaned);
}

#[test]
fn a_destroy_that_nobody_wants_waits_until_it_is_asked_for() {
    let mut world = ready(StackSpec { approval: StackApproval::Manual, ..StackSpec::default() });
    world.delete().at_phase(RunPhase::Review);
    check(&world, "Review working | apply(a) Succeeded, destroy(a) Review");
    world.end(RunPhase::Discarded, reason::DISCARDED, false).later(100_000);
    check(&world, "Held stuck | apply(a) Succeeded, destroy(a) Discarded");
    world.annotate(annotation::RECONCILE, "now").settle();
    check(&world, "Destroying working | apply(a) Succeeded, destroy(a) Discarded, destroy(a) Pending");
}

#[test]
fn a_stack_goes_after_those_that_need_it() {
    let mut world = ready(StackSpec::default());
    let mut web = named("web");
    web.spec = needing(&["net"]);
    world.others = vec![web];
    world.delete();
    check(&world, "Destroying working | apply(a) Succeeded");
    assert!(world.message().contains("`web`"), "{}", world.message());
    world.others.clear();
    world.settle();
    check(&world, "Destroying working | apply(a) Succeeded, destroy(a) Pending");
}

#[test]
fn deletion_waits_for_a_run_that_has_started_and_not_for_one_that_waits() {
    let mut world = ready(StackSpec::default());
    world.change("b").at_phase(RunPhase::Running).delete();
    check(&world, "Destroying working | apply(a) Succeeded, apply(b) Running");
    world.fail();
    check(&world, "Destroying working | apply(a) Succeeded, apply(b) Failed, destroy(b) Pending");
    let mut world = ready(StackSpec::default());
    world.change("b").at_phase(RunPhase::Queued).delete();
    check(&world, "Destroying working | apply(a) Succeeded, apply(b) Discarded, destroy(a) Pending");
}

#[test]
fn what_never_made_anything_goes_at_once_and_an_orphan_leaves_everything() {
    let mut world = World::new(StackSpec::default());
    world.inputs = Inputs::Unresolved(Cause::new(reason::SOURCE_FAILED, "nothing there"));
    world.settle().delete();
    assert!(world.gone && world.cleaned);
    let mut world = ready(StackSpec { deletion_policy: StackDeletionPolicy::Orphan, ..StackSpec::default() });
    world.delete();
    assert!(world.gone && !world.cleaned && world.exists.is_some());
    // A state of which the status knows nothing is not forgotten.
    let mut world = ready(StackSpec::default());
    world.stack.status = None;
    world.runs.clear();
    world.delete();
    assert_eq!(world.current().unwrap().spec.snapshot, None);
    let mut world = ready(StackSpec { suspend: false, ..StackSpec::default() });
    world.stack.spec.suspend = true;
    world.delete();
    check(&world, "Suspended stuck | apply(a) Succeeded");
}

#[test]
fn a_run_that_somebody_deleted_counts_as_failed() {
    let mut world = World::new(StackSpec::default());
    world.settle();
    world.runs.clear();
    world.settle();
    check(&world, "Held stuck | ");
    assert!(world.message().contains("was deleted before its end"), "{}", world.message());
}

#[test]
fn a_deleted_run_is_no_failure_of_the_revision_that_took_its_place() {
    // The Run waits and is superseded; somebody deletes it before that is accounted for.
    let mut world = ready(StackSpec::default());
    world.change("b").at_phase(RunPhase::Queued);
    world.inputs = resolved("c");
    world.step(usize::MAX);
    assert_eq!(world.status().pending_revision.as_deref(), Some("c"));
    check(&world, "Running working | apply(a) Succeeded, apply(b) Discarded");
    world.runs.pop();
    world.settle();
    check(&world, "Running working | apply(a) Succeeded, apply(c) Pending");
    // The Run had started. Nobody knows what it has changed, so the revision that was applied before is applied again.
    let mut world = ready(StackSpec::default());
    world.change("b").at_phase(RunPhase::Running);
    world.runs.pop();
    world.change("a");
    check(&world, "Running working | apply(a) Succeeded, apply(a) Pending");
    world.succeed();
    check(&world, "Ready ready | apply(a) Succeeded, apply(a) Succeeded");
}

#[test]
fn a_revision_is_what_decides_about_a_run() {
    let stack = named("net");
    let base = revision(&stack, "b", "v");
    assert_eq!(base, revision(&stack, "b", "v"));
    let mut others = vec![revision(&stack, "b2", "v"), revision(&stack, "b", "v2")];
    let mut changed = |change: fn(&mut Stack)| {
        let mut stack = named("net");
        change(&mut stack);
        others.push(revision(&stack, "b", "v"));
    };
    changed(|stack| stack.spec.workspace.version = Some("1.0.0".to_owned()));
    changed(|stack| stack.spec.hooks = vec![Default::default()]);
    changed(|stack| drop(stack.annotations_mut().insert(annotation::RECONCILE.to_owned(), "now".to_owned())));
    others.push(base.clone());
    let all = others.len();
    others.sort();
    others.dedup();
    assert_eq!(others.len(), all);
    let mut same = named("net");
    same.spec.suspend = true;
    same.spec.approval = StackApproval::Manual;
    assert_eq!(revision(&same, "b", "v"), base);
}

#[test]
fn a_stack_goes_back_with_its_atom() {
    let with = |phase: AtomPhase, tried: &str, good: &str| {
        let used = |revision: &str| AtomRevision {
            stacks: [("net".to_owned(), revision.to_owned())].into(),
            ..AtomRevision::default()
        };
        let mut atom = Atom::new("web", Default::default());
        let (tried, good) = (Some(used(tried)), Some(used(good)));
        atom.status = Some(AtomStatus { phase, tried, good, ..AtomStatus::default() });
        Some(atom)
    };
    let spec = StackSpec { rollback_with: Some("web".to_owned()), ..StackSpec::default() };
    let mut world = ready(spec);
    world.atom = with(AtomPhase::Running, "a", "a");
    world.change("b").succeed();
    check(&world, "Ready ready | apply(a) Succeeded, apply(b) Succeeded");
    // An Atom that failed with what it was once good with has failed for another reason.
    world.atom = with(AtomPhase::Reverted, "a", "a");
    check(world.settle(), "Ready ready | apply(a) Succeeded, apply(b) Succeeded");
    world.atom = with(AtomPhase::Updating, "b", "a");
    check(world.settle(), "Ready ready | apply(a) Succeeded, apply(b) Succeeded");
    world.atom = with(AtomPhase::Rollback, "b", "a");
    check(world.settle(), "Rollback working | apply(a) Succeeded, apply(b) Succeeded, rollback(a) Pending");
    world.atom = with(AtomPhase::Reverted, "b", "a");
    world.succeed();
    check(&world, "Reverted stuck | apply(a) Succeeded, apply(b) Succeeded, rollback(a) Succeeded");
    assert_eq!(world.status().revision.as_deref(), Some("a"));
}

#[test]
fn a_failed_rollback_is_remembered_while_the_stack_is_suspended() {
    let mut world = ready(on_failure(OnFailure::Rollback));
    world.change("b").fail().fail();
    check(&world, "Failure stuck | apply(a) Succeeded, apply(b) Failed, rollback(a) Failed");
    world.stack.spec.suspend = true;
    world.settle();
    world.stack.spec.suspend = false;
    world.settle();
    check(&world, "Failure stuck | apply(a) Succeeded, apply(b) Failed, rollback(a) Failed");
}

#[test]
fn a_deleted_drift_check_is_no_failure_of_the_revision_that_waits() {
    let mut world = ready(watched(DriftAction::Report));
    world.later(4000);
    check(&world, "Ready ready | apply(a) Succeeded, drift(a) Pending");
    // The operator records the newer revision, and somebody deletes the check before it is cancelled.
    world.inputs = resolved("b");
    world.stack.status.as_mut().unwrap().pending_revision = Some("b".to_owned());
    world.runs.pop();
    world.settle();
    check(&world, "Running working | apply(a) Succeeded, apply(b) Pending");
}

#[test]
fn a_stack_keeps_ten_runs_and_the_variables_that_it_needs() {
    let mut world = ready(StackSpec::default());
    for number in 0..12 {
        world.change(&format!("r{number}")).succeed();
    }
    world.settle();
    assert_eq!(world.runs.len(), 10);
    assert_eq!(world.runs.last().unwrap().metadata.name, world.status().last_run);
    let names: Vec<&str> = world.secrets.iter().map(|secret| secret.name.as_str()).collect();
    assert_eq!(names, ["variables-r11"]);
    // While a Run is unfinished nothing is deleted, and a failed attempt keeps its variables.
    world.change("bad").fail();
    let names: Vec<&str> = world.secrets.iter().map(|secret| secret.name.as_str()).collect();
    assert_eq!((names, world.runs.len()), (vec!["variables-r11", "variables-bad"], 11));
}

#[test]
fn dependencies_are_found_through_others_and_circles_end() {
    let depends = |name: &str, on: &[&str]| {
        let mut stack = named(name);
        stack.spec = needing(on);
        std::sync::Arc::new(stack)
    };
    let all = [depends("a", &["b", "x"]), depends("b", &["c"]), depends("c", &["a"]), depends("d", &["a"])];
    let get = |name: &str| all.iter().find(|stack| stack.name_any() == name).cloned();
    let found: Vec<String> = dependencies(&all[0], get).iter().map(|stack| stack.name_any()).collect();
    assert_eq!(found, ["b", "c"]);
}

#[test]
fn a_state_that_another_run_changed_left_the_stack_ready() {
    let drifted = |world: &World| conditions::find(&world.status().conditions, condition::DRIFTED).cloned();
    for drift in [false, true] {
        let spec = json!({"source": {"inline": {}}, "drift": drift.then(|| json!({"interval": "1h"}))});
        let mut world = World::new(serde_json::from_value(spec).unwrap());
        world.settle();
        world.writer = Some(world.current().unwrap().name_any());
        world.succeed();
        assert_eq!(drifted(&world).map(|found| found.reason), None, "the Stack's own Run wrote it");

        world.state += 1;
        world.writer = Some("net-state-rm-x7k2p".to_owned());
        world.settle();
        let found = drifted(&world).unwrap();
        assert_eq!((found.status.as_str(), found.reason.as_str()), ("True", reason::STATE_CHANGED));
        assert!(found.message.contains("`net-state-rm-x7k2p`"), "{}", found.message);
        assert!(found.message.contains("knoll stack apply net -n "), "{}", found.message);

        world.inputs = resolved("b");
        world.settle();
        world.writer = Some(world.current().unwrap().name_any());
        world.succeed();
        let expect = drift.then_some(reason::IN_SYNC);
        assert_eq!(drifted(&world).map(|found| found.reason).as_deref(), expect, "applied again");
    }
}
