//! One total function over the states: the status of each, and the action that leads on.

use jiff::Timestamp;
use knoll_api::{
    Purpose,
    names::{annotation, reason},
    run::{Run, RunPhase},
    stack::{LaunchIntent, Snapshot, Stack, StackPhase, StackStatus, StartedRun},
};
use kube::ResourceExt;

use super::{
    Intent, Launch, Plan, StackAction, StackFacts, StackState, Waits,
    conditions::{self, Kstatus, short},
    deletion, drift, is_deleted, is_owned, outputs_digest, phase, requester, retention, runs, state, workspace,
};
use crate::{
    run::{is_superseded, start_problem},
    status::Cause,
};

pub(super) fn step(facts: &StackFacts<'_>, mut status: StackStatus, state: StackState<'_>, now: Timestamp) -> Plan {
    let stack = facts.stack;
    let failed = status.failure.as_ref().map(|failure| short(&failure.revision).to_owned()).unwrap_or_default();
    let mut enter = |phase: StackPhase, kstatus: Kstatus, cause: Cause| {
        conditions::set(&mut status, stack, phase, kstatus, &cause, now);
    };
    let plan = match state {
        StackState::Unclaimed => return Plan::publish(status).then(StackAction::AddFinalizer),
        StackState::Released => return Plan::publish(status),
        StackState::Blocked(cause) | StackState::Unresolved(cause) => {
            enter(StackPhase::Waiting, Kstatus::Stalled, cause);
            Plan::publish(status)
        }
        StackState::Fetching => {
            let cause = Cause::new(reason::FETCHING, "The files of the source are being fetched.");
            enter(StackPhase::Waiting, Kstatus::Reconciling, cause);
            Plan::publish(status)
        }
        StackState::Waiting(waits) => {
            enter(StackPhase::Waiting, Kstatus::Reconciling, waiting(&waits));
            Plan::publish(status)
        }
        StackState::Suspended { applied } => {
            let cause = Cause::new(reason::SUSPENDED, "No runs are started while spec.suspend is true.");
            enter(StackPhase::Suspended, Kstatus::Paused { ready: applied }, cause);
            Plan::publish(status)
        }
        StackState::Unchanged => Plan::publish(status),
        StackState::Running(run) => under_way(facts, status, &run, StackPhase::Running, now),
        StackState::RollingBack(run) => under_way(facts, status, &run, StackPhase::Rollback, now),
        StackState::Checking(run) => checking(facts, status, &run),
        StackState::Outdated(newest) => launch(facts, Plan::publish(status), Purpose::Apply, Some(newest)),
        StackState::Applied(newest) => applied(facts, status, newest, now),
        StackState::Held(cause) => {
            enter(StackPhase::Held, Kstatus::Stalled, cause);
            Plan::publish(status)
        }
        StackState::Retrying { cause, attempt, at } => {
            let message = format!("Attempt {attempt} starts at {at}. {}", cause.message);
            enter(StackPhase::Retrying, Kstatus::Reconciling, Cause::new(reason::RETRYING, message));
            Plan::publish(status).at(Some(at))
        }
        StackState::RollbackDue(good) => launch(facts, Plan::publish(status), Purpose::Rollback, Some(good)),
        StackState::Reverted { to, cause } => {
            let message =
                format!("Rolled back to revision {}: revision {failed} failed. {}", short(&to.revision), cause.message);
            enter(StackPhase::Reverted, Kstatus::Stalled, Cause::new(reason::ROLLED_BACK, message));
            let stale = outputs_are_stale(facts, &status);
            let plan = Plan::publish(status);
            if stale { plan.then(StackAction::ReadOutputs) } else { plan }
        }
        StackState::RollbackFailed(cause) => {
            enter(StackPhase::Failure, Kstatus::Stalled, Cause::new(reason::ROLLBACK_FAILED, cause.message));
            Plan::publish(status)
        }
        StackState::Orphaned => Plan::publish(status).then(StackAction::RemoveFinalizer),
        StackState::WaitingForDependents(names) => deletion::waiting_for_dependents(facts, status, &names, now),
        StackState::Stopping(run) => deletion::stopping(facts, status, run, now),
        StackState::Destroying(run) => deletion::destroying(facts, status, run, now),
        StackState::DestroySuspended => deletion::suspended(facts, status, now),
        StackState::DestroyDue(snapshot) => launch(facts, Plan::publish(status), Purpose::Destroy, snapshot),
        StackState::DestroyRetrying { failure, at } => deletion::retrying(facts, status, &failure, at, now),
        StackState::DestroyHeld(failure) => deletion::held(facts, status, &failure, now),
        StackState::Destroyed { recorded } => deletion::destroyed(facts, status, recorded, now),
    };
    plan.at(facts.remote.filter(|_| !is_deleted(stack)).and_then(|remote| remote.next))
}

