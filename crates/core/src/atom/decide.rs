//! The decision on an Atom, state by state.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    atom::{Atom, AtomCancel, AtomRevision, AtomStatus, JournalStage},
    names::{condition, finalizer, reason},
};
use kube::ResourceExt;

use super::{
    AtomAction, AtomEvent, AtomFacts, AtomState, Desired,
    conditions::{self, Kstatus, unready},
    machine,
    settle::{failure, interrupt, reverted},
};
use crate::{conditions as all_conditions, machine as machines, status::Cause};

/// The time until inputs that the Atom's account may not read are read again.
const FORBIDDEN_AGAIN: Duration = Duration::from_secs(10);

type Decision = machines::Decision<AtomStatus, AtomAction>;

/// Decides on an Atom.
#[must_use]
pub fn decide(facts: &AtomFacts<'_>, now: Timestamp) -> Decision {
    let atom = facts.atom;
    let status = atom.status.clone().unwrap_or_default();
    let held = atom.finalizers().iter().any(|held| held == finalizer::ATOM);
    if atom.metadata.deletion_timestamp.is_some() {
        return if held { deletion(atom, status, now) } else { Decision::status(status) };
    }
    if !held {
        return Decision::act(AtomAction::AddFinalizer);
    }
    match AtomState::of(&status) {
        AtomState::Pending => pending(facts, status, now),
        AtomState::Checking => updating(facts, status, AtomAction::Prepare, now),
        AtomState::Applying => updating(facts, status, AtomAction::Apply, now),
        AtomState::Waiting => updating(facts, status, AtomAction::CheckReadiness, now),
        AtomState::Pruning => updating(facts, status, AtomAction::Prune, now),
        AtomState::Superseded if cancelled(atom, &atom.spec.version).is_none() => become_pending(atom, status, now),
        AtomState::Superseded | AtomState::Cancelled | AtomState::Deadline | AtomState::Error => {
            begin_rollback(atom, status, now)
        }
        AtomState::Rollback => rollback(atom, status, now),
        AtomState::Running | AtomState::Reverted | AtomState::Failure => settled(facts, status, now),
    }
}

/// An update is due and waits for what it needs.
fn pending(facts: &AtomFacts<'_>, mut status: AtomStatus, now: Timestamp) -> Decision {
    let atom = facts.atom;
    let unfinished = status.journal.is_some();
    let is_cancelled = cancelled(atom, &atom.spec.version).is_some();
    if is_cancelled && unfinished {
        return begin_rollback(atom, status, now);
    }
    match facts.desired {
        Desired::Revision(revision) if !is_cancelled => {
            machine::apply(&mut status, AtomEvent::Started);
            status.attempts = status.attempts.saturating_add(1);
            status.started_at = Some(MicroTime(now));
            status.target_version = Some(atom.spec.version.clone());
            status.tried = Some(revision.clone());
            status.failure = None;
            conditions::in_progress(&mut status, atom, now);
            Decision::status(status)
        }
        Desired::Revision(_) => {
            let message = format!(
                "The update to version `{}` is cancelled. Remove spec.cancel to start it, or set another spec.version.",
                atom.spec.version
            );
            conditions::set(&mut status, atom, Kstatus::Stalled, &Cause::new(reason::CANCELLED, message), now);
            Decision::status(status)
        }
        Desired::Unresolved { cause, stalled } => {
            // An update that is half done waits for its successor no longer than its own deadline.
            let due = ends_at(&status, atom.spec.deadline.get()).filter(|_| unfinished);
            if due.is_some_and(|due| due <= now) {
                let cause = Cause::new(reason::DEADLINE_EXCEEDED, cause.message.clone());
                status.failure = Some(failure(AtomState::Deadline, &cause));
                return begin_rollback(atom, status, now);
            }
            let kstatus = if *stalled { Kstatus::Stalled } else { Kstatus::Reconciling };
            conditions::set(&mut status, atom, kstatus, cause, now);
            // Nothing tells that a right was granted.
            let again = now.checked_add(FORBIDDEN_AGAIN).ok().filter(|_| cause.reason == reason::FORBIDDEN);
            Decision::status(status).at(due.into_iter().chain(again).min())
        }
    }
}

/// Nothing is under way.
fn settled(facts: &AtomFacts<'_>, mut status: AtomStatus, now: Timestamp) -> Decision {
    let atom = facts.atom;
    if status.journal.as_ref().is_some_and(|journal| journal.stage == JournalStage::Done) {
        return Decision::act(AtomAction::CleanUp);
    }
    let changed = match facts.desired {
        Desired::Revision(revision) => is_new(&status, revision),
        Desired::Unresolved { .. } => status.target_version.as_ref() != Some(&atom.spec.version),
    };
    // A rollback that failed was tried until its deadline. Its objects stay until another update can really start.
    let can_start = cancelled(atom, &atom.spec.version).is_none() && matches!(facts.desired, Desired::Revision(_));
    if changed && (status.journal.is_none() || can_start) {
        if status.journal.is_some() {
            status.started_at = Some(MicroTime(now));
        }
        return become_pending(atom, status, now);
    }
    conditions::settled(&mut status, atom, now);
    Decision::status(status)
}

