//! The machine of an Atom: from what is seen to its next status and what to do, and from what came of that to the status
//! after it.
//!
//! ```text
//! Pending -> Updating -> Running
//!            Updating -> Cancelled | Deadline | Error -> Rollback -> Reverted | Failure
//! Running | Reverted | Failure -> Pending (something new is wanted)
//! Updating -> Cancelled -> Pending (a newer version takes its place)
//! ```
//!
//! *Guarantees.* A status that says what comes next is written before it is done ([`decide`] gives either a new status
//! or something to do). A version that has not reached `Running` is never gone back to: the journal keeps what was there
//! before the first unproven update, until one is proven or undone. Whatever is under way has a deadline.

pub mod fields;
pub mod journal;
pub mod needs;
mod tell;
pub mod template;
pub mod waves;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    atom::{Atom, AtomFailure, AtomJournal, AtomObject, AtomPhase, AtomRevision, AtomStatus, JournalStage},
    names::{condition, finalizer, reason},
};
use kube::ResourceExt;

use crate::{conditions, status::Cause};
use tell::{Mood, unready};

/// The longest message of a failure, in bytes.
const MESSAGE_MAX: usize = 4096;

/// Everything that an Atom's next status depends on.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The Atom.
    pub atom: &'a Atom,
    /// What its spec comes to now.
    pub wanted: &'a Wanted,
}

/// What the spec of an Atom comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The version is there, and so is all that it needs.
    Known(AtomRevision),
    /// Something is missing.
    Unknown {
        /// What.
        cause: Cause,
        /// Whether nothing but a person brings it.
        stuck: bool,
    },
}

/// What to do, each safe to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hold the Atom, so that it cannot go while its objects exist.
    AddFinalizer,
    /// Check the whole set, and keep what it would change. Nothing of it is written.
    Prepare,
    /// Write the objects.
    Write,
    /// See whether the objects are ready.
    Look,
    /// Delete what the version no longer has.
    Prune,
    /// Bring back what was there before.
    Restore,
    /// Delete the journal, and versions that are too old.
    Forget,
    /// Delete the objects.
    Delete,
    /// Let the Atom go.
    RemoveFinalizer,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The set was checked and the journal is kept.
    Prepared {
        /// The Secret of the journal.
        secret_name: String,
        /// The objects of the version.
        objects: Vec<AtomObject>,
    },
    /// It cannot be done, now or later.
    Refused(Cause),
    /// It may be possible later; why it was not.
    Later(String),
    /// Everything is written.
    Written(Vec<AtomObject>),
    /// So the objects are.
    Seen {
        /// All of them.
        objects: Vec<AtomObject>,
        /// Why it will never be ready.
        failed: Option<String>,
    },
    /// Whatever the version no longer has is deleted.
    Pruned,
    /// So far things are back.
    Restored {
        /// The objects that should be there, and those that should not but are.
        objects: Vec<AtomObject>,
    },
    /// The journal is gone.
    Forgotten,
    /// These are not gone yet.
    Deleted {
        /// What is left.
        left: Vec<AtomObject>,
    },
}

/// What follows from what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The Atom's next status. When it differs from the one it has, it is written and nothing is done.
    pub status: AtomStatus,
    /// What to do when the status is written.
    pub action: Option<Action>,
    /// When to look again although nothing has changed.
    pub requeue_at: Option<Timestamp>,
}

impl Decision {
    fn keep(status: AtomStatus) -> Self {
        Self { status, action: None, requeue_at: None }
    }

    fn act(status: AtomStatus, action: Action) -> Self {
        Self { status, action: Some(action), requeue_at: None }
    }

    fn at(self, requeue_at: Option<Timestamp>) -> Self {
        Self { requeue_at, ..self }
    }
}

