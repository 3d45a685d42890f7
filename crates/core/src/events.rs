//! What is told about a Run or a Stack when it moves from one phase to another.

use knoll_api::{
    names::condition,
    run::{RunPhase, RunStatus},
    stack::{StackPhase, StackStatus},
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

/// The events of a Stack whose status was `before`: of another phase, and of drift that came or went.
#[must_use]
pub fn of_stack(before: &StackStatus, status: &StackStatus) -> Vec<Event> {
    let said = |kind: &str| conditions::find(&status.conditions, kind);
    let mut events = Vec::new();
    if before.phase != status.phase
        && let Some(ready) = said(condition::READY)
    {
        let warning = matches!(status.phase, StackPhase::Held | StackPhase::Failure | StackPhase::Reverted);
        events.push(Event { warning, reason: ready.reason.clone(), message: ready.message.clone() });
    }
    let was = conditions::find(&before.conditions, condition::DRIFTED).map(|drifted| &drifted.status);
    if let Some(drifted) = said(condition::DRIFTED)
        .filter(|drifted| was.is_some_and(|was| *was != drifted.status) || (was.is_none() && drifted.status == "True"))
    {
        let warning = drifted.status == "True";
        events.push(Event { warning, reason: drifted.reason.clone(), message: drifted.message.clone() });
    }
    events
}
