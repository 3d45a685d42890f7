//! The machine of a Stack: from what is seen to its next status and what to do.
//!
//! ```text
//! Pending -> Waiting -> Running -> Ready -> Running (a newer revision) ...
//!                       Running -> Review -> Running | Held
//!                       Running -> Held | Retrying | Rollback -> Reverted | Failure
//! any -> Destroying (deleted), Suspended
//! ```
//!
//! *Guarantees.* A Stack has one unfinished Run at a time. A revision that is applied gives no Run, however often it is
//! looked at and whoever looks. The end of each Run is accounted for once. Nothing is let go of while something that it
//! made may exist, unless a person says so. Deciding again on the same facts decides the same.

mod deletion;
mod drift;
mod forsake;
mod graph;
mod launch;
mod revision;
mod settle;
mod tell;

use jiff::Timestamp;
use knoll_api::{
    Atom,
    names::{annotation, finalizer, label, purpose, reason},
    run::{Run, RunPhase},
    stack::{FailureStatus, Fetched, OnFailure, Snapshot, Stack, StackPhase, StackSpec, StackStatus},
    workspace::Workspace,
};
use kube::{Resource, ResourceExt};

pub(crate) use graph::wait_for;
pub use graph::{Waits, cycle, dependants, needs, unready};
pub use launch::{owner_annotations, owner_labels, workspace};
pub(crate) use revision::digest;
pub use revision::{outputs_digest, revision, selected, variables_digest};

use crate::status::Cause;
use tell::Mood;

/// The longest wait between two attempts.
const LONGEST_BACKOFF: std::time::Duration = std::time::Duration::from_secs(600);

/// Everything that a Stack's next status depends on.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The Stack.
    pub stack: &'a Stack,
    /// What its source and its variables come to now.
    pub inputs: &'a Inputs,
    /// The Workspace of its name, whoever made it.
    pub workspace: Option<&'a Workspace>,
    /// The Runs that it has started, in any order.
    pub runs: &'a [&'a Run],
    /// Whether the Run that its status names last is gone.
    pub last_run_is_gone: bool,
    /// The digest of the state that is kept, and how many resources it holds.
    pub state: Option<(&'a str, u32)>,
    /// Whether the Secret that its outputs are wanted in is there.
    pub outputs_are_there: bool,
    /// Every Stack of the namespace but this one.
    pub others: &'a [&'a Stack],
    /// The Atom that it goes back with.
    pub atom: Option<&'a Atom>,
    /// What is known of a source outside of the cluster; nothing for any other source.
    pub elsewhere: Option<&'a Elsewhere>,
}

/// What is known of a source outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// What was last fetched.
    pub fetched: Option<Fetched>,
    /// Why nothing newer is known.
    pub trouble: Option<String>,
    /// When to look again.
    pub next: Option<Timestamp>,
}

/// What the source and the variables of a Stack come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// They can be told.
    Resolved {
        /// The revision that they make.
        snapshot: Snapshot,
        /// Where the files come from: a commit, or the version of a ConfigMap.
        source: Option<String>,
    },
    /// They cannot be told yet.
    Unresolved(Cause),
    /// They are outputs of Stacks that are not Ready.
    Waiting,
    /// The files are on their way.
    Fetching,
}

/// What to do, each safe to repeat.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Hold the Stack, so that it cannot go while something of it exists.
    AddFinalizer,
    /// Make the Workspace what [`workspace`] says.
    ApplyWorkspace,
    /// Keep the files and the variables of the revision that the inputs make.
    Keep,
    /// Create this Run.
    Start(Box<Run>),
    /// Tell a Run that has not started, or waits for a decision, that a newer revision took its place.
    Supersede(String),
    /// Stop a Run.
    Cancel(String),
    /// Read the outputs from the state, and write them where they are wanted.
    ReadOutputs,
    /// Delete what the Stack has made in the cluster.
    CleanUp,
    /// Let the Stack go.
    RemoveFinalizer,
}

/// What follows from what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The Stack's next status.
    pub status: StackStatus,
    /// What to do before the status is written, in this order.
    pub actions: Vec<Action>,
    /// When to look again although nothing has changed.
    pub requeue_at: Option<Timestamp>,
}

