//! The phase of a Stack's status, and the conditions that go with it.

use jiff::Timestamp;
use knoll_api::{
    names::{condition, reason},
    run::Run,
    stack::{Stack, StackPhase, StackStatus},
};
use kube::ResourceExt;

use super::{RemoteSource, wording};
use crate::{
    conditions::{self, ConditionWriter},
    status::Cause,
};

/// How a Stack stands in the terms of kstatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kstatus {
    Ready,
    /// The Stack gets further by itself.
    Reconciling,
    /// The Stack gets no further without a person.
    Stalled,
    /// A person has suspended the Stack, which is as it should be if `ready`.
    Paused {
        ready: bool,
    },
}

/// Writes phase and conditions.
pub(super) fn set(
    status: &mut StackStatus,
    stack: &Stack,
    phase: StackPhase,
    kstatus: Kstatus,
    cause: &Cause,
    now: Timestamp,
) {
    status.phase = phase;
    status.observed_generation = stack.metadata.generation;
    let ready = matches!(kstatus, Kstatus::Ready | Kstatus::Paused { ready: true });
    let (reconciling, stalled) = (kstatus == Kstatus::Reconciling, kstatus == Kstatus::Stalled);
    let message = cause.message.trim();
    let when = |holds: bool| if holds { message } else { "" };
    ConditionWriter::new(&mut status.conditions, stack.metadata.generation, now)
        .set(condition::READY, ready, &cause.reason, message)
        .set(condition::RECONCILING, reconciling, &cause.reason, when(reconciling))
        .set(condition::STALLED, stalled, &cause.reason, when(stalled));
}

/// Writes the condition `Fetched` of a source outside of the cluster. A source that cannot be reached does not make a
/// Ready Stack unready.
pub(super) fn fetched(status: &mut StackStatus, stack: &Stack, remote: Option<&RemoteSource>, now: Timestamp) {
    if stack.metadata.deletion_timestamp.is_some() {
        return;
    }
    let Some(remote) = remote else {
        status.fetched = None;
        status.conditions.retain(|found| found.type_ != condition::FETCHED);
        return;
    };
    status.fetched.clone_from(&remote.fetched);
    let mut conditions = ConditionWriter::new(&mut status.conditions, stack.metadata.generation, now);
    match (&remote.error, &remote.fetched) {
        (Some(error), _) => conditions.set(condition::FETCHED, false, reason::SOURCE_FAILED, error),
        (None, Some(fetched)) => {
            let message = format!("The newest revision of the source is {}.", fetched.revision);
            conditions.set(condition::FETCHED, true, reason::FETCHED, message)
        }
        (None, None) => conditions.set(condition::FETCHED, false, reason::FETCHING, "The source is being fetched."),
    };
}

/// Writes the condition `VariablesUndeclared` if the module does not declare some of `spec.variables`. Values from
/// elsewhere may be meant for other modules as well.
pub(super) fn undeclared(status: &mut StackStatus, stack: &Stack, undeclared: &[String], now: Timestamp) {
    let mut own = undeclared.iter().filter(|name| stack.spec.variables.contains_key(*name)).peekable();
    if own.peek().is_none() {
        status.conditions.retain(|found| found.type_ != condition::VARIABLES_UNDECLARED);
        return;
    }
    let names = own.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let message = format!(
        "The module does not declare these variables of spec.variables, so their values have no effect: {names}."
    );
    ConditionWriter::new(&mut status.conditions, stack.metadata.generation, now).set(
        condition::VARIABLES_UNDECLARED,
        true,
        reason::UNDECLARED_VARIABLE,
        message,
    );
}

/// The message of a Run's `Ready` condition, with the name of the Run.
pub(super) fn of_run(run: &Run) -> String {
    let name = run.name_any();
    match message_of(run) {
        Some(message) => format!("Run `{name}`: {}", wording::of_stack(message)),
        None => format!("Run `{name}` is pending."),
    }
}

/// Whether the Run's controller has said anything of it.
pub(super) fn has_reported(run: &Run) -> bool {
    message_of(run).is_some()
}

/// Whether the status is in this phase, and was written for the newest spec.
pub(super) fn is_current(status: &StackStatus, stack: &Stack, phase: StackPhase) -> bool {
    let ready = conditions::find(&status.conditions, condition::READY);
    status.phase == phase && ready.is_some_and(|ready| ready.observed_generation == stack.metadata.generation)
}

fn message_of(run: &Run) -> Option<&str> {
    let ready = run.status.as_ref().and_then(|status| conditions::find(&status.conditions, condition::READY));
    ready.map(|ready| ready.message.as_str()).filter(|message| !message.is_empty())
}

/// The first digits of a revision.
pub(super) fn short(revision: &str) -> &str {
    let hash = revision.strip_prefix("sha256:").unwrap_or(revision);
    hash.get(..7).unwrap_or(hash)
}