/// Whether a revision was not tried yet. The inputs of the last good revision are not new after a rollback: they are what
/// remains when a Stack has rolled back as well.
fn is_new(status: &AtomStatus, revision: &AtomRevision) -> bool {
    let Some(tried) = &status.tried else {
        return true;
    };
    let good = status.good.as_ref().filter(|_| AtomState::of(status) != AtomState::Running);
    let has_same_inputs = |other: &AtomRevision| other.inputs == revision.inputs;
    tried.template != revision.template || !(has_same_inputs(tried) || good.is_some_and(has_same_inputs))
}

/// An update is under way; `action` is its next step.
fn updating(facts: &AtomFacts<'_>, mut status: AtomStatus, action: AtomAction, now: Timestamp) -> Decision {
    let atom = facts.atom;
    let target = status.target_version.clone().unwrap_or_default();
    if cancelled(atom, &target).is_some() {
        let message = format!("The update to version `{target}` was cancelled.");
        let cause = Cause::new(reason::CANCELLED, message);
        interrupt(atom, &mut status, AtomEvent::CancelRequested, &cause, now);
        return Decision::status(status);
    }
    let superseded = match facts.desired {
        Desired::Revision(revision) => !status.tried.as_ref().is_some_and(|tried| is_same(tried, revision)),
        Desired::Unresolved { .. } => target != atom.spec.version,
    };
    if superseded {
        let message = format!("The update to version `{target}` was superseded by a newer one.");
        let cause = Cause::new(reason::SUPERSEDED, message);
        interrupt(atom, &mut status, AtomEvent::RevisionChanged, &cause, now);
        return Decision::status(status);
    }
    let due = ends_at(&status, atom.spec.deadline.get());
    if due.is_none_or(|due| due <= now) {
        let unready = unready(&status.objects).unwrap_or_default();
        let message = format!("Version `{target}` was not ready within {}. {unready}", atom.spec.deadline);
        let cause = Cause::new(reason::DEADLINE_EXCEEDED, message.trim());
        interrupt(atom, &mut status, AtomEvent::DeadlinePassed, &cause, now);
        return Decision::status(status);
    }
    Decision::act(action).at(due)
}

/// Whether two revisions give the same objects. The revisions of Stacks count only through the inputs.
#[must_use]
pub fn is_same(one: &AtomRevision, other: &AtomRevision) -> bool {
    one.template == other.template && one.inputs == other.inputs
}

fn become_pending(atom: &Atom, mut status: AtomStatus, now: Timestamp) -> Decision {
    machine::apply(&mut status, AtomEvent::RevisionChanged);
    let message = format!("The update to version `{}` is pending.", atom.spec.version);
    conditions::set(&mut status, atom, Kstatus::Reconciling, &Cause::new(reason::PENDING, message), now);
    Decision::status(status)
}

fn begin_rollback(atom: &Atom, mut status: AtomStatus, now: Timestamp) -> Decision {
    machine::apply(&mut status, AtomEvent::RollbackStarted);
    status.started_at = Some(MicroTime(now));
    conditions::in_progress(&mut status, atom, now);
    Decision::status(status)
}

/// The last good version is being restored.
fn rollback(atom: &Atom, mut status: AtomStatus, now: Timestamp) -> Decision {
    // Without a journal nothing was written.
    if status.journal.is_none() {
        reverted(atom, &mut status, now);
        return Decision::status(status);
    }
    let target = status.target_version.as_deref().unwrap_or_default();
    if cancelled(atom, target).is_some_and(|cancel| cancel.rollback) {
        machine::apply(&mut status, AtomEvent::CancelRequested);
        status.failure.get_or_insert_default().rollback_cancelled = true;
        conditions::settled(&mut status, atom, now);
        return Decision::status(status);
    }
    let due = ends_at(&status, atom.spec.rollback_deadline.get());
    if due.is_none_or(|due| due <= now) {
        machine::apply(&mut status, AtomEvent::DeadlinePassed);
        conditions::settled(&mut status, atom, now);
        return Decision::status(status);
    }
    Decision::act(AtomAction::Restore).at(due)
}

/// The Atom is being deleted, and its objects with it.
fn deletion(atom: &Atom, mut status: AtomStatus, now: Timestamp) -> Decision {
    if status.objects.is_empty() && status.journal.is_none() {
        return Decision::act(AtomAction::RemoveFinalizer);
    }
    // Later conditions are written by `settle`, with what prevents the deletion.
    let ready = all_conditions::find(&status.conditions, condition::READY);
    if ready.is_none_or(|ready| ready.reason != reason::DELETING) {
        conditions::deleting(&mut status, atom, "", now);
        return Decision::status(status);
    }
    Decision::act(AtomAction::DeleteObjects)
}

/// The request to cancel the update to a version. A request for another version says nothing about this one.
fn cancelled<'a>(atom: &'a Atom, version: &str) -> Option<&'a AtomCancel> {
    atom.spec.cancel.as_ref().filter(|cancel| cancel.version == version)
}

/// When the update or the rollback that is under way has to be done.
fn ends_at(status: &AtomStatus, within: std::time::Duration) -> Option<Timestamp> {
    status.started_at.as_ref()?.0.checked_add(within).ok()
}