/// Decides what follows from what was seen.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Decision {
    let atom = seen.atom;
    let status = atom.status.clone().unwrap_or_default();
    let held = atom.finalizers().iter().any(|held| held == finalizer::ATOM);
    if atom.metadata.deletion_timestamp.is_some() {
        return if held { deletion(atom, status, now) } else { Decision::keep(status) };
    }
    if !held {
        return Decision::act(status, Action::AddFinalizer);
    }
    match status.phase {
        AtomPhase::Pending => pending(seen, status, now),
        AtomPhase::Running | AtomPhase::Reverted | AtomPhase::Failure => at_rest(seen, status, now),
        AtomPhase::Updating => updating(seen, status, now),
        AtomPhase::Cancelled | AtomPhase::Deadline | AtomPhase::Error => ended(seen, status, now),
        AtomPhase::Rollback => rollback(atom, status, now),
    }
}

/// The status after an action, and when to look again.
#[must_use]
pub fn settle(atom: &Atom, outcome: Outcome, now: Timestamp) -> AtomStatus {
    let mut status = atom.status.clone().unwrap_or_default();
    let stage = |status: &mut AtomStatus, stage: JournalStage| {
        if let Some(journal) = &mut status.journal {
            journal.stage = stage;
        }
    };
    match outcome {
        Outcome::Prepared { secret_name, objects } => {
            status.journal = Some(AtomJournal { secret_name, stage: JournalStage::Apply });
            status.objects = objects;
            tell::working(&mut status, atom, now);
        }
        Outcome::Refused(Cause { message, .. }) | Outcome::Later(message)
            if atom.metadata.deletion_timestamp.is_some() =>
        {
            tell::deleting(&mut status, atom, &message, now);
        }
        Outcome::Refused(cause) if status.phase == AtomPhase::Updating => {
            fail(atom, &mut status, AtomPhase::Error, cause, now);
        }
        // What cannot be undone is tried again until its deadline: somebody may put it right.
        Outcome::Refused(cause) => tell::say(&mut status, atom, Mood::Working, &cause, now),
        Outcome::Later(message) => {
            let message = format!("{message} It is tried again.");
            tell::say(&mut status, atom, Mood::Working, &Cause::new(reason::RETRYING, message), now);
        }
        Outcome::Written(objects) => {
            stage(&mut status, JournalStage::Wait);
            status.current_version.clone_from(&status.target_version);
            status.objects = objects;
            tell::working(&mut status, atom, now);
        }
        Outcome::Seen { objects, failed } => {
            status.objects = objects;
            match failed {
                Some(message) => {
                    fail(atom, &mut status, AtomPhase::Error, Cause::new(reason::OBJECT_FAILED, message), now);
                }
                None => {
                    if status.objects.iter().all(|object| object.ready) {
                        stage(&mut status, JournalStage::Prune);
                    }
                    tell::working(&mut status, atom, now);
                }
            }
        }
        Outcome::Pruned => {
            stage(&mut status, JournalStage::Done);
            status.phase = AtomPhase::Running;
            status.last_good_version.clone_from(&status.target_version);
            status.current_version.clone_from(&status.target_version);
            status.good.clone_from(&status.tried);
            status.failure = None;
            tell::rest(&mut status, atom, now);
        }
        Outcome::Restored { objects } => {
            let back = objects.iter().all(|object| object.ready);
            status.objects = objects;
            if back {
                reverted(atom, &mut status, now);
            } else {
                tell::working(&mut status, atom, now);
            }
        }
        Outcome::Forgotten => status.journal = None,
        Outcome::Deleted { left } => {
            if left.is_empty() {
                status.journal = None;
            }
            status.objects = left;
            let left = unready(&status.objects).unwrap_or_default();
            tell::deleting(&mut status, atom, &left, now);
        }
    }
    status
}

