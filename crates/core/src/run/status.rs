//! How a Run's status is written, whoever writes it: the phase, and the conditions that go with it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    names::{condition, reason},
    run::{Run, RunPhase, RunStatus, StepName, StepState, StepStatus},
};

use crate::{
    conditions::{self, ConditionWriter},
    queue::{self, Lane, arrival},
};

/// Why a run is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// One word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Cause {
    /// A cause of this reason.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

/// The run's status, or that of a run that nobody has looked at yet.
#[must_use]
pub fn of(run: &Run) -> RunStatus {
    run.status.clone().unwrap_or_default()
}

/// Moves the run to a phase that is not an end, or gives another cause for the one it is in.
pub fn enter(status: &mut RunStatus, run: &Run, phase: RunPhase, cause: &Cause, now: Timestamp) {
    debug_assert!(!phase.is_finished(), "an end is written by `finish`");
    set_phase(status, run, phase);
    let stalled = cause.reason == reason::WORKSPACE_NOT_FOUND;
    ConditionWriter::new(&mut status.conditions, run.metadata.generation, now)
        .set(condition::READY, false, &cause.reason, &cause.message)
        .set(condition::RECONCILING, !stalled, &cause.reason, &cause.message)
        .set(condition::STALLED, stalled, &cause.reason, if stalled { cause.message.as_str() } else { "" });
    place(status, run, now);
}

/// Ends the run. No step is left looking as if it still ran, and the lock is let go.
pub fn finish(status: &mut RunStatus, run: &Run, phase: RunPhase, cause: &Cause, now: Timestamp) {
    debug_assert!(phase.is_finished(), "a phase that is not an end is written by `enter`");
    set_phase(status, run, phase);
    status.finished_at = Some(MicroTime(now));
    status.review_digest = None;
    let left = match phase {
        RunPhase::Cancelled | RunPhase::Discarded => StepState::Cancelled,
        _ => StepState::Failed,
    };
    for step in status.steps.iter_mut().filter(|step| !step.state.is_finished()) {
        step.state = left;
        step.finished_at = Some(MicroTime(now));
        step.message.get_or_insert_with(|| cause.message.clone());
    }
    let succeeded = phase == RunPhase::Succeeded;
    let stalled = if succeeded { "" } else { cause.message.as_str() };
    let exited = match status.exit_code {
        Some(code) => format!("Exit code {code}."),
        None => cause.message.clone(),
    };
    ConditionWriter::new(&mut status.conditions, run.metadata.generation, now)
        .set(condition::READY, succeeded, &cause.reason, &cause.message)
        .set(condition::RECONCILING, false, &cause.reason, "")
        .set(condition::STALLED, !succeeded, &cause.reason, stalled)
        .set(condition::EXITED, true, &cause.reason, exited);
    place(status, run, now);
}

/// Writes what a step did, in the order of the steps.
pub fn set_step(status: &mut RunStatus, step: StepStatus) {
    match status.steps.binary_search_by_key(&step.name, |known| known.name) {
        Ok(index) => status.steps[index] = step,
        Err(index) => status.steps.insert(index, step),
    }
}

/// What is known of a step.
#[must_use]
pub fn step(status: &RunStatus, name: StepName) -> Option<&StepStatus> {
    status.steps.iter().find(|step| step.name == name)
}

fn set_phase(status: &mut RunStatus, run: &Run, phase: RunPhase) {
    arrival::record(status, run);
    status.phase = phase;
    status.observed_generation = run.metadata.generation;
    if phase != RunPhase::Queued {
        status.position = None;
    }
}

/// `Queued` and `Active`: where the run stands to its Workspace's lock.
fn place(status: &mut RunStatus, run: &Run, now: Timestamp) {
    let lock = &run.spec.workspace;
    let generation = run.metadata.generation;
    let held = conditions::holds(&status.conditions, condition::ACTIVE);
    let queued = conditions::holds(&status.conditions, condition::QUEUED);
    let find = |type_| conditions::find(&status.conditions, type_);
    let waited = find(condition::ACTIVE).is_some_and(|active| active.reason == reason::QUEUED);
    let open = [reason::WAITING_FOR_APPROVAL, reason::DIGEST_MISMATCH];
    let undecided = find(condition::APPROVED).is_some_and(|approved| open.contains(&approved.reason.as_str()));
    let mut writer = ConditionWriter::new(&mut status.conditions, generation, now);
    match status.phase {
        RunPhase::Queued => {
            let position = status.position.unwrap_or_default();
            let message = format!("Position {position} in the queue of Workspace `{lock}`.");
            writer.set(condition::QUEUED, true, reason::QUEUED, message.clone());
            writer.set(condition::ACTIVE, false, reason::QUEUED, message);
        }
        RunPhase::Starting | RunPhase::Running if queue::lane(&run.spec) == Lane::AtOnce => {
            let message = "It cannot change the state, so it needs no lock.";
            writer.set(condition::QUEUED, false, reason::NO_LOCK_NEEDED, message);
            writer.set(condition::ACTIVE, false, reason::NO_LOCK_NEEDED, message);
        }
        RunPhase::Starting | RunPhase::Running => {
            let message = format!("It holds the lock of Workspace `{lock}`.");
            writer.set(condition::QUEUED, false, reason::ACTIVATED, message.clone());
            writer.set(condition::ACTIVE, true, reason::ACTIVATED, message);
        }
        phase if phase.is_finished() => {
            if queued {
                writer.set(condition::QUEUED, false, phase.as_str(), "It left the queue.");
            }
            if held {
                writer.set(
                    condition::ACTIVE,
                    false,
                    reason::RELEASED,
                    format!("The lock of Workspace `{lock}` was released."),
                );
            } else if waited {
                writer.set(condition::ACTIVE, false, phase.as_str(), "It ended before it got the lock.");
            }
            if undecided {
                writer.set(condition::APPROVED, false, phase.as_str(), "It ended without a decision.");
            }
        }
        _ => {}
    }
}
