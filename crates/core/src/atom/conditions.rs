//! The conditions of an Atom's status.

use jiff::Timestamp;
use knoll_api::{
    atom::{Atom, AtomObject, AtomStatus},
    names::{condition, reason},
};

use super::AtomState;
use crate::{conditions::ConditionWriter, status::Cause};

/// How many objects a message names.
const NAMED: usize = 5;

/// The condition of kstatus that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kstatus {
    /// The Atom is as its spec says.
    Ready,
    /// The Atom gets there without a user.
    Reconciling,
    /// A user has to act.
    Stalled,
}

/// Writes the conditions: the one of `kstatus` is true, the others are false.
pub(super) fn set(status: &mut AtomStatus, atom: &Atom, kstatus: Kstatus, cause: &Cause, now: Timestamp) {
    status.observed_generation = atom.metadata.generation;
    let message = cause.message.trim();
    let when = |holds: bool| if holds { message } else { "" };
    ConditionWriter::new(&mut status.conditions, atom.metadata.generation, now)
        .set(condition::READY, kstatus == Kstatus::Ready, &cause.reason, message)
        .set(
            condition::RECONCILING,
            kstatus == Kstatus::Reconciling,
            &cause.reason,
            when(kstatus == Kstatus::Reconciling),
        )
        .set(condition::STALLED, kstatus == Kstatus::Stalled, &cause.reason, when(kstatus == Kstatus::Stalled));
}

/// The conditions of an update or a rollback that is under way.
pub(super) fn in_progress(status: &mut AtomStatus, atom: &Atom, now: Timestamp) {
    let target = status.target_version.as_deref().unwrap_or_default();
    let (why, message) = match AtomState::of(status) {
        AtomState::Rollback => (reason::ROLLING_BACK, rolling_back(status)),
        AtomState::Applying => {
            let message = format!("Applying version `{target}` with {}.", counted(status.objects.len()));
            (reason::UPDATING, message)
        }
        AtomState::Waiting => {
            let ready = status.objects.iter().filter(|object| object.ready).count();
            let all = counted(status.objects.len());
            let unready = unready(&status.objects).unwrap_or_default();
            (reason::UPDATING, format!("Version `{target}` has {ready} of {all} ready. {unready}"))
        }
        AtomState::Pruning => {
            let message =
                format!("Version `{target}` is ready. Deleting the objects that are no longer in the template.");
            (reason::UPDATING, message)
        }
        _ => (reason::UPDATING, format!("Checking version `{target}`.")),
    };
    set(status, atom, Kstatus::Reconciling, &Cause::new(why, message), now);
}

fn rolling_back(status: &AtomStatus) -> String {
    let to = match &status.last_good_version {
        Some(good) => format!("Rolling back to version `{good}`."),
        None => "Rolling back: there is no earlier version, so everything that it created is removed.".to_owned(),
    };
    format!("{to} {}", failure_message(status))
}

/// The conditions of an Atom with nothing under way.
pub(super) fn settled(status: &mut AtomStatus, atom: &Atom, now: Timestamp) {
    let why = failure_message(status);
    let target = status.target_version.as_deref().unwrap_or_default();
    let (kstatus, cause) = match AtomState::of(status) {
        AtomState::Running => {
            let message = format!("Version `{target}` is running with {}.", counted(status.objects.len()));
            (Kstatus::Ready, Cause::new(reason::RUNNING, message))
        }
        AtomState::Failure => {
            let left = unready(&status.objects).unwrap_or_default();
            let end = match status.failure.as_ref().is_some_and(|failure| failure.rollback_cancelled) {
                true => "was cancelled".to_owned(),
                false => format!("did not finish within {}", atom.spec.rollback_deadline),
            };
            let message =
                format!("The rollback of version `{target}` {end}. Not restored: {left} Rolled back because: {why}");
            (Kstatus::Stalled, Cause::new(reason::ROLLBACK_FAILED, message))
        }
        _ => {
            let to = match &status.last_good_version {
                Some(good) => format!("Version `{target}` was rolled back to version `{good}`."),
                None => {
                    format!("Removed everything that version `{target}` created; there is no earlier version.")
                }
            };
            (Kstatus::Stalled, Cause::new(reason::ROLLED_BACK, format!("{to} {why}")))
        }
    };
    set(status, atom, kstatus, &cause, now);
}

fn failure_message(status: &AtomStatus) -> &str {
    status.failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default()
}

fn counted(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}

/// The conditions of an Atom that is being deleted; `left` says what is left of it, or what prevents the deletion.
pub(super) fn deleting(status: &mut AtomStatus, atom: &Atom, left: &str, now: Timestamp) {
    let message = format!("Deleting its objects. {left}");
    set(status, atom, Kstatus::Reconciling, &Cause::new(reason::DELETING, message), now);
}

/// The objects that are not ready, and why; none when all are ready.
pub(super) fn unready(objects: &[AtomObject]) -> Option<String> {
    let left: Vec<&AtomObject> = objects.iter().filter(|object| !object.ready).collect();
    let named = left.iter().take(NAMED).map(|left| match &left.message {
        Some(message) => format!("`{}`: {message}", left.object),
        None => format!("`{}`.", left.object),
    });
    let mut text = named.collect::<Vec<_>>().join(" ");
    if let Some(more) = left.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text.push_str(&format!(" And {more} more."));
    }
    (!left.is_empty()).then_some(text)
}
