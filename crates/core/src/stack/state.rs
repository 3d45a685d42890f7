//! The state of a Stack, read from the facts.

use jiff::Timestamp;
use knoll_api::{
    Purpose,
    names::{self, finalizer, label, reason},
    run::RunPhase,
    stack::{FailureStatus, OnFailure, Snapshot, StackPhase, StackSpec, StackStatus},
    workspace::StateSummary,
};
use kube::ResourceExt;

use super::{Inputs, OwnRun, StackFacts, Waits, backoff, cycle, deletion, is_deleted, unfinished, unready};
use crate::{policy, status::Cause};

/// The state of a Stack.
///
/// Nothing stores it. It follows from the status, in which the ended Runs are accounted for, and from the other facts.
/// "Next" names the states that the machine itself leads to; a change from outside can lead to any other.
#[derive(Clone, Debug, PartialEq)]
pub enum StackState<'a> {
    /// The Stack has no finalizer, so nothing may be created for it. Next: `Outdated`, once it has the finalizer.
    Unclaimed,
    /// Its dependencies form a circle, a Policy does not allow it, or its Workspace or the state of its name belongs to somebody else. Next: none until a person corrects it.
    Blocked(Cause),
    /// A Run that applies a revision is unfinished. Next: `Applied` when it succeeds; `Held`, `Retrying`, `RollbackDue`,
    /// `Reverted` or `RollbackFailed` when it does not, as `spec.onFailure` says; `Outdated` when a newer revision takes
    /// its place.
    Running(OwnRun<'a>),
    /// A Run that applies the last good revision again is unfinished. Next: `Reverted` or `RollbackFailed`; `RollbackDue`
    /// when the Run was deleted; `Applied` or `Outdated` when the inputs have changed meanwhile.
    RollingBack(OwnRun<'a>),
    /// A drift check is unfinished. Next: `Applied`, or `Outdated` when a newer revision takes its place.
    Checking(OwnRun<'a>),
    /// `spec.suspend` is true and no Run is unfinished. Next: none until a person resumes the Stack.
    Suspended { applied: bool },
    /// The source or a variable cannot be resolved. Next: none until that changes.
    Unresolved(Cause),
    /// The files of the source are being fetched. Next: none until they are there.
    Fetching,
    /// Stacks that this one needs are not Ready. Next: none until they are.
    Waiting(Vec<Waits>),
    /// The newest revision is not known yet, and the last known one is applied. Next: none until it is known.
    Unchanged,
    /// The newest revision is to be applied. Next: `Running`.
    Outdated(Snapshot),
    /// The newest revision is applied. Next: `Checking` when a drift check is due; `Running` when drift is to be
    /// corrected.
    Applied(Snapshot),
    /// The newest revision failed or was rejected, and nothing follows by itself. Next: none until the Stack changes.
    Held(Cause),
    /// The newest revision failed and is tried again later. Next: `Outdated`, at that time.
    Retrying { cause: Cause, attempt: u32, at: Timestamp },
    /// The newest revision failed, and the last good one is to be applied again. Next: `RollingBack`.
    RollbackDue(Snapshot),
    /// The last good revision is applied instead of the newest. Next: none until the Stack changes.
    Reverted { to: Snapshot, cause: Cause },
    /// The newest revision failed, and so did the rollback, or there is none to roll back to. Next: none until the Stack
    /// changes.
    RollbackFailed(Cause),

    /// The Stack is deleted and has no finalizer. An end.
    Released,
    /// The Stack is deleted and its infrastructure stays. Next: `Released`.
    Orphaned,
    /// The Stack is deleted and other Stacks still need it. Next: none until those are deleted.
    WaitingForDependents(Vec<String>),
    /// The Stack is deleted and a Run from before that is unfinished. Next: `DestroyDue`, or `Destroyed` when nothing
    /// exists.
    Stopping(OwnRun<'a>),
    /// The Run that destroys the infrastructure is unfinished. Next: `Destroyed` when it succeeds; `DestroyRetrying` or
    /// `DestroyHeld` when it does not; `DestroyDue` when it was deleted.
    Destroying(OwnRun<'a>),
    /// The Stack is deleted while `spec.suspend` is true. Next: none until a person resumes or releases the Stack.
    DestroySuspended,
    /// The infrastructure is to be destroyed, with this snapshot or with the files of the Workspace. Next: `Destroying`.
    DestroyDue(Option<Snapshot>),
    /// The destruction failed and is tried again later. Next: `DestroyDue`, at that time.
    DestroyRetrying { failure: Box<FailureStatus>, at: Timestamp },
    /// The destruction was rejected by a person. Next: none until a person asks for another attempt.
    DestroyHeld(Box<FailureStatus>),
    /// Nothing is left to destroy. Next: `Released`, once that is recorded in the status.
    Destroyed { recorded: bool },
}

/// The name of a [`StackState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackStateName {
    Unclaimed,
    Blocked,
    Running,
    RollingBack,
    Checking,
    Suspended,
    Unresolved,
    Fetching,
    Waiting,
    Unchanged,
    Outdated,
    Applied,
    Held,
    Retrying,
    RollbackDue,
    Reverted,
    RollbackFailed,
    Released,
    Orphaned,
    WaitingForDependents,
    Stopping,
    Destroying,
    DestroySuspended,
    DestroyDue,
    DestroyRetrying,
    DestroyHeld,
    Destroyed,
}

/// The transitions that the machine and its Runs cause. The module documentation shows this table.
pub const TRANSITIONS: &[(StackStateName, &[StackStateName])] = {
    use StackStateName as S;
    &[
        (S::Unclaimed, &[S::Outdated]),
        (S::Outdated, &[S::Running]),
        (S::Running, &[S::Applied, S::Outdated, S::Held, S::Retrying, S::RollbackDue, S::Reverted, S::RollbackFailed]),
        (S::Applied, &[S::Running, S::Checking]),
        (S::Checking, &[S::Applied, S::Outdated]),
        (S::Retrying, &[S::Outdated]),
        (S::RollbackDue, &[S::RollingBack]),
        (S::RollingBack, &[S::Reverted, S::RollbackFailed, S::RollbackDue, S::Applied, S::Outdated]),
        (S::Stopping, &[S::DestroyDue, S::Destroyed]),
        (S::DestroyDue, &[S::Destroying]),
        (S::Destroying, &[S::Destroyed, S::DestroyRetrying, S::DestroyHeld, S::DestroyDue]),
        (S::DestroyRetrying, &[S::DestroyDue]),
        (S::Destroyed, &[S::Released]),
    ]
};

impl<'a> StackState<'a> {
    /// Reads the state. The ended Runs are accounted for in `status`.
    #[must_use]
    pub fn read(facts: &StackFacts<'a>, status: &StackStatus, now: Timestamp) -> Self {
        let claimed = is_claimed(facts);
        if is_deleted(facts.stack) {
            return if claimed { deletion::read(facts, status, now) } else { Self::Released };
        }
        if !claimed {
            return Self::Unclaimed;
        }
        if let Some(cause) = blocked(facts) {
            return Self::Blocked(cause);
        }
        match unfinished(facts) {
            Some(run) => match run.purpose {
                Purpose::Drift => Self::Checking(run),
                Purpose::Rollback => Self::RollingBack(run),
                Purpose::Apply | Purpose::Correct | Purpose::Destroy => Self::Running(run),
            },
            None => at_rest(facts, status, now),
        }
    }

    #[must_use]
    pub fn name(&self) -> StackStateName {
        match self {
            Self::Unclaimed => StackStateName::Unclaimed,
            Self::Blocked(_) => StackStateName::Blocked,
            Self::Running(_) => StackStateName::Running,
            Self::RollingBack(_) => StackStateName::RollingBack,
            Self::Checking(_) => StackStateName::Checking,
            Self::Suspended { .. } => StackStateName::Suspended,
            Self::Unresolved(_) => StackStateName::Unresolved,
            Self::Fetching => StackStateName::Fetching,
            Self::Waiting(_) => StackStateName::Waiting,
            Self::Unchanged => StackStateName::Unchanged,
            Self::Outdated(_) => StackStateName::Outdated,
            Self::Applied(_) => StackStateName::Applied,
            Self::Held(_) => StackStateName::Held,
            Self::Retrying { .. } => StackStateName::Retrying,
            Self::RollbackDue(_) => StackStateName::RollbackDue,
            Self::Reverted { .. } => StackStateName::Reverted,
            Self::RollbackFailed(_) => StackStateName::RollbackFailed,
            Self::Released => StackStateName::Released,
            Self::Orphaned => StackStateName::Orphaned,
            Self::WaitingForDependents(_) => StackStateName::WaitingForDependents,
            Self::Stopping(_) => StackStateName::Stopping,
            Self::Destroying(_) => StackStateName::Destroying,
            Self::DestroySuspended => StackStateName::DestroySuspended,
            Self::DestroyDue(_) => StackStateName::DestroyDue,
            Self::DestroyRetrying { .. } => StackStateName::DestroyRetrying,
            Self::DestroyHeld(_) => StackStateName::DestroyHeld,
            Self::Destroyed { .. } => StackStateName::Destroyed,
        }
    }
}

/// Whether the Stack has the finalizer.
pub(super) fn is_claimed(facts: &StackFacts<'_>) -> bool {
    facts.stack.finalizers().iter().any(|held| held == finalizer::STACK)
}

/// What a person has to correct before anything else can happen.
pub(super) fn blocked(facts: &StackFacts<'_>) -> Option<Cause> {
    if let Some(names) = cycle(facts.stack, facts.related) {
        let circle = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" -> ");
        return Some(Cause::new(
            reason::DEPENDENCY_CYCLE,
            format!("These Stacks depend on each other: {circle}. Remove one of the references."),
        ));
    }
    let violations = facts.policy.check_stack(facts.stack);
    if !violations.is_empty() {
        return Some(Cause::new(reason::POLICY_VIOLATION, policy::message(&violations)));
    }
    let (name, namespace) = (facts.stack.name_any(), facts.stack.namespace().unwrap_or_default());
    let take_over = format!(
        "let the Stack take it over with its state, and destroy what its module does not declare: kubectl label workspace {name} -n {namespace} {}={name}",
        label::STACK,
    );
    let message = match facts.workspace {
        Some(_) if has_workspace(facts) => return None,
        Some(_) => format!(
            "A Workspace `{name}` exists that no Stack has created. Rename the Stack, or {take_over}. To do without what the Workspace has made: knoll destroy -w {name} -n {namespace}, then knoll workspace delete {name} -n {namespace}"
        ),
        None => {
            let left = foreign_state(facts)?;
            format!(
                "The state of an earlier Workspace `{name}` exists, and it has resources: {}. Rename the Stack; or create that Workspace again (knoll workspace new {name} -n {namespace}) and {take_over}. To forget the resources, which are not destroyed: kubectl delete secret {} -n {namespace}",
                left.resources,
                names::state_secret(&name),
            )
        }
    };
    Some(Cause::new(reason::OBJECT_CONFLICT, message))
}

/// Whether the Workspace of the Stack's name is for the Stack, or was that of an earlier Stack of this name.
pub(super) fn has_workspace(facts: &StackFacts<'_>) -> bool {
    facts.workspace.is_some_and(|workspace| workspace.labels().get(label::STACK) == Some(&facts.stack.name_any()))
}

/// The state with resources that a Workspace has left behind and that a Stack which has never started a Run cannot have
/// made: its first apply would destroy whatever its module does not declare.
fn foreign_state<'a>(facts: &StackFacts<'a>) -> Option<&'a StateSummary> {
    let is_new = facts.stack.status.as_ref().is_none_or(|status| status.runs == 0);
    facts.state.filter(|state| is_new && state.resources > 0)
}

