//! The deletion of a Stack: its infrastructure is destroyed first, after every Stack that needs it.

use jiff::Timestamp;
use knoll_api::{
    Purpose,
    names::{annotation, reason},
    run::RunPhase,
    stack::{FailureStatus, Snapshot, Stack, StackDeletionPolicy, StackPhase, StackStatus},
};
use kube::ResourceExt;

use super::{
    OwnRun, Plan, StackAction, StackFacts, StackState, backoff,
    conditions::{self, Kstatus},
    dependents, phase, state,
    step::{is_stuck_in_old_settings, may_be_cancelled, may_be_superseded},
    unfinished,
};
use crate::{run::start_problem, status::Cause};

/// The request of a person for another attempt: the value of [`annotation::RECONCILE`].
pub(super) fn request(stack: &Stack) -> Option<String> {
    stack.annotations().get(annotation::RECONCILE).cloned()
}

/// The failure of the destruction that was last asked for.
pub(super) fn failure_of<'s>(stack: &Stack, status: &'s StackStatus) -> Option<&'s FailureStatus> {
    let failure = status.failure.as_ref()?;
    (failure.purpose == Purpose::Destroy && failure.request == request(stack)).then_some(failure)
}

/// Reads the state of a Stack that is deleted and has the finalizer.
pub(super) fn read<'a>(facts: &StackFacts<'a>, status: &StackStatus, now: Timestamp) -> StackState<'a> {
    let stack = facts.stack;
    if stack.annotations().contains_key(annotation::FORCE_ORPHAN) {
        return StackState::Orphaned;
    }
    let dependents = dependents(stack, facts.related);
    if !dependents.is_empty() {
        return StackState::WaitingForDependents(dependents);
    }
    if let Some(run) = unfinished(facts) {
        return if run.purpose == Purpose::Destroy { StackState::Destroying(run) } else { StackState::Stopping(run) };
    }
    if stack.spec.deletion_policy == StackDeletionPolicy::Orphan {
        return StackState::Orphaned;
    }
    let Some(left) = left(facts, status) else {
        let published = stack.status.as_ref().map_or(0, |published| published.settled);
        return StackState::Destroyed { recorded: published == status.settled };
    };
    if stack.spec.suspend {
        return StackState::DestroySuspended;
    }
    let snapshot = left.into_snapshot();
    let Some(failure) = failure_of(stack, status) else {
        return StackState::DestroyDue(snapshot);
    };
    if failure.phase != RunPhase::Failed {
        return StackState::DestroyHeld(Box::new(failure.clone()));
    }
    match backoff::retry_at(&stack.spec, failure).filter(|at| *at > now) {
        Some(at) => StackState::DestroyRetrying { failure: Box::new(failure.clone()), at },
        None => StackState::DestroyDue(snapshot),
    }
}

/// The infrastructure that is left.
enum Left {
    /// The status knows the files and variables that it was made of.
    Known(Snapshot),
    /// The state has resources of which the status knows nothing. The files of the Workspace destroy them.
    Unknown,
}

impl Left {
    fn into_snapshot(self) -> Option<Snapshot> {
        match self {
            Self::Known(snapshot) => Some(snapshot),
            Self::Unknown => None,
        }
    }
}

fn left(facts: &StackFacts<'_>, status: &StackStatus) -> Option<Left> {
    let known = status.attempted.clone().or_else(|| status.applied());
    // A state of its name that it never had a Workspace for is not the Stack's to destroy.
    let unknown =
        || facts.state.filter(|state| state.resources > 0 && state::has_workspace(facts)).map(|_| Left::Unknown);
    known.map(Left::Known).or_else(unknown)
}

pub(super) fn waiting_for_dependents(
    facts: &StackFacts<'_>,
    status: StackStatus,
    names: &[String],
    now: Timestamp,
) -> Plan {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let message = format!("Waiting for the Stacks that depend on it: {}. Delete them too.", names.join(", "));
    reconciling(facts, status, reason::WAITING_FOR_DEPENDENTS, &message, now)
}

/// The infrastructure that the Run creates is known when it has ended; then it is destroyed.
pub(super) fn stopping(facts: &StackFacts<'_>, status: StackStatus, run: OwnRun<'_>, now: Timestamp) -> Plan {
    let plan = reconciling(facts, status, reason::DESTROYING, &conditions::of_run(&run), now);
    if run.purpose == Purpose::Drift {
        return if may_be_cancelled(&run) { plan.then(StackAction::Cancel(run.name_any())) } else { plan };
    }
    if may_be_superseded(&run) { plan.then(StackAction::Supersede(run.name_any())) } else { plan }
}

