//! The status of an Atom after an action.

use std::time::Duration;

use jiff::Timestamp;
use knoll_api::{
    atom::{Atom, AtomFailure, AtomStatus, Cancellation, JournalStage},
    names::reason,
};

use super::{
    ActionError, AtomEvent, AtomOutcome, AtomState,
    conditions::{self, Kstatus, unready},
    machine,
};
use crate::{machine::Settled, status::Cause};

/// The longest message of a failure, in bytes: the schema allows 8192 characters, and conditions repeat it.
const MESSAGE_MAX: usize = 4096;

/// The time until an action that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The time until the readiness of objects is checked again. Watches bring changes of the objects earlier, but their pods
/// are not watched, and only pods tell that an image cannot be pulled.
const READINESS: Duration = Duration::from_secs(2);

/// The time until objects that are being deleted are read again.
const DELETION: Duration = Duration::from_millis(300);

/// The status after an action on `atom`, and when to decide again.
#[must_use]
pub fn settle(atom: &Atom, outcome: AtomOutcome, now: Timestamp) -> Settled<AtomStatus> {
    let again = match &outcome {
        AtomOutcome::Failed(_) => Some(RETRY),
        AtomOutcome::ReadinessChecked { .. } => Some(READINESS),
        AtomOutcome::Restored(_) | AtomOutcome::ObjectsDeleted(_) => Some(DELETION),
        _ => None,
    };
    let again_at = again.and_then(|again| now.checked_add(again).ok());
    Settled::from(status_after(atom, outcome, now)).at(again_at)
}

/// The status after an action. An outcome that does not belong to the Atom's state changes nothing.
fn status_after(atom: &Atom, outcome: AtomOutcome, now: Timestamp) -> AtomStatus {
    let mut status = atom.status.clone().unwrap_or_default();
    match outcome {
        AtomOutcome::Prepared { secret_name, objects } => {
            if machine::step(AtomState::of(&status), AtomEvent::Prepared).is_some() {
                status.journal.get_or_insert_default().secret_name = secret_name;
                machine::apply(&mut status, AtomEvent::Prepared);
                status.objects = objects;
                conditions::in_progress(&mut status, atom, now);
            }
        }
        AtomOutcome::Applied(objects) => {
            if machine::apply(&mut status, AtomEvent::Written).is_some() {
                status.current_version.clone_from(&status.target_version);
                status.objects = objects;
                conditions::in_progress(&mut status, atom, now);
            }
        }
        AtomOutcome::ReadinessChecked { objects, failed } => {
            if AtomState::of(&status) == AtomState::Waiting {
                status.objects = objects;
                if let Some(message) = failed {
                    let cause = Cause::new(reason::OBJECT_FAILED, message);
                    interrupt(atom, &mut status, AtomEvent::Failed, &cause, now);
                } else {
                    if status.objects.iter().all(|object| object.ready) {
                        machine::apply(&mut status, AtomEvent::BecameReady);
                    }
                    conditions::in_progress(&mut status, atom, now);
                }
            }
        }
        AtomOutcome::Pruned => {
            if machine::apply(&mut status, AtomEvent::Pruned).is_some() {
                status.last_good_version.clone_from(&status.target_version);
                status.current_version.clone_from(&status.target_version);
                status.good.clone_from(&status.tried);
                status.failure = None;
                conditions::settled(&mut status, atom, now);
            }
        }
        AtomOutcome::Restored(objects) => {
            if AtomState::of(&status) == AtomState::Rollback {
                let all_restored = objects.iter().all(|object| object.ready);
                status.objects = objects;
                if all_restored {
                    reverted(atom, &mut status, now);
                } else {
                    conditions::in_progress(&mut status, atom, now);
                }
            }
        }
        AtomOutcome::CleanedUp => {
            if status.journal.as_ref().is_some_and(|journal| journal.stage == JournalStage::Done) {
                status.journal = None;
            }
        }
        AtomOutcome::ObjectsDeleted(left) => {
            if atom.metadata.deletion_timestamp.is_some() {
                if left.is_empty() {
                    status.journal = None;
                }
                status.objects = left;
                let left = unready(&status.objects).unwrap_or_default();
                conditions::deleting(&mut status, atom, &left, now);
            }
        }
        AtomOutcome::Failed(error) => failed(atom, &mut status, error, now),
    }
    status
}

fn failed(atom: &Atom, status: &mut AtomStatus, error: ActionError, now: Timestamp) {
    if atom.metadata.deletion_timestamp.is_some() {
        return conditions::deleting(status, atom, &error.into_message(), now);
    }
    let cause = match error {
        ActionError::Refused(cause) => {
            if interrupt(atom, status, AtomEvent::Failed, &cause, now) {
                return;
            }
            // A rollback is tried again until its deadline: a user may remove the obstacle.
            cause
        }
        ActionError::Retry(message) => Cause::new(reason::RETRYING, format!("{message} Retrying.")),
    };
    conditions::set(status, atom, Kstatus::Reconciling, &cause, now);
}

/// Ends an update before it is ready, and returns whether there was one.
pub(super) fn interrupt(atom: &Atom, status: &mut AtomStatus, event: AtomEvent, cause: &Cause, now: Timestamp) -> bool {
    let Some(state) = machine::apply(status, event) else { return false };
    status.failure = Some(failure(state, cause));
    conditions::set(status, atom, Kstatus::Reconciling, cause, now);
    true
}

/// The rollback is done.
pub(super) fn reverted(atom: &Atom, status: &mut AtomStatus, now: Timestamp) {
    machine::apply(status, AtomEvent::Restored);
    status.current_version.clone_from(&status.last_good_version);
    conditions::settled(status, atom, now);
}

/// The record of an update that ended in `state`.
pub(super) fn failure(state: AtomState, cause: &Cause) -> AtomFailure {
    let message = cause.message.as_str();
    let end = message.floor_char_boundary(MESSAGE_MAX);
    let cancellation = match state {
        AtomState::Cancelled => Some(Cancellation::Requested),
        AtomState::Superseded => Some(Cancellation::Superseded),
        _ => None,
    };
    AtomFailure {
        phase: state.phase(),
        cancellation,
        rollback_cancelled: false,
        reason: cause.reason.clone(),
        message: message[..end].to_owned(),
    }
}