/// An update is wanted, and waits for what it needs.
fn pending(seen: &Observed<'_>, mut status: AtomStatus, now: Timestamp) -> Decision {
    let atom = seen.atom;
    let unfinished = status.journal.is_some();
    if atom.spec.cancel && unfinished {
        return begin_rollback(atom, status, now);
    }
    match seen.wanted {
        Wanted::Known(revision) if !atom.spec.cancel => {
            status.phase = AtomPhase::Updating;
            status.attempts = status.attempts.saturating_add(1);
            status.started_at = Some(MicroTime(now));
            status.target_version = Some(atom.spec.version.clone());
            status.tried = Some(revision.clone());
            status.failure = None;
            tell::working(&mut status, atom, now);
            Decision::keep(status)
        }
        Wanted::Known(_) => {
            let message = "Nothing is updated while spec.cancel is true: set it to false.";
            tell::say(&mut status, atom, Mood::Stuck, &Cause::new(reason::CANCELLED, message), now);
            Decision::keep(status)
        }
        Wanted::Unknown { cause, stuck } => {
            // Half of an update that nothing follows is not left lying for ever.
            let due = ends_at(&status, atom.spec.deadline.get()).filter(|_| unfinished);
            if due.is_some_and(|due| due <= now) {
                let cause = Cause::new(reason::DEADLINE_EXCEEDED, cause.message.clone());
                status.failure = Some(failure(AtomPhase::Deadline, &cause));
                return begin_rollback(atom, status, now);
            }
            tell::say(&mut status, atom, if *stuck { Mood::Stuck } else { Mood::Working }, cause, now);
            Decision::keep(status).at(due)
        }
    }
}

/// Nothing is under way.
fn at_rest(seen: &Observed<'_>, mut status: AtomStatus, now: Timestamp) -> Decision {
    let atom = seen.atom;
    if status.journal.as_ref().is_some_and(|journal| journal.stage == JournalStage::Done) {
        return Decision::act(status, Action::Forget);
    }
    let news = match seen.wanted {
        Wanted::Known(revision) => is_news(&status, revision),
        Wanted::Unknown { .. } => status.target_version.as_ref() != Some(&atom.spec.version),
    };
    // What could not be undone stays as it is until another version can really begin: it was tried to its deadline.
    let may_begin = !atom.spec.cancel && matches!(seen.wanted, Wanted::Known(_));
    if news && (status.journal.is_none() || may_begin) {
        status.phase = AtomPhase::Pending;
        if let Some(journal) = &mut status.journal {
            journal.stage = JournalStage::Kept;
            status.started_at = Some(MicroTime(now));
        }
        let message = format!("Version `{}` is wanted.", atom.spec.version);
        tell::say(&mut status, atom, Mood::Working, &Cause::new(reason::PENDING, message), now);
    } else {
        tell::rest(&mut status, atom, now);
    }
    Decision::keep(status)
}

/// Whether this was not tried yet. That inputs are again what they were when all was good is no news: it is what
/// remains when a Stack has gone back as well.
fn is_news(status: &AtomStatus, revision: &AtomRevision) -> bool {
    let Some(tried) = &status.tried else {
        return true;
    };
    let good = status.good.as_ref().filter(|_| status.phase != AtomPhase::Running);
    let known = |of: &AtomRevision| of.inputs == revision.inputs;
    tried.template != revision.template || !(known(tried) || good.is_some_and(known))
}

/// An update is under way.
fn updating(seen: &Observed<'_>, mut status: AtomStatus, now: Timestamp) -> Decision {
    let atom = seen.atom;
    let target = status.target_version.clone().unwrap_or_default();
    if atom.spec.cancel {
        let message = format!("The update to version `{target}` was cancelled.");
        fail(atom, &mut status, AtomPhase::Cancelled, Cause::new(reason::CANCELLED, message), now);
        return Decision::keep(status);
    }
    let superseded = match seen.wanted {
        Wanted::Known(revision) => {
            let tried = status.tried.as_ref();
            tried.is_none_or(|tried| tried.template != revision.template || tried.inputs != revision.inputs)
        }
        Wanted::Unknown { .. } => target != atom.spec.version,
    };
    if superseded {
        let message = format!("Something newer takes the place of the update to version `{target}`.");
        fail(atom, &mut status, AtomPhase::Cancelled, Cause::new(reason::SUPERSEDED, message), now);
        return Decision::keep(status);
    }
    let due = ends_at(&status, atom.spec.deadline.get());
    if due.is_none_or(|due| due <= now) {
        let message = format!(
            "Version `{target}` was not ready within {}. {}",
            atom.spec.deadline,
            unready(&status.objects).unwrap_or_default()
        );
        fail(atom, &mut status, AtomPhase::Deadline, Cause::new(reason::DEADLINE_EXCEEDED, message.trim()), now);
        return Decision::keep(status);
    }
    let action = match status.journal.as_ref().map(|journal| journal.stage) {
        None | Some(JournalStage::Kept | JournalStage::Restore | JournalStage::Done) => Action::Prepare,
        Some(JournalStage::Apply) => Action::Write,
        Some(JournalStage::Wait) => Action::Look,
        Some(JournalStage::Prune) => Action::Prune,
    };
    Decision::act(status, action).at(due)
}