impl Decision {
    fn keep(status: StackStatus) -> Self {
        Self { status, actions: Vec::new(), requeue_at: None }
    }

    fn then(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }

    fn at(mut self, time: Option<Timestamp>) -> Self {
        self.requeue_at = [self.requeue_at, time].into_iter().flatten().min();
        self
    }
}

/// Whether an object was made by this Stack.
#[must_use]
pub fn is_owned<K: Resource>(object: &K, stack: &Stack) -> bool {
    object.labels().get(label::STACK) == stack.metadata.name.as_ref()
        && object.annotations().get(annotation::STACK_UID) == stack.metadata.uid.as_ref()
}

/// Whether the Stack goes without its infrastructure being destroyed, because a person says so.
#[must_use]
pub fn is_let_go(stack: &Stack) -> bool {
    stack.annotations().contains_key(annotation::FORCE_ORPHAN)
}

/// Decides what follows from what was seen.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Decision {
    let stack = seen.stack;
    let mut status = stack.status.clone().unwrap_or_default();
    let mut runs: Vec<&Run> = seen.runs.to_vec();
    runs.sort_by_key(|run| (number(run), run.name_any()));
    settle::all(seen, &runs, &mut status, now);
    tell::fetched(&mut status, stack, seen.elsewhere, now);

    let deleted = stack.metadata.deletion_timestamp.is_some();
    if !stack.finalizers().iter().any(|held| held == finalizer::STACK) {
        let next = Decision::keep(stack.status.clone().unwrap_or_default());
        return if deleted { next } else { next.then(Action::AddFinalizer) };
    }
    let unfinished: Vec<&Run> = runs.iter().filter(|run| !phase(run).is_finished()).copied().collect();
    let mut decision = if deleted {
        deletion::decide(seen, status, &unfinished, now)
    } else {
        match (refusal(seen), unfinished.last()) {
            (Some(cause), _) => stuck(seen, status, StackPhase::Waiting, &cause, now),
            (None, Some(run)) => under_way(seen, status, run, now),
            (None, None) => at_rest(seen, status, now),
        }
    };
    if !deleted {
        decision = decision.at(seen.elsewhere.and_then(|elsewhere| elsewhere.next));
    }
    // Whoever started two in a row was interrupted in between; only the newest counts.
    for old in unfinished.iter().rev().skip(1).filter(|run| is_stoppable(run)) {
        decision.actions.push(Action::Supersede(old.name_any()));
    }
    decision
}

/// What makes every further step pointless.
fn refusal(seen: &Observed<'_>) -> Option<Cause> {
    if let Some(names) = cycle(seen.stack, seen.others) {
        let circle = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" -> ");
        return Some(Cause::new(
            reason::DEPENDENCY_CYCLE,
            format!("These Stacks wait for each other: {circle}. Take one of the references out."),
        ));
    }
    let workspace = seen.workspace?;
    let name = workspace.name_any();
    (workspace.labels().get(label::STACK) != Some(&name)).then(|| {
        Cause::new(
            reason::OBJECT_CONFLICT,
            format!(
                "There is a Workspace `{name}` that no Stack has made. Give the Stack another name, delete that Workspace, or let the Stack have it and its state: kubectl label workspace {name} {}={name}",
                label::STACK,
            ),
        )
    })
}

