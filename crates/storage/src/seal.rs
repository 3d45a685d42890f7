//! The seam of the storage: what is written can be encoded by a [`Seal`], and each new version of a state is shown to a
//! [`Sink`].

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::states::Version;

/// The kinds of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentKind {
    /// The state of a Workspace. Its owner is the Workspace.
    State,
    /// The plan of a Run.
    Plan,
    /// The text of a Run's plan.
    PlanText,
    /// The JSON of a Run's plan.
    Description,
    /// The frozen job of a Run.
    Job,
    /// A state that a client has handed in for a Run.
    Upload,
    /// The variable files, values and piped input that a client has sent for a Run.
    Input,
    /// The answer of a Run's reading command.
    Answer,
    /// The log of a Run.
    Log,
    /// The journal of an Atom.
    Journal,
    /// The files of a module. Its owner is the digest of those files.
    Bundle,
    /// The resolved variables of a Stack's revision. Its owner is their Secret.
    Variables,
}

/// The content that is sealed: the associated data of an encryption, so that no content can take the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    pub kind: ContentKind,
    pub namespace: String,
    /// The name of the object that the content belongs to.
    pub owner: String,
}

/// Encodes the bytes of every content before they are written, and decodes them after they are read.
///
/// *Guarantees* that an implementation gives:
/// - `open(subject, seal(subject, bytes))` is `bytes`.
/// - `seal` is deterministic while its key stays the same: a write that is repeated after a crash finds the parts of its
///   first attempt and compares them.
/// - `open` refuses bytes that were sealed for another subject, and accepts those that were written before there was a
///   seal, as long as they may exist.
pub trait Seal: Debug + Send + Sync {
    /// # Errors
    /// When the bytes cannot be encoded; nothing is written then.
    fn seal(&self, subject: &Subject, bytes: Vec<u8>) -> Result<Vec<u8>, SealError>;

    /// # Errors
    /// When the bytes are not those that were sealed for this subject.
    fn open(&self, subject: &Subject, bytes: Vec<u8>) -> Result<Vec<u8>, SealError>;
}

/// Why content cannot be sealed or opened. The message never holds content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SealError(pub String);

/// Leaves all bytes as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Seal for Plain {
    fn seal(&self, _: &Subject, bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
        Ok(bytes)
    }

    fn open(&self, _: &Subject, bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
        Ok(bytes)
    }
}

/// A new version of a state that is stored.
#[derive(Clone, Debug)]
pub struct Committed {
    pub namespace: String,
    pub workspace: String,
    pub version: Version,
    /// The state's file, not sealed.
    pub content: Bytes,
}

/// Is told of each version of a state after its head is written.
///
/// *Assumption.* A process can be killed between the write and the call. A sink that must have every version compares
/// what it has with [`crate::States::history`].
pub trait Sink: Debug + Send + Sync {
    /// Must not block: the runner waits for it.
    fn committed(&self, state: Committed);
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NoSink;

impl Sink for NoSink {
    fn committed(&self, _: Committed) {}
}

/// A seal and what it is used for.
#[derive(Clone, Debug)]
pub(crate) struct Sealer {
    seal: Arc<dyn Seal>,
    subject: Subject,
}

impl Sealer {
    pub(crate) fn new(seal: Arc<dyn Seal>, subject: Subject) -> Self {
        Self { seal, subject }
    }

    pub(crate) fn seal(&self, bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
        self.seal.seal(&self.subject, bytes)
    }

    pub(crate) fn open(&self, bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
        self.seal.open(&self.subject, bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Reverses the bytes behind a mark, so that a test sees what did not go through the seal.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Reversed;

    impl Seal for Reversed {
        fn seal(&self, subject: &Subject, mut bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
            bytes.reverse();
            Ok([mark(subject).as_bytes(), &bytes].concat())
        }

        fn open(&self, subject: &Subject, bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
            let bytes = bytes.strip_prefix(mark(subject).as_bytes());
            let mut bytes = bytes.ok_or_else(|| SealError(format!("not sealed for {subject:?}")))?.to_vec();
            bytes.reverse();
            Ok(bytes)
        }
    }

    fn mark(subject: &Subject) -> String {
        format!("{subject:?}\n")
    }

    pub(crate) fn plain() -> Sealer {
        Sealer::new(Arc::new(Plain), subject("w"))
    }

    pub(crate) fn subject(owner: &str) -> Subject {
        Subject { kind: ContentKind::State, namespace: "default".to_owned(), owner: owner.to_owned() }
    }
}
