//! Why stored content cannot be read or written.

use knoll_core::identity::Unidentified;

use crate::blob::BlobError;
use crate::message_of;
use crate::seal::SealError;
use crate::states::{FileError, HeadError, Refusal};

/// Why stored content cannot be read or written. The message never holds a secret value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another pod has claimed the state since the claim of this write was made.
    #[error("another pod has claimed the state")]
    Superseded,
    /// The state does not follow on the stored one.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A piece of the log does not follow on what is stored.
    #[error("the log has {has} bytes, so the next piece begins there")]
    Offset {
        /// How many bytes are stored.
        has: u64,
    },
    /// Other writers were faster each time.
    #[error("the state's Secret changes too often")]
    Busy,
    /// The Workspace does not keep a version of that serial.
    #[error("workspace `{workspace}` has no stored state with serial {serial}; it has {}", serials(.kept))]
    NotKept {
        workspace: String,
        serial: u64,
        /// The serials that are kept, the newest first.
        kept: Vec<u64>,
    },
    /// The content is no terraform state.
    #[error(transparent)]
    NoState(#[from] FileError),
    #[error("the Kubernetes API failed: {}", message_of(.0))]
    Api(#[from] kube::Error),
    /// Stored content is not what was stored.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The state of a Workspace is not what was stored.
    #[error(
        "the state is damaged: {0}; `knoll state history` lists the earlier ones, `knoll state rollback SERIAL` makes one of them the state"
    )]
    Damaged(Box<Error>),
    /// The head of a state cannot be read.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The object that content belongs to is not one that the API server has stored.
    #[error(transparent)]
    Unidentified(#[from] Unidentified),
    /// A defect, or the end of this process.
    #[error("the storage failed: {0}")]
    Internal(String),
}

fn serials(kept: &[u64]) -> String {
    match kept {
        [] => "none yet".to_owned(),
        kept => kept.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

impl From<SealError> for Error {
    fn from(error: SealError) -> Self {
        Error::Blob(error.into())
    }
}
