//! Why stored content cannot be read or written.

use crate::states::{FileError, HeadError};
use crate::{chunks, message_of};

/// Why stored content cannot be read or written. The message never holds a secret value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another pod has claimed the state since the claim of this write was made.
    #[error("another pod has claimed the state")]
    Superseded,
    /// The content does not follow on what is stored.
    #[error("{0}")]
    Conflict(String),
    /// A piece of the log does not follow on what is stored.
    #[error("the log has {has} bytes, so the next piece begins there")]
    Offset {
        /// How many bytes are stored.
        has: u64,
    },
    /// Other writers were faster each time.
    #[error("the state's Secret changes too often")]
    Busy,
    /// The content is no terraform state.
    #[error(transparent)]
    NoState(#[from] FileError),
    /// The Kubernetes API failed.
    #[error("the Kubernetes API failed: {}", message_of(.0))]
    Api(#[from] kube::Error),
    /// Stored content is not what was stored.
    #[error(transparent)]
    Chunks(#[from] chunks::Error),
    /// The state of a Workspace is not what was stored.
    #[error(
        "the state is damaged: {0}; `knoll state history` lists the earlier ones, `knoll state rollback SERIAL` makes one of them the state"
    )]
    Damaged(Box<Error>),
    /// A head cannot be read.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The process ran out of memory or was shut down meanwhile.
    #[error("the storage failed: {0}")]
    Internal(String),
}