/// Whether this snapshot is what exists.
pub(super) fn is_applied(status: &StackStatus, newest: &Snapshot) -> bool {
    status.revision.as_ref() == Some(&newest.revision)
        && status.attempted.is_none()
        && failure_of(status, newest).is_none()
}

/// The failure of the revision to be applied, if it has failed.
pub(super) fn failure_of<'s>(status: &'s StackStatus, newest: &Snapshot) -> Option<&'s FailureStatus> {
    let failure = status.failure.as_ref()?;
    (failure.purpose != Purpose::Destroy && failure.revision == newest.revision).then_some(failure)
}

/// The state of a Stack without an unfinished Run.
fn at_rest<'a>(facts: &StackFacts<'a>, status: &StackStatus, now: Timestamp) -> StackState<'a> {
    let newest = facts.inputs.snapshot();
    if facts.stack.spec.suspend {
        return StackState::Suspended { applied: newest.is_some_and(|newest| is_applied(status, newest)) };
    }
    let Some(newest) = newest else {
        return unresolved(facts, status);
    };
    if is_applied(status, newest) {
        return StackState::Applied(newest.clone());
    }
    match failure_of(status, newest) {
        Some(failure) => failed(facts, status, newest, failure, now),
        None => outdated(facts, newest),
    }
}

