//! The machine of an Atom: [`decide`] turns the facts into the next status or an action, and [`settle`] turns the outcome
//! of the action into the status after it. [`machine`] has the states and the transitions.
//!
//! *Guarantees.* A status that announces an action is written before the action is done. A rollback never restores a
//! version that has not reached `Running`: the journal keeps the objects as they were before the first unproven update,
//! until an update is proven or undone. Every update and every rollback has a deadline.

pub mod account;
mod conditions;
mod decide;
pub mod fields;
pub mod hidden;
pub mod history;
pub mod journal;
pub mod machine;
pub mod needs;
pub mod owner;
pub mod prepare;
pub mod restore;
mod settle;
pub mod template;
pub mod version;
pub mod waves;

use knoll_api::atom::{Atom, AtomObject, AtomRevision};

use crate::status::Cause;

pub use decide::{decide, is_same};
pub use machine::{AtomEvent, AtomState};
pub use settle::settle;

/// Everything that an Atom's next status depends on.
#[derive(Clone, Copy, Debug)]
pub struct AtomFacts<'a> {
    pub atom: &'a Atom,
    pub desired: &'a Desired,
}

/// The revision that the spec of an Atom resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desired {
    /// The version, its inputs and its dependencies are there.
    Revision(AtomRevision),
    Unresolved {
        cause: Cause,
        /// Whether it stays missing until a user acts.
        stalled: bool,
    },
}

/// An action on the cluster. Each can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomAction {
    AddFinalizer,
    /// Check all objects with a dry run and store the journal. Writes no object.
    Prepare,
    Apply,
    /// Read the objects and see whether they are ready.
    CheckReadiness,
    /// Delete the objects that the version does not have any more.
    Prune,
    /// Restore the objects as the journal has them.
    Restore,
    /// Delete the journal and the AtomVersions beyond the history limit.
    CleanUp,
    /// Delete all objects of an Atom that is being deleted.
    DeleteObjects,
    RemoveFinalizer,
}

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum AtomOutcome {
    Prepared {
        /// The Secret that holds the journal.
        secret_name: String,
        /// The objects of the version.
        objects: Vec<AtomObject>,
    },
    Applied(Vec<AtomObject>),
    ReadinessChecked {
        objects: Vec<AtomObject>,
        /// Why the version never becomes ready.
        failed: Option<String>,
    },
    Pruned,
    /// The objects that the last good version has, and those that have to be deleted and still exist.
    Restored(Vec<AtomObject>),
    CleanedUp,
    /// The objects that still exist.
    ObjectsDeleted(Vec<AtomObject>),
    Failed(ActionError),
}

/// Why an action did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionError {
    /// Repeating the action gives the same error until a user acts.
    Refused(Cause),
    /// The action may succeed later.
    Retry(String),
}

impl ActionError {
    /// A refusal with this reason.
    pub fn refused(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Refused(Cause::new(reason, message))
    }

    /// The sentence for users.
    #[must_use]
    pub fn into_message(self) -> String {
        match self {
            Self::Refused(cause) => cause.message,
            Self::Retry(message) => message,
        }
    }
}

#[cfg(test)]
mod tests;