/// Whether nothing is lost when a newer revision takes the place of this Run: it waits in a queue or for a person, or its
/// pod cannot start.
///
/// A Run that was just created starts in a moment, so it is left alone: otherwise each change in a burst would replace
/// the Run of the one before.
pub(super) fn may_be_superseded(run: &Run) -> bool {
    let waits = matches!(phase(run), RunPhase::Queued | RunPhase::Review) || start_problem(run).is_some();
    waits && !is_superseded(run)
}

/// Whether the Run is to be cancelled, and is not yet.
pub(super) fn may_be_cancelled(run: &Run) -> bool {
    !run.annotations().contains_key(annotation::CANCEL)
}

fn waiting(waits: &[Waits]) -> Cause {
    let all: Vec<&str> = waits.iter().map(|wait| wait.why.as_str()).collect();
    Cause::new(reason::WAITING_FOR_DEPENDENCIES, all.join(" "))
}

/// Whether a revision newer than that of the Run is to be applied.
fn is_outdated(facts: &StackFacts<'_>, run: &Run) -> bool {
    let revision = run.spec.snapshot.as_ref().map(|snapshot| &snapshot.revision);
    facts.inputs.snapshot().is_some_and(|newest| revision != Some(&newest.revision))
}

/// Whether another Run would do better than one whose pod cannot start: the settings of the pods have changed since.
pub(super) fn is_stuck_in_old_settings(facts: &StackFacts<'_>, run: &Run) -> bool {
    start_problem(run).is_some() && !is_current(facts)
}

fn under_way(facts: &StackFacts<'_>, mut status: StackStatus, run: &Run, running: StackPhase, now: Timestamp) -> Plan {
    let is_rollback = running == StackPhase::Rollback;
    let problem = start_problem(run);
    let (next, why) = match phase(run) {
        RunPhase::Review => (StackPhase::Review, reason::WAITING_FOR_APPROVAL),
        _ if problem.is_some() => (StackPhase::Waiting, problem.as_ref().map_or("", |cause| cause.reason.as_str())),
        _ if is_rollback => (running, reason::ROLLING_BACK),
        _ => (running, reason::PROGRESSING),
    };
    // A rollback gives way to a revision that is not the one that failed, once its own pod cannot start.
    let is_replaced = match facts.inputs.snapshot() {
        Some(newest) if is_rollback => problem.is_some() && state::failure_of(&status, newest).is_none(),
        _ => is_outdated(facts, run),
    };
    let hint =
        if problem.is_some() { " Or correct the Stack: a corrected run takes the place of this one." } else { "" };
    let failure = status.failure.as_ref().filter(|_| is_rollback);
    let failure = failure.map(|failure| format!(" It rolls back because: {}", failure.message)).unwrap_or_default();
    // Until the Run has a condition, that of its launch says as much: one write of the status less.
    if conditions::has_reported(run) || !conditions::is_current(&status, facts.stack, next) {
        let cause = Cause::new(why, conditions::of_run(run) + hint + &failure);
        conditions::set(&mut status, facts.stack, next, Kstatus::Reconciling, &cause, now);
    }
    let plan = Plan::publish(status);
    if (is_replaced || is_stuck_in_old_settings(facts, run)) && may_be_superseded(run) {
        return plan.then(StackAction::Supersede(run.name_any()));
    }
    plan
}

/// A drift check changes nothing, so the status stays what it was.
fn checking(facts: &StackFacts<'_>, status: StackStatus, run: &Run) -> Plan {
    let plan = Plan::publish(status);
    if is_outdated(facts, run) && !facts.stack.spec.suspend && may_be_cancelled(run) {
        return plan.then(StackAction::Cancel(run.name_any()));
    }
    plan
}

fn applied(facts: &StackFacts<'_>, mut status: StackStatus, newest: Snapshot, now: Timestamp) -> Plan {
    let stack = facts.stack;
    status.failure = None;
    let cause = Cause::new(reason::APPLIED, format!("Revision {} is applied.", short(&newest.revision)));
    conditions::set(&mut status, stack, StackPhase::Ready, Kstatus::Ready, &cause, now);
    if stack.spec.drift.is_none() {
        drift::forget(&mut status);
    }
    drift::notice_state(facts, &mut status, now);
    let drift = drift::next(facts, &status, now);
    let stale = outputs_are_stale(facts, &status);
    // Nothing is deleted before the status that no longer needs it is published.
    let published = stack.status.as_ref() == Some(&status);
    let plan = Plan::publish(status).at(drift.check_at);
    if stale {
        return plan.then(StackAction::ReadOutputs);
    }
    if let Some(purpose) = drift.launch {
        return launch(facts, plan, purpose, Some(newest));
    }
    if !is_current(facts) {
        return plan.then(StackAction::ApplyWorkspace);
    }
    match retention::prune(facts, &plan.status) {
        Some(prune) if published => plan.then(StackAction::Prune(prune)),
        _ => plan,
    }
}

