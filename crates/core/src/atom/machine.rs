//! The states of an Atom and the transitions between them.
//!
//! The phases, as [`diagram`] draws them from [`TRANSITIONS`]:
//!
//! ```text
//! Pending   -> Updating | Rollback
//! Updating  -> Running | Cancelled | Deadline | Error
//! Cancelled -> Rollback | Pending
//! Deadline  -> Rollback
//! Error     -> Rollback
//! Rollback  -> Reverted | Failure
//! Running   -> Pending
//! Reverted  -> Pending
//! Failure   -> Pending
//! ```
//!
//! *Guarantee.* `apply` is the only function that writes `status.phase` and the stage of `status.journal`, and it
//! follows [`TRANSITIONS`].

use knoll_api::atom::{AtomPhase, AtomStatus, Cancellation, JournalStage};

/// A state of an Atom. `status.phase` names it for users; `Updating` and `Cancelled` have several states each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomState {
    /// An update is due and waits for its inputs. Next: `Checking`; `Rollback` when an earlier update is unfinished and
    /// is cancelled or times out.
    Pending,
    /// The API server checks the objects and the journal is written. Next: `Applying`.
    Checking,
    /// The objects are written. Next: `Waiting`.
    Applying,
    /// The objects become ready. Next: `Pruning`.
    Waiting,
    /// Objects that the version does not have any more are deleted. Next: `Running`.
    Pruning,
    /// The version runs and is ready. Next: `Pending`, for another revision.
    Running,
    /// A user cancelled the update. Next: `Rollback`.
    Cancelled,
    /// Another revision replaces the update. Next: `Pending`; `Rollback` when it is cancelled as well.
    Superseded,
    /// The update was not ready in time. Next: `Rollback`.
    Deadline,
    /// The API server refused an object, or an object failed. Next: `Rollback`.
    Error,
    /// The last good version is being restored. Next: `Reverted` or `Failure`.
    Rollback,
    /// The last good version runs again. Next: `Pending`, for another revision.
    Reverted,
    /// The rollback was not done in time, or a user cancelled it. Next: `Pending`, for another revision.
    Failure,
}

/// A cause of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomEvent {
    /// Version, inputs and dependencies of the update are there.
    Started,
    /// All objects are checked and the journal is stored.
    Prepared,
    /// All objects are written.
    Written,
    /// All objects are ready.
    BecameReady,
    /// All objects that the version does not have are deleted.
    Pruned,
    /// `spec.cancel` names the version.
    CancelRequested,
    /// The spec or its inputs changed.
    RevisionChanged,
    /// The deadline of the update or of the rollback has passed.
    DeadlinePassed,
    /// The update cannot succeed.
    Failed,
    /// The update has to be undone.
    RollbackStarted,
    /// All objects are as they were before the update.
    Restored,
}

/// The states of an update that is under way: those of the phase `Updating`.
const UPDATING: &[AtomState] = &[AtomState::Checking, AtomState::Applying, AtomState::Waiting, AtomState::Pruning];

/// The states that a rollback follows.
const UNDONE: &[AtomState] =
    &[AtomState::Cancelled, AtomState::Superseded, AtomState::Deadline, AtomState::Error, AtomState::Pending];

/// The states in which nothing happens until the revision changes, and the one in which it has changed already.
const SETTLED: &[AtomState] = &[AtomState::Running, AtomState::Reverted, AtomState::Failure, AtomState::Superseded];

/// All transitions: in each of these states, this event leads to that state. Any other event leaves the state as it is.
pub const TRANSITIONS: &[(&[AtomState], AtomEvent, AtomState)] = &[
    (&[AtomState::Pending], AtomEvent::Started, AtomState::Checking),
    (&[AtomState::Checking], AtomEvent::Prepared, AtomState::Applying),
    (&[AtomState::Applying], AtomEvent::Written, AtomState::Waiting),
    (&[AtomState::Waiting], AtomEvent::BecameReady, AtomState::Pruning),
    (&[AtomState::Pruning], AtomEvent::Pruned, AtomState::Running),
    (UPDATING, AtomEvent::CancelRequested, AtomState::Cancelled),
    (UPDATING, AtomEvent::RevisionChanged, AtomState::Superseded),
    (UPDATING, AtomEvent::DeadlinePassed, AtomState::Deadline),
    (UPDATING, AtomEvent::Failed, AtomState::Error),
    (UNDONE, AtomEvent::RollbackStarted, AtomState::Rollback),
    (&[AtomState::Rollback], AtomEvent::Restored, AtomState::Reverted),
    (&[AtomState::Rollback], AtomEvent::DeadlinePassed, AtomState::Failure),
    (&[AtomState::Rollback], AtomEvent::CancelRequested, AtomState::Failure),
    (SETTLED, AtomEvent::RevisionChanged, AtomState::Pending),
];