/// An update has ended before it was good.
fn ended(seen: &Observed<'_>, mut status: AtomStatus, now: Timestamp) -> Decision {
    let atom = seen.atom;
    let superseded = status.failure.as_ref().is_some_and(|failure| failure.reason == reason::SUPERSEDED);
    if status.phase == AtomPhase::Cancelled && superseded && !atom.spec.cancel {
        status.phase = AtomPhase::Pending;
        if let Some(journal) = &mut status.journal {
            journal.stage = JournalStage::Kept;
        }
        let message = format!("Version `{}` is wanted.", atom.spec.version);
        tell::say(&mut status, atom, Mood::Working, &Cause::new(reason::PENDING, message), now);
        return Decision::keep(status);
    }
    begin_rollback(atom, status, now)
}

fn begin_rollback(atom: &Atom, mut status: AtomStatus, now: Timestamp) -> Decision {
    status.phase = AtomPhase::Rollback;
    status.started_at = Some(MicroTime(now));
    match &mut status.journal {
        Some(journal) => {
            journal.stage = JournalStage::Restore;
            tell::working(&mut status, atom, now);
        }
        // Nothing was written.
        None => tell::working(&mut status, atom, now),
    }
    Decision::keep(status)
}

/// What was there before is brought back.
fn rollback(atom: &Atom, mut status: AtomStatus, now: Timestamp) -> Decision {
    if status.journal.is_none() {
        reverted(atom, &mut status, now);
        return Decision::keep(status);
    }
    let due = ends_at(&status, atom.spec.rollback_deadline.get());
    if due.is_none_or(|due| due <= now) {
        status.phase = AtomPhase::Failure;
        tell::rest(&mut status, atom, now);
        return Decision::keep(status);
    }
    Decision::act(status, Action::Restore).at(due)
}

fn reverted(atom: &Atom, status: &mut AtomStatus, now: Timestamp) {
    status.phase = AtomPhase::Reverted;
    if let Some(journal) = &mut status.journal {
        journal.stage = JournalStage::Done;
    }
    status.current_version.clone_from(&status.last_good_version);
    tell::rest(status, atom, now);
}

/// The Atom goes, and its objects with it.
fn deletion(atom: &Atom, mut status: AtomStatus, now: Timestamp) -> Decision {
    if status.objects.is_empty() && status.journal.is_none() {
        return Decision::act(status, Action::RemoveFinalizer);
    }
    // Only the first time: from then on what hinders it is told.
    let told = conditions::find(&status.conditions, condition::READY);
    if told.is_none_or(|told| told.reason != reason::DELETING) {
        tell::deleting(&mut status, atom, "", now);
    }
    Decision::act(status, Action::Delete)
}

fn fail(atom: &Atom, status: &mut AtomStatus, phase: AtomPhase, cause: Cause, now: Timestamp) {
    status.phase = phase;
    status.failure = Some(failure(phase, &cause));
    tell::say(status, atom, Mood::Working, &cause, now);
}

fn failure(phase: AtomPhase, cause: &Cause) -> AtomFailure {
    let message = cause.message.as_str();
    let end = (0..=MESSAGE_MAX.min(message.len())).rfind(|end| message.is_char_boundary(*end)).unwrap_or_default();
    AtomFailure { phase, reason: cause.reason.clone(), message: message[..end].to_owned() }
}

/// When what is under way has to be done.
fn ends_at(status: &AtomStatus, within: std::time::Duration) -> Option<Timestamp> {
    status.started_at.as_ref()?.0.checked_add(within).ok()
}

#[cfg(test)]
mod tests;