/// A Run of the Stack goes on.
fn under_way(seen: &Observed<'_>, mut status: StackStatus, run: &Run, now: Timestamp) -> Decision {
    let (stack, name, is_for) = (seen.stack, run.name_any(), purpose_of(run));
    let wanted = pend(seen, &mut status);
    let outdated = wanted.is_some_and(|wanted| run.annotations().get(annotation::REVISION) != Some(&wanted.revision));
    if is_for == purpose::DRIFT {
        // A look changes nothing, so the Stack stays what it was.
        let next = Decision::keep(status);
        return if outdated && !stack.spec.suspend { next.then(Action::Cancel(name)) } else { next };
    }
    let message = tell::of_run(run);
    let (phase, why) = match (phase(run), is_for) {
        (RunPhase::Review, _) => (StackPhase::Review, reason::WAITING_FOR_APPROVAL),
        (_, purpose::ROLLBACK) => (StackPhase::Rollback, reason::ROLLING_BACK),
        _ => (StackPhase::Running, reason::PROGRESSING),
    };
    tell::set(&mut status, stack, phase, Mood::Working, &Cause::new(why, message), now);
    let next = Decision::keep(status);
    if outdated
        && is_stoppable(run)
        && is_for != purpose::ROLLBACK
        && !run.annotations().contains_key(annotation::SUPERSEDED)
    {
        return next.then(Action::Supersede(name));
    }
    next
}

/// No Run of the Stack goes on.
fn at_rest(seen: &Observed<'_>, mut status: StackStatus, now: Timestamp) -> Decision {
    let stack = seen.stack;
    forsake::by_its_atom(seen, &mut status, now);
    let wanted = pend(seen, &mut status).cloned();
    let is_applied = wanted.as_ref().is_some_and(|wanted| {
        status.revision.as_ref() == Some(&wanted.revision) && status.attempted.is_none() && !has_failed(&status, wanted)
    });
    if stack.spec.suspend {
        let cause = Cause::new(reason::SUSPENDED, "No runs are started while spec.suspend is true.");
        tell::set(&mut status, stack, StackPhase::Suspended, Mood::Paused { ready: is_applied }, &cause, now);
        return Decision::keep(status);
    }
    let Some(wanted) = wanted else {
        return unresolved(seen, status, now);
    };
    if is_applied {
        return applied(seen, status, &wanted, now);
    }
    if let Some(failure) = status.failure.clone().filter(|failure| failure.revision == wanted.revision) {
        return failed(seen, status, &wanted, &failure, now);
    }
    start(seen, status, purpose::APPLY, &wanted, now)
}

/// The files or the variables are not known.
fn unresolved(seen: &Observed<'_>, status: StackStatus, now: Timestamp) -> Decision {
    let waits = unready(seen.stack, seen.others);
    match seen.inputs {
        Inputs::Unresolved(cause) => stuck(seen, status, StackPhase::Waiting, cause, now),
        Inputs::Fetching => {
            // Nobody knows of anything newer than what is applied.
            if status.phase == StackPhase::Ready && status.observed_generation == seen.stack.metadata.generation {
                return Decision::keep(status);
            }
            let mut status = status;
            let cause = Cause::new(reason::FETCHING, "Its files are being fetched.");
            tell::set(&mut status, seen.stack, StackPhase::Waiting, Mood::Working, &cause, now);
            Decision::keep(status)
        }
        // While a dependency is at work, nobody knows of anything newer than what is applied.
        Inputs::Waiting | Inputs::Resolved { .. } => {
            let same = status.observed_generation == seen.stack.metadata.generation;
            let waiting_for_good = waits.iter().any(|wait| wait.is_stuck);
            if status.phase == StackPhase::Ready && same && !waiting_for_good {
                return Decision::keep(status);
            }
            waiting(seen, status, &waits, now)
        }
    }
}

fn waiting(seen: &Observed<'_>, mut status: StackStatus, waits: &[Waits], now: Timestamp) -> Decision {
    let all: Vec<&str> = waits.iter().map(|wait| wait.why.as_str()).collect();
    let cause = Cause::new(reason::WAITING_FOR_DEPENDENCIES, all.join(" "));
    tell::set(&mut status, seen.stack, StackPhase::Waiting, Mood::Working, &cause, now);
    Decision::keep(status)
}

