//! Patches: what a client asks to change, laid over what is there, and who owns which field afterwards.
//!
//! All of it is pure: values go in and come out, as the API server of Kubernetes 1.34 would answer them.

mod apply;
mod conflict;
mod element;
mod entries;
mod fields;
mod go_text;
mod json;
mod last_applied;
mod merge;
mod object_meta;
mod owners;
mod strategic;
mod typed;
mod zero;

pub use apply::{ApplyError, Writer, apply, precheck, track_update};
pub use conflict::{Conflict, causes, message};
pub use go_text::go_text;
pub use json::json_patch;
pub use merge::merge_patch;
pub use strategic::strategic_merge_patch;
pub use zero::object as empty_object;

/// Why a patch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not a list of operations.
    #[error("error decoding patch: {0}")]
    Undecodable(String),
    /// The patch is `null`.
    #[error("Invalid JSON Patch")]
    NotAnObject,
    /// There are too many operations.
    #[error("The allowed maximum operations in a JSON patch is {most}, got {got}")]
    TooManyOperations {
        /// The most there may be.
        most: usize,
        /// How many there are.
        got: usize,
    },
    /// An operation does not fit the object.
    #[error("{0}")]
    Inapplicable(String),
    /// A directive of a strategic merge patch is malformed.
    #[error("{0}")]
    Malformed(String),
    /// A strategic merge patch cannot be merged with the object.
    #[error("{0}")]
    Unmergeable(String),
}

impl PatchError {
    /// The HTTP status with which Kubernetes answers.
    pub fn code(&self) -> u16 {
        match self {
            Self::Undecodable(_) | Self::NotAnObject | Self::Malformed(_) => 400,
            Self::TooManyOperations { .. } => 413,
            Self::Inapplicable(_) => 422,
            Self::Unmergeable(_) => 500,
        }
    }
}

#[cfg(test)]
mod tests;
