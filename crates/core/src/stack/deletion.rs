//! How a Stack goes: what it made is destroyed first, after everything that needs it.

use jiff::Timestamp;
use knoll_api::{
    names::{annotation, purpose, reason},
    run::{Run, RunPhase},
    stack::{Snapshot, Stack, StackDeletionPolicy, StackPhase, StackStatus},
};
use kube::ResourceExt;

use super::{
    Action, Decision, Observed, dependants, is_let_go, is_stoppable, last_good, phase, purpose_of, retry_at, start,
    stuck,
    tell::{self, Mood},
};
use crate::status::Cause;

/// The name under which failures to destroy are counted. A person who wants another attempt at once changes
/// [`annotation::RECONCILE`].
pub(super) fn attempt(stack: &Stack) -> String {
    let asked = stack.annotations().get(annotation::RECONCILE).map(String::as_str).unwrap_or_default();
    format!("destroy {asked}").trim_end().to_owned()
}

/// Decides what a Stack does that is being deleted.
pub(super) fn decide(seen: &Observed<'_>, status: StackStatus, unfinished: &[&Run], now: Timestamp) -> Decision {
    let stack = seen.stack;
    if is_let_go(stack) {
        return Decision::keep(status).then(Action::RemoveFinalizer);
    }
    let waits = dependants(stack, seen.others);
    if !waits.is_empty() {
        let names: Vec<String> = waits.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("It goes after the Stacks that need it: {}. Delete them too.", names.join(", "));
        return working(seen, status, reason::WAITING_FOR_DEPENDENTS, &message, now);
    }
    if let Some(run) = unfinished.last() {
        return last_run(seen, status, run, now);
    }
    if stack.spec.deletion_policy == StackDeletionPolicy::Orphan {
        return Decision::keep(status).then(Action::RemoveFinalizer);
    }
    let Some(kept) = what_exists(seen, &status) else {
        let recorded = stack.status.as_ref().map_or(0, |recorded| recorded.settled);
        if recorded != status.settled {
            // That everything is destroyed has to be written down before what proves it is deleted.
            return working(seen, status, reason::DESTROYING, "Everything is destroyed.", now);
        }
        return Decision::keep(status).then(Action::CleanUp).then(Action::RemoveFinalizer);
    };
    if stack.spec.suspend {
        let message = format!(
            "Nothing is destroyed while spec.suspend is true. Set it to false, or let go of everything: kubectl annotate stack {} {}=yes",
            stack.name_any(),
            annotation::FORCE_ORPHAN,
        );
        return stuck(seen, status, StackPhase::Suspended, &Cause::new(reason::SUSPENDED, message), now);
    }
    let Some(failure) = status.failure.clone().filter(|failure| failure.revision == attempt(stack)) else {
        return start(seen, status, purpose::DESTROY, &kept, now);
    };
    let way_out = format!(
        "To leave everything as it is: kubectl annotate stack {} {}=yes",
        stack.name_any(),
        annotation::FORCE_ORPHAN
    );
    if failure.phase != RunPhase::Failed {
        let message =
            format!("{} To try again, change the annotation {}. {way_out}", failure.message, annotation::RECONCILE);
        return stuck(seen, status, StackPhase::Held, &Cause::new(reason::DESTROY_FAILED, message), now);
    }
    let due = retry_at(stack, &failure);
    if due.is_none_or(|due| due <= now) {
        return start(seen, status, purpose::DESTROY, &kept, now);
    }
    let when = due.map(|due| due.to_string()).unwrap_or_default();
    let message =
        format!("{} Attempt {} follows at {when}. {way_out}", failure.message, failure.count.saturating_add(1));
    working(seen, status, reason::DESTROY_FAILED, &message, now).at(due)
}

/// The status of a Stack that cannot be destroyed because its namespace goes as well.
#[must_use]
pub fn without_namespace(stack: &Stack, now: Timestamp) -> StackStatus {
    let mut status = stack.status.clone().unwrap_or_default();
    let message = format!(
        "Its namespace is being deleted, so no run can be started that would destroy what it made. To leave everything as it is: kubectl annotate stack {} {}=yes",
        stack.name_any(),
        annotation::FORCE_ORPHAN,
    );
    let cause = Cause::new(reason::DESTROY_FAILED, message);
    tell::set(&mut status, stack, StackPhase::Held, Mood::Stuck, &cause, now);
    status
}

/// A Run goes on: the one that destroys, or one that was there before.
fn last_run(seen: &Observed<'_>, mut status: StackStatus, run: &Run, now: Timestamp) -> Decision {
    let name = run.name_any();
    let message = tell::of_run(run);
    match purpose_of(run) {
        purpose::DESTROY => {
            let (next, why) = match phase(run) {
                RunPhase::Review => (StackPhase::Review, reason::WAITING_FOR_APPROVAL),
                _ => (StackPhase::Destroying, reason::DESTROYING),
            };
            tell::set(&mut status, seen.stack, next, Mood::Working, &Cause::new(why, message), now);
            Decision::keep(status)
        }
        purpose::DRIFT => working(seen, status, reason::DESTROYING, &message, now).then(Action::Cancel(name)),
        _ if is_stoppable(run) => {
            working(seen, status, reason::DESTROYING, &message, now).then(Action::Supersede(name))
        }
        // What it makes is known when it has ended, and then it is destroyed.
        _ => working(seen, status, reason::DESTROYING, &message, now),
    }
}

/// What there is to destroy, and with which files; nothing when no run has ever made anything.
fn what_exists(seen: &Observed<'_>, status: &StackStatus) -> Option<Snapshot> {
    let known = status.attempted.clone().or_else(|| last_good(status));
    // A state with resources in it of which the status knows nothing is destroyed with its Workspace's own files.
    known.or_else(|| seen.state.filter(|(_, resources)| *resources > 0).map(|_| Snapshot::default()))
}

fn working(seen: &Observed<'_>, mut status: StackStatus, why: &str, message: &str, now: Timestamp) -> Decision {
    tell::set(&mut status, seen.stack, StackPhase::Destroying, Mood::Working, &Cause::new(why, message), now);
    Decision::keep(status)
}
