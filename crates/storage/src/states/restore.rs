//! Makes a state that was copied out of the cluster the current one again.
//!
//! *Guarantees.* The head is replaced on the version that was read, and names a writer of its own afterwards: a state that
//! was written or claimed in between stays, and no pod that claimed the head before writes over what was restored.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use jiff::Timestamp;

use super::head::{self, Head, Owner, Version};
use super::rules::{Taken, follows};
use super::{StateFile, States};
use crate::blob::Blob;
use crate::error::Error;

/// A state as it was copied.
#[derive(Clone, Debug)]
pub struct RestoredState {
    pub content: Bytes,
    /// The Run that wrote it.
    pub run: String,
    /// When it was written into the cluster that it came from.
    pub written_at: Timestamp,
    /// The dependency lock file that the Workspace had then.
    pub lock: Option<String>,
}

/// A restore that nothing forbids. The caller makes sure that no Run changes the state now, before it goes on.
#[derive(Debug)]
pub struct Restoration {
    owner: Owner,
    head: Head,
    file: StateFile,
    blob: Blob,
    state: RestoredState,
    taken: Taken,
}

impl Restoration {
    /// Whether the state is the current one already.
    #[must_use]
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// The version that is current now.
    #[must_use]
    pub fn replaces(&self) -> Option<&Version> {
        self.head.index.current.as_ref()
    }

    #[must_use]
    pub fn serial(&self) -> u64 {
        self.file.serial
    }
}

impl States {
    /// Reads the head of a Workspace's state and decides whether `state` may take its place: there is none, or one of the
    /// same lineage with a lower serial; with `force` any.
    ///
    /// # Errors
    /// When it may not, or the head cannot be read.
    pub async fn prepare_restore(
        &self,
        namespace: &str,
        owner: Owner,
        state: RestoredState,
        force: bool,
    ) -> Result<Restoration, Error> {
        let (file, blob) = self.pack(namespace, &owner.workspace, state.content.clone()).await?;
        let head = self.head(namespace, &owner.workspace).await?;
        let taken = match follows(head.index.current.as_ref(), &file, &blob.digest, force) {
            Ok(taken) => taken,
            Err(_) if force => Taken::Stored,
            Err(refusal) => return Err(refusal.into()),
        };
        Ok(Restoration { owner, head, file, blob, state, taken })
    }

    /// Writes the state. Cut off anywhere, it leaves what was there before, or what was restored.
    ///
    /// # Errors
    /// When the head has changed since it was read ([`Error::Busy`]), or the API refuses it.
    pub async fn restore(&self, namespace: &str, restoration: Restoration) -> Result<(), Error> {
        let Restoration { owner, mut head, file, blob, state, taken } = restoration;
        if taken == Taken::Known {
            return Ok(());
        }
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        (seat.secret, seat.claim) = (None, None);
        head.writer = Some(format!("restore/{:016x}", RandomState::new().hash_one(&state.run)));
        head.lock = state.lock.map(String::into_bytes).or(head.lock);
        let writes = head::put(&owner, &head, &file, blob, &state.run, state.written_at);
        match self.write(namespace, writes).await? {
            Some(stored) => {
                self.report(namespace, &owner.workspace, &stored, state.content);
                Ok(())
            }
            None => Err(Error::Busy),
        }
    }
}