/// Whether the outputs differ from those that were last read.
fn outputs_are_stale(facts: &StackFacts<'_>, status: &StackStatus) -> bool {
    let spec = &facts.stack.spec;
    let digest = outputs_digest(facts.state.map(|state| state.digest.as_str()), spec);
    let missing = spec.outputs.is_some() && !facts.has_outputs_secret;
    missing || status.outputs_digest.as_ref() != Some(&digest)
}

/// Whether the Workspace is what the Stack asks for.
fn is_current(facts: &StackFacts<'_>) -> bool {
    let asked = workspace(facts.stack);
    facts.workspace.is_some_and(|found| found.spec == asked.spec && is_owned(found, facts.stack))
}

/// Adds the launch of a Run to a plan.
fn launch(facts: &StackFacts<'_>, plan: Plan, purpose: Purpose, snapshot: Option<Snapshot>) -> Plan {
    // Nothing starts in a Workspace that is being deleted. Its end is an event, and then it is created again.
    if facts.workspace.is_some_and(|workspace| workspace.metadata.deletion_timestamp.is_some()) {
        return plan;
    }
    let number = plan.status.runs.saturating_add(1);
    let by = requester::of(&plan.status, snapshot.as_ref());
    let run = runs::run(facts.stack, number, purpose, snapshot.as_ref(), by);
    let is_it =
        |intent: &&LaunchIntent| (&intent.name, intent.number, intent.purpose) == (&run.name_any(), number, purpose);
    let Some(intent) = plan.status.launching.as_ref().filter(is_it).cloned() else {
        return plan.then(StackAction::Intend(Box::new(Intent { number, purpose, run })));
    };
    // Every other purpose uses a snapshot that was stored for an earlier Run.
    let store = snapshot.filter(|_| purpose == Purpose::Apply);
    plan.then(StackAction::Launch(Box::new(Launch { store, apply_workspace: !is_current(facts), run, intent })))
}

/// The status after somebody else's Run was found under the name of the next Run: the number is given up with the name.
pub(super) fn name_taken(stack: &Stack, mut status: StackStatus, now: Timestamp) -> StackStatus {
    let Some(LaunchIntent { name, number, .. }) = status.launching.take() else { return status };
    (status.runs, status.settled) = (number, number);
    let message = format!("A run `{name}` exists that this Stack has not started. The next run gets another name.");
    let phase = status.phase;
    let cause = Cause::new(reason::OBJECT_CONFLICT, message);
    conditions::set(&mut status, stack, phase, Kstatus::Reconciling, &cause, now);
    status
}

/// The status after the launch of a Run.
pub(super) fn launched(
    stack: &Stack,
    mut status: StackStatus,
    record: &StartedRun,
    run: &Run,
    now: Timestamp,
) -> StackStatus {
    if let (Purpose::Correct, Some(drift)) = (record.purpose, &mut status.drift) {
        drift.corrected_by = Some(record.name.clone());
    }
    launching(stack, status, record.purpose, run, now)
}

/// The status of a Stack that is about to create a Run: it is not Ready while the Run is not yet recorded.
pub(super) fn launching(
    stack: &Stack,
    mut status: StackStatus,
    purpose: Purpose,
    run: &Run,
    now: Timestamp,
) -> StackStatus {
    let name = run.name_any();
    let revision = run.spec.snapshot.as_ref().map(|snapshot| short(&snapshot.revision)).unwrap_or_default();
    let (phase, why, message) = match purpose {
        Purpose::Drift => return status,
        Purpose::Apply => (
            StackPhase::Running,
            reason::PROGRESSING,
            format!("Run `{name}` was started to apply revision {revision}."),
        ),
        Purpose::Correct => {
            let message = format!("Run `{name}` was started to apply revision {revision} again and correct drift.");
            (StackPhase::Running, reason::PROGRESSING, message)
        }
        Purpose::Rollback => {
            let failure = status.failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
            let message = format!("Run `{name}` is rolling back to revision {revision}. {failure}");
            (StackPhase::Rollback, reason::ROLLING_BACK, message)
        }
        Purpose::Destroy => {
            (StackPhase::Destroying, reason::DESTROYING, format!("Run `{name}` is destroying the infrastructure."))
        }
    };
    conditions::set(&mut status, stack, phase, Kstatus::Reconciling, &Cause::new(why, message), now);
    status
}
