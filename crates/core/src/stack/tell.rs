//! How a Stack's status is written: the phase, and the conditions that go with it.

use jiff::Timestamp;
use knoll_api::{
    names::condition,
    run::Run,
    stack::{Stack, StackPhase, StackStatus},
};
use kube::ResourceExt;

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