/// The newest revision is applied.
fn applied(seen: &Observed<'_>, mut status: StackStatus, wanted: &Snapshot, now: Timestamp) -> Decision {
    let stack = seen.stack;
    status.failure = None;
    let run = status.last_run.clone().unwrap_or_default();
    let cause = Cause::new(reason::APPLIED, format!("Revision {} is applied.", tell::short(&wanted.revision)));
    tell::set(&mut status, stack, StackPhase::Ready, Mood::Ready, &cause, now);
    let stale = outputs_are_stale(seen, &status);
    // The Workspace takes note of a run's end by itself; until then its lock is not free.
    let active = seen.workspace.and_then(|workspace| workspace.status.as_ref()?.active.clone());
    let free = active.is_none_or(|active| active == run);
    let next = drift::watch(seen, status, wanted, free, now);
    let next = if stale { next.then(Action::ReadOutputs) } else { next };
    if is_current(seen) { next } else { next.then(Action::ApplyWorkspace) }
}

/// Whether the outputs are others than those that were last read.
fn outputs_are_stale(seen: &Observed<'_>, status: &StackStatus) -> bool {
    let spec = &seen.stack.spec;
    let digest = outputs_digest(seen.state.map(|(digest, _)| digest), spec);
    let missing = spec.outputs.is_some() && !seen.outputs_are_there;
    missing || status.outputs_digest.as_ref() != Some(&digest)
}

/// The newest revision has failed.
fn failed(
    seen: &Observed<'_>,
    mut status: StackStatus,
    wanted: &Snapshot,
    failure: &FailureStatus,
    now: Timestamp,
) -> Decision {
    let stack = seen.stack;
    let cause = Cause::new(failure.reason.clone(), failure.message.clone());
    if failure.phase != RunPhase::Failed {
        return stuck(seen, status, StackPhase::Held, &cause, now);
    }
    let on_failure = if failure.reason == reason::ATOM_FAILED { OnFailure::Rollback } else { stack.spec.on_failure };
    match on_failure {
        OnFailure::Hold => stuck(seen, status, StackPhase::Held, &cause, now),
        OnFailure::Retry => {
            let limit = stack.spec.retry_limit.unwrap_or(StackSpec::DEFAULT_RETRY_LIMIT);
            if failure.count > limit {
                let message = format!("{} runs failed, the last one so: {}", failure.count, cause.message);
                return stuck(seen, status, StackPhase::Held, &Cause::new(cause.reason, message), now);
            }
            let due = retry_at(stack, failure);
            if due.is_none_or(|due| due <= now) {
                return start(seen, status, purpose::APPLY, wanted, now);
            }
            let when = due.map(|due| due.to_string()).unwrap_or_default();
            let message = format!("Attempt {} follows at {when}. {}", failure.count.saturating_add(1), cause.message);
            tell::set(
                &mut status,
                stack,
                StackPhase::Retrying,
                Mood::Working,
                &Cause::new(reason::RETRYING, message),
                now,
            );
            Decision::keep(status).at(due)
        }
        OnFailure::Rollback => rollback(seen, status, cause, now),
    }
}

fn rollback(seen: &Observed<'_>, status: StackStatus, cause: Cause, now: Timestamp) -> Decision {
    if status.phase == StackPhase::Failure {
        let cause = Cause::new(reason::ROLLBACK_FAILED, cause.message);
        return stuck(seen, status, StackPhase::Failure, &cause, now);
    }
    let good = last_good(&status);
    match (good, status.attempted.is_some()) {
        (Some(good), true) => start(seen, status, purpose::ROLLBACK, &good, now),
        (Some(good), false) => {
            let good = tell::short(&good.revision);
            let message = format!("Revision {good} is applied instead of the newest. {}", cause.message);
            let next = stuck(seen, status, StackPhase::Reverted, &Cause::new(reason::ROLLED_BACK, message), now);
            if outputs_are_stale(seen, &next.status) { next.then(Action::ReadOutputs) } else { next }
        }
        (None, _) => {
            let message = format!("There is no earlier revision to go back to. {}", cause.message);
            stuck(seen, status, StackPhase::Failure, &Cause::new(reason::ROLLBACK_FAILED, message), now)
        }
    }
}