pub(super) fn destroying(facts: &StackFacts<'_>, mut status: StackStatus, run: OwnRun<'_>, now: Timestamp) -> Plan {
    let message = conditions::of_run(&run);
    let (next, cause) = match (phase(&run), start_problem(&run)) {
        (RunPhase::Review, _) => (StackPhase::Review, Cause::new(reason::WAITING_FOR_APPROVAL, message)),
        (_, Some(problem)) => {
            let message = format!("{message} {}", way_out(facts.stack));
            (StackPhase::Destroying, Cause::new(problem.reason, message))
        }
        (_, None) => (StackPhase::Destroying, Cause::new(reason::DESTROYING, message)),
    };
    conditions::set(&mut status, facts.stack, next, Kstatus::Reconciling, &cause, now);
    let plan = Plan::publish(status);
    if is_stuck_in_old_settings(facts, &run) && may_be_superseded(&run) {
        return plan.then(StackAction::Supersede(run.name_any()));
    }
    plan
}

pub(super) fn suspended(facts: &StackFacts<'_>, mut status: StackStatus, now: Timestamp) -> Plan {
    let message = format!("Nothing is destroyed while spec.suspend is true. Set it to false. {}", way_out(facts.stack));
    let cause = Cause::new(reason::SUSPENDED, message);
    conditions::set(&mut status, facts.stack, StackPhase::Suspended, Kstatus::Stalled, &cause, now);
    Plan::publish(status)
}

pub(super) fn retrying(
    facts: &StackFacts<'_>,
    status: StackStatus,
    failure: &FailureStatus,
    at: Timestamp,
    now: Timestamp,
) -> Plan {
    let attempt = failure.count.saturating_add(1);
    let message = format!(
        "{} Attempt {attempt} starts at {at}, or when the annotation {} changes. {}",
        failure.message,
        annotation::RECONCILE,
        way_out(facts.stack)
    );
    reconciling(facts, status, reason::DESTROY_FAILED, &message, now).at(Some(at))
}

pub(super) fn held(facts: &StackFacts<'_>, mut status: StackStatus, failure: &FailureStatus, now: Timestamp) -> Plan {
    let message = format!(
        "{} To try again, change the annotation {}. {}",
        failure.message,
        annotation::RECONCILE,
        way_out(facts.stack)
    );
    let cause = Cause::new(reason::DESTROY_FAILED, message);
    conditions::set(&mut status, facts.stack, StackPhase::Held, Kstatus::Stalled, &cause, now);
    Plan::publish(status)
}

/// The status records that everything is destroyed before the Run that proves it is deleted.
pub(super) fn destroyed(facts: &StackFacts<'_>, status: StackStatus, recorded: bool, now: Timestamp) -> Plan {
    if recorded {
        return Plan::publish(status).then(StackAction::CleanUp);
    }
    reconciling(facts, status, reason::DESTROYING, "Everything is destroyed.", now)
}

/// The status of a Stack that cannot be destroyed because its namespace is being deleted too.
pub(super) fn without_namespace(stack: &Stack, now: Timestamp) -> StackStatus {
    let mut status = stack.status.clone().unwrap_or_default();
    let (name, namespace) = (stack.name_any(), stack.namespace().unwrap_or_default());
    let message = format!(
        "Its namespace is being deleted, so no run can be started to destroy the infrastructure. The state is kept until the Stack is deleted. To save it, and destroy the infrastructure from elsewhere: knoll state pull -n {namespace} -w {name} > {name}.tfstate. {}",
        way_out(stack)
    );
    let cause = Cause::new(reason::DESTROY_FAILED, message);
    conditions::set(&mut status, stack, StackPhase::Held, Kstatus::Stalled, &cause, now);
    status
}

/// How a person releases the Stack without its infrastructure being destroyed.
fn way_out(stack: &Stack) -> String {
    format!(
        "To delete the Stack and keep the infrastructure: kubectl annotate stack {} -n {} {}=yes",
        stack.name_any(),
        stack.namespace().unwrap_or_default(),
        annotation::FORCE_ORPHAN
    )
}

fn reconciling(facts: &StackFacts<'_>, mut status: StackStatus, why: &str, message: &str, now: Timestamp) -> Plan {
    let cause = Cause::new(why, message);
    conditions::set(&mut status, facts.stack, StackPhase::Destroying, Kstatus::Reconciling, &cause, now);
    Plan::publish(status)
}
