//! How a Stack's status is written: the phase, and the conditions that go with it.

use jiff::Timestamp;
use knoll_api::{
    names::{condition, reason},
    run::Run,
    stack::{Stack, StackPhase, StackStatus},
};
use kube::ResourceExt;

use super::Elsewhere;
use crate::{
    conditions::{self, Pen},
    status::Cause,
};

/// What a phase means to whoever waits for the Stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// It is as it should be.
    Ready,
    /// It gets there by itself.
    Working,
    /// It gets nowhere without a person.
    Stuck,
    /// A person has stopped it.
    Paused {
        /// Whether it is as it should be nevertheless.
        ready: bool,
    },
}

/// Writes phase and conditions.
pub(super) fn set(
    status: &mut StackStatus,
    stack: &Stack,
    phase: StackPhase,
    mood: Mood,
    cause: &Cause,
    now: Timestamp,
) {
    status.phase = phase;
    status.observed_generation = stack.metadata.generation;
    let ready = matches!(mood, Mood::Ready | Mood::Paused { ready: true });
    let (working, stuck) = (mood == Mood::Working, mood == Mood::Stuck);
    let message = cause.message.trim();
    let when = |holds: bool| if holds { message } else { "" };
    Pen::new(&mut status.conditions, stack.metadata.generation, now)
        .set(condition::READY, ready, &cause.reason, message)
        .set(condition::RECONCILING, working, &cause.reason, when(working))
        .set(condition::STALLED, stuck, &cause.reason, when(stuck));
}

/// Writes what is known of a source outside of the cluster. That it cannot be reached makes no Stack unready which is as
/// it was last told to be.
pub(super) fn fetched(status: &mut StackStatus, stack: &Stack, elsewhere: Option<&Elsewhere>, now: Timestamp) {
    if stack.metadata.deletion_timestamp.is_some() {
        return;
    }
    let Some(elsewhere) = elsewhere else {
        status.fetched = None;
        status.conditions.retain(|found| found.type_ != condition::FETCHED);
        return;
    };
    status.fetched.clone_from(&elsewhere.fetched);
    let mut pen = Pen::new(&mut status.conditions, stack.metadata.generation, now);
    match (&elsewhere.trouble, &elsewhere.fetched) {
        (Some(trouble), _) => pen.set(condition::FETCHED, false, reason::SOURCE_FAILED, trouble),
        (None, Some(fetched)) => {
            let message = format!("The newest is {}.", fetched.revision);
            pen.set(condition::FETCHED, true, reason::FETCHED, message)
        }
        (None, None) => pen.set(condition::FETCHED, false, reason::FETCHING, "It is being fetched."),
    };
}

/// What a Run of the Stack says of itself.
pub(super) fn of_run(run: &Run) -> String {
    let name = run.name_any();
    let said = run.status.as_ref().and_then(|status| conditions::find(&status.conditions, condition::READY));
    match said.map(|ready| ready.message.as_str()).filter(|message| !message.is_empty()) {
        Some(message) => format!("Run `{name}`: {message}"),
        None => format!("Run `{name}` is on the way."),
    }
}

/// A revision as people write it.
pub(super) fn short(revision: &str) -> &str {
    let hash = revision.strip_prefix("sha256:").unwrap_or(revision);
    hash.get(..7).unwrap_or(hash)
}