/// The state of a Stack whose newest revision is not known.
fn unresolved<'a>(facts: &StackFacts<'a>, status: &StackStatus) -> StackState<'a> {
    let is_ready = status.phase == StackPhase::Ready && status.observed_generation == facts.stack.metadata.generation;
    match facts.inputs {
        Inputs::Unresolved(cause) => StackState::Unresolved(cause.clone()),
        Inputs::Fetching if is_ready => StackState::Unchanged,
        Inputs::Fetching => StackState::Fetching,
        Inputs::Waiting | Inputs::Resolved { .. } => {
            let waits = unready(facts.stack, facts.related);
            // A dependency at work does not make a Ready Stack unready; one that is stalled does.
            let stalled = waits.iter().any(|wait| wait.is_stuck);
            if is_ready && !stalled { StackState::Unchanged } else { StackState::Waiting(waits) }
        }
    }
}

fn outdated<'a>(facts: &StackFacts<'a>, newest: &Snapshot) -> StackState<'a> {
    let waits = unready(facts.stack, facts.related);
    if waits.is_empty() { StackState::Outdated(newest.clone()) } else { StackState::Waiting(waits) }
}

/// The state of a Stack whose newest revision has failed.
fn failed<'a>(
    facts: &StackFacts<'a>,
    status: &StackStatus,
    newest: &Snapshot,
    failure: &FailureStatus,
    now: Timestamp,
) -> StackState<'a> {
    let spec = &facts.stack.spec;
    let cause = Cause::new(failure.reason.clone(), failure.message.clone());
    // A person cancelled the Run or discarded its plan.
    if failure.phase != RunPhase::Failed {
        return StackState::Held(cause);
    }
    let on_failure = if failure.atom.is_some() { OnFailure::Rollback } else { spec.on_failure };
    match on_failure {
        OnFailure::Hold => StackState::Held(cause),
        OnFailure::Retry if failure.count > spec.retry_limit.unwrap_or(StackSpec::DEFAULT_RETRY_LIMIT) => {
            let message = match failure.count {
                0 | 1 => cause.message,
                many => format!("{many} runs failed. The last one: {}", cause.message),
            };
            StackState::Held(Cause::new(cause.reason, message))
        }
        OnFailure::Retry => match backoff::retry_at(spec, failure).filter(|at| *at > now) {
            Some(at) => StackState::Retrying { cause, attempt: failure.count.saturating_add(1), at },
            None => outdated(facts, newest),
        },
        OnFailure::Rollback => rollback(status, failure, cause),
    }
}

fn rollback<'a>(status: &StackStatus, failure: &FailureStatus, cause: Cause) -> StackState<'a> {
    match status.applied() {
        _ if failure.rollback_failed => StackState::RollbackFailed(cause),
        Some(good) if status.attempted.is_some() => StackState::RollbackDue(good),
        // The Run failed before it changed anything.
        Some(good) => StackState::Reverted { to: good, cause },
        None => {
            let message = format!("There is no earlier revision to roll back to. {}", cause.message);
            StackState::RollbackFailed(Cause::new(cause.reason, message))
        }
    }
}
