//! How an Atom's status says where it stands: the conditions that go with a phase.

use jiff::Timestamp;
use knoll_api::{
    atom::{Atom, AtomObject, AtomPhase, AtomStatus, JournalStage},
    names::{condition, reason},
};

use crate::{conditions::Pen, status::Cause};

/// How many objects a message names.
const NAMED: usize = 5;

/// What a phase means to whoever waits for the Atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// It is as it should be.
    Ready,
    /// It gets there by itself.
    Working,
    /// It gets nowhere without a person.
    Stuck,
}

/// Writes the conditions.
pub(super) fn say(status: &mut AtomStatus, atom: &Atom, mood: Mood, cause: &Cause, now: Timestamp) {
    status.observed_generation = atom.metadata.generation;
    let message = cause.message.trim();
    let when = |holds: bool| if holds { message } else { "" };
    Pen::new(&mut status.conditions, atom.metadata.generation, now)
        .set(condition::READY, mood == Mood::Ready, &cause.reason, message)
        .set(condition::RECONCILING, mood == Mood::Working, &cause.reason, when(mood == Mood::Working))
        .set(condition::STALLED, mood == Mood::Stuck, &cause.reason, when(mood == Mood::Stuck));
}

/// An update or a rollback is under way.
pub(super) fn working(status: &mut AtomStatus, atom: &Atom, now: Timestamp) {
    let target = status.target_version.clone().unwrap_or_default();
    let (why, message) = match status.phase {
        AtomPhase::Rollback => (reason::ROLLING_BACK, rolling_back(status)),
        _ => {
            let doing = match status.journal.as_ref().map(|journal| journal.stage) {
                None | Some(JournalStage::Kept) => "is being checked".to_owned(),
                Some(JournalStage::Apply) => format!("is being written, {}", counted(status.objects.len())),
                Some(JournalStage::Prune) => "is ready; what it no longer has is being deleted".to_owned(),
                _ => {
                    let ready = status.objects.iter().filter(|object| object.ready).count();
                    format!("has {ready} of {} objects ready", status.objects.len())
                }
            };
            let rest = unready(&status.objects).filter(|_| doing.starts_with("has")).unwrap_or_default();
            (reason::UPDATING, format!("Version `{target}` {doing}. {rest}"))
        }
    };
    say(status, atom, Mood::Working, &Cause::new(why, message), now);
}

fn rolling_back(status: &AtomStatus) -> String {
    let to = match &status.last_good_version {
        Some(good) => format!("Version `{good}` is being restored."),
        None => "What the first version made is being deleted.".to_owned(),
    };
    let why = status.failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
    format!("{to} {why}")
}

/// Nothing is under way any more.
pub(super) fn rest(status: &mut AtomStatus, atom: &Atom, now: Timestamp) {
    let why = status.failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
    let target = status.target_version.clone().unwrap_or_default();
    let (mood, cause) = match status.phase {
        AtomPhase::Running => {
            let message = format!("Version `{target}` runs, with {}.", counted(status.objects.len()));
            (Mood::Ready, Cause::new(reason::RUNNING, message))
        }
        AtomPhase::Failure => {
            let left = unready(&status.objects).unwrap_or_default();
            let message = format!(
                "Version `{target}` could not be undone within {}; what is not back: {left} It was undone because: {why}",
                atom.spec.rollback_deadline
            );
            (Mood::Stuck, Cause::new(reason::ROLLBACK_FAILED, message))
        }
        _ => {
            let to = match &status.last_good_version {
                Some(good) => format!("Version `{good}` is there again instead of `{target}`."),
                None => format!("Nothing of version `{target}` is left; there is no earlier version."),
            };
            (Mood::Stuck, Cause::new(reason::ROLLED_BACK, format!("{to} {why}")))
        }
    };
    say(status, atom, mood, &cause, now);
}

fn counted(objects: usize) -> String {
    if objects == 1 { "1 object".to_owned() } else { format!("{objects} objects") }
}

/// The Atom goes; `left` says what is left of it, or what hinders it.
pub(super) fn deleting(status: &mut AtomStatus, atom: &Atom, left: &str, now: Timestamp) {
    let message = format!("Its objects are being deleted. {left}");
    say(status, atom, Mood::Working, &Cause::new(reason::DELETING, message), now);
}

/// Which objects are not ready, and why; nothing when all are.
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