/// Starts a Run, unless what it depends on is not there.
fn start(seen: &Observed<'_>, mut status: StackStatus, is_for: &str, snapshot: &Snapshot, now: Timestamp) -> Decision {
    let stack = seen.stack;
    let waits = unready(stack, seen.others);
    if is_for == purpose::APPLY && !waits.is_empty() {
        return waiting(seen, status, &waits, now);
    }
    let next_number = status.runs.saturating_add(1);
    let run = launch::run(stack, next_number, is_for, snapshot);
    status.runs = next_number;
    status.last_run = Some(run.name_any());
    let short = tell::short(&snapshot.revision);
    let (phase, why, message) = match is_for {
        purpose::ROLLBACK => {
            let failure = status.failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
            (StackPhase::Rollback, reason::ROLLING_BACK, format!("Revision {short} is applied again. {failure}"))
        }
        purpose::DRIFT => (status.phase, reason::PROGRESSING, String::new()),
        purpose::DESTROY => (StackPhase::Destroying, reason::DESTROYING, "It is being destroyed.".to_owned()),
        _ => (StackPhase::Running, reason::PROGRESSING, format!("Revision {short} is on the way.")),
    };
    if is_for != purpose::DRIFT {
        let message = format!("{message} See run `{}`.", run.name_any());
        tell::set(&mut status, stack, phase, Mood::Working, &Cause::new(why, message), now);
    }
    let mut next = Decision::keep(status);
    if is_for == purpose::APPLY {
        next = next.then(Action::Keep);
    }
    if !is_current(seen) {
        next = next.then(Action::ApplyWorkspace);
    }
    next.then(Action::Start(Box::new(run)))
}

fn stuck(seen: &Observed<'_>, mut status: StackStatus, phase: StackPhase, cause: &Cause, now: Timestamp) -> Decision {
    tell::set(&mut status, seen.stack, phase, Mood::Stuck, cause, now);
    Decision::keep(status)
}

/// Notes what is to be applied, if that is not applied yet.
fn pend<'a>(seen: &Observed<'a>, status: &mut StackStatus) -> Option<&'a Snapshot> {
    let Inputs::Resolved { snapshot, source } = seen.inputs else {
        return None;
    };
    let is_new = status.revision.as_ref() != Some(&snapshot.revision);
    status.pending_revision = is_new.then(|| snapshot.revision.clone());
    status.source_revision.clone_from(source);
    Some(snapshot)
}

fn has_failed(status: &StackStatus, wanted: &Snapshot) -> bool {
    status.failure.as_ref().is_some_and(|failure| failure.revision == wanted.revision)
}

/// The files and variables of the revision that is applied.
fn last_good(status: &StackStatus) -> Option<Snapshot> {
    Some(Snapshot {
        revision: status.revision.clone()?,
        bundle: status.bundle.clone()?,
        variables: status.variables.clone()?,
    })
}

/// Whether the Workspace is what the Stack wants it to be.
fn is_current(seen: &Observed<'_>) -> bool {
    let wanted = workspace(seen.stack);
    seen.workspace.is_some_and(|found| found.spec == wanted.spec && is_owned(found, seen.stack))
}

/// When a failed run may be followed by another.
fn retry_at(stack: &Stack, failure: &FailureStatus) -> Option<Timestamp> {
    let first = stack.spec.retry_backoff.as_ref().map_or(StackSpec::DEFAULT_RETRY_BACKOFF, |backoff| backoff.get());
    let wait = first.saturating_mul(2_u32.saturating_pow(failure.count.saturating_sub(1))).min(LONGEST_BACKOFF);
    failure.at.as_ref()?.0.checked_add(wait).ok()
}

/// Which one of its Stack's Runs it is.
fn number(run: &Run) -> u32 {
    run.annotations().get(annotation::NUMBER).and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn phase(run: &Run) -> RunPhase {
    run.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

fn purpose_of(run: &Run) -> &str {
    run.labels().get(label::PURPOSE).map(String::as_str).unwrap_or_default()
}

/// Whether nothing is lost when a newer revision takes its place: it waits behind another, or for a person.
///
/// A Run that was just created is left alone: it starts in a moment, and in a burst of changes each would replace the
/// one before.
fn is_stoppable(run: &Run) -> bool {
    matches!(phase(run), RunPhase::Queued | RunPhase::Review)
}

#[cfg(test)]
mod tests;