impl AtomState {
    /// The state that a status describes.
    #[must_use]
    pub fn of(status: &AtomStatus) -> Self {
        match status.phase {
            AtomPhase::Pending => Self::Pending,
            AtomPhase::Updating => match status.journal.as_ref().map(|journal| journal.stage) {
                // A journal of an earlier update is extended by the check before anything is written.
                None | Some(JournalStage::Kept | JournalStage::Restore | JournalStage::Done) => Self::Checking,
                Some(JournalStage::Apply) => Self::Applying,
                Some(JournalStage::Wait) => Self::Waiting,
                Some(JournalStage::Prune) => Self::Pruning,
            },
            AtomPhase::Running => Self::Running,
            AtomPhase::Cancelled => match status.failure.as_ref().and_then(|failure| failure.cancellation) {
                Some(Cancellation::Superseded) => Self::Superseded,
                Some(Cancellation::Requested) | None => Self::Cancelled,
            },
            AtomPhase::Deadline => Self::Deadline,
            AtomPhase::Error => Self::Error,
            AtomPhase::Rollback => Self::Rollback,
            AtomPhase::Reverted => Self::Reverted,
            AtomPhase::Failure => Self::Failure,
        }
    }

    /// The phase that names the state to users.
    #[must_use]
    pub fn phase(self) -> AtomPhase {
        match self {
            Self::Pending => AtomPhase::Pending,
            Self::Checking | Self::Applying | Self::Waiting | Self::Pruning => AtomPhase::Updating,
            Self::Running => AtomPhase::Running,
            Self::Cancelled | Self::Superseded => AtomPhase::Cancelled,
            Self::Deadline => AtomPhase::Deadline,
            Self::Error => AtomPhase::Error,
            Self::Rollback => AtomPhase::Rollback,
            Self::Reverted => AtomPhase::Reverted,
            Self::Failure => AtomPhase::Failure,
        }
    }

    /// The stage that a journal has in this state; none when it keeps the one that it has.
    fn stage(self) -> Option<JournalStage> {
        match self {
            Self::Pending | Self::Checking => Some(JournalStage::Kept),
            Self::Applying => Some(JournalStage::Apply),
            Self::Waiting => Some(JournalStage::Wait),
            Self::Pruning => Some(JournalStage::Prune),
            Self::Rollback => Some(JournalStage::Restore),
            Self::Running | Self::Reverted => Some(JournalStage::Done),
            Self::Cancelled | Self::Superseded | Self::Deadline | Self::Error | Self::Failure => None,
        }
    }
}

/// The state after an event; none when the event means nothing in this state.
#[must_use]
pub fn step(state: AtomState, event: AtomEvent) -> Option<AtomState> {
    let row = TRANSITIONS.iter().find(|(from, on, _)| *on == event && from.contains(&state));
    row.map(|(_, _, to)| *to)
}

/// Moves a status to the state after an event, and returns that state. An event without a transition changes nothing.
pub(super) fn apply(status: &mut AtomStatus, event: AtomEvent) -> Option<AtomState> {
    let next = step(AtomState::of(status), event)?;
    status.phase = next.phase();
    if let (Some(journal), Some(stage)) = (&mut status.journal, next.stage()) {
        journal.stage = stage;
    }
    Some(next)
}

/// The phases and those that may follow each, one line a phase.
#[must_use]
pub fn diagram() -> String {
    let mut rows: Vec<(AtomPhase, Vec<&str>)> = Vec::new();
    for (from, to) in TRANSITIONS.iter().flat_map(|(from, _, to)| from.iter().map(|from| (from.phase(), to.phase()))) {
        if from == to {
            continue;
        }
        let at = rows.iter().position(|(phase, _)| *phase == from).unwrap_or_else(|| {
            rows.push((from, Vec::new()));
            rows.len() - 1
        });
        if !rows[at].1.contains(&to.as_str()) {
            rows[at].1.push(to.as_str());
        }
    }
    let lines = rows.iter().map(|(from, to)| format!("{:<9} -> {}\n", from.as_str(), to.join(" | ")));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagram_of_the_documentation_is_that_of_the_table() {
        let drawn: String = diagram().lines().map(|line| format!("//! {line}\n")).collect();
        assert!(include_str!("machine.rs").contains(&format!("```text\n{drawn}//! ```")), "draw it anew:\n{drawn}");
    }

    #[test]
    fn an_event_leads_from_a_state_to_one_other() {
        let rows = TRANSITIONS.iter().flat_map(|(from, event, to)| from.iter().map(move |from| (*from, *event, *to)));
        for (from, event, to) in rows.clone() {
            let all: Vec<AtomState> =
                rows.clone().filter(|row| (row.0, row.1) == (from, event)).map(|(_, _, to)| to).collect();
            assert_eq!(all, [to], "{from:?} {event:?}");
            assert_eq!(step(from, event), Some(to));
        }
        assert_eq!(step(AtomState::Running, AtomEvent::DeadlinePassed), None);
    }
}
