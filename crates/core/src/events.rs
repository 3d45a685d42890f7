//! What is told about a run when it moves from one phase to another.

use knoll_api::{
    names::condition,
    run::{RunPhase, RunStatus},
};

use crate::conditions;

/// An event on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether somebody should have a look.
    pub warning: bool,
    /// One word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// The event of a run that was in phase `before` and is now in another, if it is.
#[must_use]
pub fn of_run(before: RunPhase, status: &RunStatus) -> Option<Event> {
    if before == status.phase {
        return None;
    }
    let ready = conditions::find(&status.conditions, condition::READY);
    let message = ready.map(|ready| ready.message.clone()).unwrap_or_default();
    // An end that is not the plain one names its cause: OOMKilled says more than Failed.
    let cause = ready.map(|ready| ready.reason.clone());
    let reason = match status.phase {
        RunPhase::Failed | RunPhase::Cancelled | RunPhase::Discarded => cause,
        _ => None,
    };
    Some(Event {
        warning: status.phase == RunPhase::Failed,
        reason: reason.unwrap_or_else(|| status.phase.as_str().to_owned()),
        message,
    })
}
