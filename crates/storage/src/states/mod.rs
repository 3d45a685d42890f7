//! The states of Workspaces, in Secrets.
//!
//! *Guarantees.* A state is stored only by the claim that was made last: once a pod has claimed a head, no write of a pod
//! before it can land, however long it was under way, and the state that the new one reads has all that came before.
//! Whoever may read the Secrets of a namespace may read its states; only a Run changes them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{self, field_manager};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use tokio::sync::Mutex;

use crate::blob::{self, Blob, BlobError, CONTENT, PART, read_parts, write_parts};
use crate::error::Error;
use crate::messages::{is_invalid, is_namespace_terminating};
use crate::seal::{Committed, Sealer};
use crate::{ContentKind, Storage};

mod commands;
mod file;
mod head;
pub(crate) mod hold;
mod restore;
mod rules;

pub use commands::{push, rollback};
pub use file::{Error as FileError, Output, StateFile};
use head::Writes;
pub use head::{CopiedUpTo, Head, HeadError, Index, Owner, Version, summary};
pub use restore::{Restoration, RestoredState};
pub use rules::{Refusal, Taken, follows, may_force};

/// How often a write is made again because another one was faster.
const ATTEMPTS: usize = 5;

/// Serialises access to one Workspace's head Secret within this replica, and remembers the Secret.
#[derive(Default)]
struct Seat {
    /// The Secret as it was last read or written.
    secret: Option<Option<Secret>>,
    /// The last claim that was made or found here.
    claim: Option<Claim>,
}

/// A pod's claim to be the writer of a state.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The writer that the head names while the claim is valid: the pod's UID, and a random number that tells this claim
    /// from all others, so that one that lands late is not taken for another that was confirmed.
    writer: String,
    /// The head has named this writer since then at the latest.
    pub since: Instant,
}

impl Claim {
    fn now(writer: String) -> Self {
        Claim { writer, since: Instant::now() }
    }

    fn is_of(&self, pod: &str) -> bool {
        self.writer.split('/').next() == Some(pod)
    }
}

/// The states of all Workspaces.
pub struct States {
    storage: Storage,
    /// By namespace and Workspace.
    seats: Lock<HashMap<(String, String), Arc<Mutex<Seat>>>>,
}

impl States {
    pub(crate) fn new(storage: Storage) -> Self {
        States { storage, seats: Lock::default() }
    }

    /// The versions of a Workspace's state that are kept, the current one first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn history(&self, namespace: &str, workspace: &str) -> Result<Vec<Version>, Error> {
        let Index { current, history } = self.head(namespace, workspace).await?.index;
        Ok(current.into_iter().chain(history).collect())
    }

    /// The head of a Workspace's state, read anew.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn head_of(&self, namespace: &str, workspace: &str) -> Result<Head, Error> {
        self.head(namespace, workspace).await
    }

    /// A version that `head` names; nothing when it was replaced since, and its parts are gone.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn version_of(
        &self,
        namespace: &str,
        workspace: &str,
        head: &Head,
        version: &Version,
    ) -> Result<Option<Bytes>, Error> {
        match self.content(namespace, workspace, version, head.inline.clone()).await {
            Ok(content) => Ok(Some(content)),
            Err(Error::Blob(BlobError::MissingPart(part))) => {
                let now = self.head(namespace, workspace).await?.index;
                if now.parts().contains(part.as_str()) { Err(BlobError::MissingPart(part).into()) } else { Ok(None) }
            }
            Err(error) => Err(error),
        }
    }

    /// The current state of any Workspace, read anew; a Run may be changing it.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn read(&self, namespace: &str, workspace: &str) -> Result<Option<Bytes>, Error> {
        let Head { index, inline, .. } = self.head(namespace, workspace).await?;
        self.current(namespace, workspace, &index, inline).await
    }

    /// A version of a Workspace's state that is kept, by its serial.
    ///
    /// # Errors
    /// When it is not kept, cannot be read, or is damaged.
    pub async fn version(&self, namespace: &str, workspace: &str, serial: u64) -> Result<Bytes, Error> {
        let Head { index, inline, .. } = self.head(namespace, workspace).await?;
        let Some(version) = index.versions().find(|version| version.serial == serial) else {
            let kept = index.versions().map(|version| version.serial).collect();
            return Err(Error::NotKept { workspace: workspace.to_owned(), serial, kept });
        };
        self.content(namespace, workspace, version, inline).await
    }

    /// Reads the head of a Workspace's state anew for a Run that begins, and returns its dependency lock file. A `pod`
    /// that is to write the state claims it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn open(&self, namespace: &str, owner: &Owner, pod: Option<&str>) -> Result<Option<String>, Error> {
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        match pod {
            Some(pod) => drop(self.claim_anew(namespace, owner, pod, &mut seat).await?),
            None => seat.secret = Some(self.secret(namespace, &owner.workspace).await?),
        }
        let lock = Head::read(seat.secret.as_ref().and_then(Option::as_ref))?.lock;
        Ok(lock.and_then(|lock| String::from_utf8(lock).ok()))
    }

    /// The claim of this pod that the head has, as far as this replica knows; made now if it has none.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn claim(&self, namespace: &str, owner: &Owner, pod: &str) -> Result<Claim, Error> {
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        if let Some(claim) = seat.claim.as_ref().filter(|claim| claim.is_of(pod)) {
            return Ok(claim.clone());
        }
        let secret = self.secret(namespace, &owner.workspace).await?;
        let found = Head::read(secret.as_ref())?.writer.map(Claim::now).filter(|claim| claim.is_of(pod));
        (seat.secret, seat.claim) = (Some(secret), found.clone());
        match found {
            // Another replica has made it.
            Some(claim) => Ok(claim),
            None => self.claim_anew(namespace, owner, pod, &mut seat).await,
        }
    }

    /// One request: it creates the head if there is none, and its answer is the head as it is from then on.
    async fn claim_anew(&self, namespace: &str, owner: &Owner, pod: &str, seat: &mut Seat) -> Result<Claim, Error> {
        let writer = format!("{pod}/{:016x}", RandomState::new().hash_one(pod));
        let claimed = head::claim(owner, &writer);
        let params = PatchParams::apply(field_manager::HUB).force();
        (seat.secret, seat.claim) = (None, None);
        let name = names::state_secret(&owner.workspace);
        let secret = match self.api(namespace).patch(&name, &params, &Patch::Apply(&claimed)).await {
            Ok(secret) => secret,
            Err(error) if is_invalid(&error) => {
                // What is there has another type, which cannot be changed.
                self.secret(namespace, &owner.workspace).await?.as_ref().map_or(Ok(()), head::is_writable)?;
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        };
        head::is_writable(&secret)?;
        let claim = Claim::now(writer);
        (seat.secret, seat.claim) = (Some(Some(secret)), Some(claim.clone()));
        Ok(claim)
    }

    /// Forgets the head that was read for a Run, unless another pod has claimed it since.
    pub async fn close(&self, namespace: &str, workspace: &str, pod: &str) {
        let seat = self.seat(namespace, workspace);
        if seat.lock().await.claim.as_ref().is_none_or(|claim| claim.is_of(pod)) {
            let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
            seats.remove(&(namespace.to_owned(), workspace.to_owned()));
        }
    }

    /// The current state of a Workspace, by the head that [`States::open`] read. A Run that is about to `replace` the state
    /// by force gets an empty one in the place of a damaged one.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn opened(&self, namespace: &str, workspace: &str, replace: bool) -> Result<Option<Bytes>, Error> {
        let seat = self.seat(namespace, workspace);
        let mut seat = seat.lock().await;
        let secret = match seat.secret.take() {
            Some(secret) => secret,
            None => self.secret(namespace, workspace).await?,
        };
        let Head { index, inline, .. } = Head::read(secret.as_ref())?;
        seat.secret = Some(secret);
        match (self.current(namespace, workspace, &index, inline).await, index.current) {
            (Err(Error::Damaged(why)), Some(Version { serial, lineage, .. })) if replace => {
                tracing::warn!(namespace, workspace, serial, %why, "a damaged state is about to be replaced");
                Ok(Some(StateFile::empty(serial, &lineage).into()))
            }
            (state, _) => state,
        }
    }

    /// Makes `content` the current state, if [`follows`] allows it.
    ///
    /// # Errors
    /// When it does not follow, cannot be stored, or another claim was made since: [`Error::Superseded`].
    pub async fn put(
        &self,
        namespace: &str,
        owner: &Owner,
        claim: &Claim,
        run: &str,
        content: Bytes,
        force: bool,
    ) -> Result<Taken, Error> {
        let mut owner = owner.clone();
        let (file, blob) = self.pack(namespace, &owner.workspace, content.clone()).await?;
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        for _ in 0..ATTEMPTS {
            let secret = match seat.secret.take() {
                Some(secret) => secret,
                None => self.secret(namespace, &owner.workspace).await?,
            };
            let head = Head::read(secret.as_ref())?;
            if head.writer.as_ref() != Some(&claim.writer) {
                seat.claim = None;
                return Err(Error::Superseded);
            }
            if follows(head.index.current.as_ref(), &file, &blob.digest, force)? == Taken::Known {
                seat.secret = Some(secret);
                return Ok(Taken::Known);
            }
            let writes = head::put(&owner, &head, &file, blob.clone(), run, Timestamp::now());
            let written = match self.write(namespace, writes).await {
                // The current state is what counts when there is no room for an earlier one any more.
                Err(Error::Api(error)) if is_namespace_terminating(&error) && owner.keep > 1 => {
                    owner.keep = 1;
                    continue;
                }
                written => written?,
            };
            if let Some(stored) = written {
                self.report(namespace, &owner.workspace, &stored, content);
                seat.secret = Some(Some(stored));
                return Ok(Taken::Stored);
            }
        }
        Err(Error::Busy)
    }

    /// Parses and packs beside the other tasks, as a large state takes a while.
    async fn pack(&self, namespace: &str, workspace: &str, content: Bytes) -> Result<(StateFile, Blob), Error> {
        let sealer = self.sealer(namespace, workspace);
        let job = tokio::task::spawn_blocking(move || {
            let file = StateFile::parse(&content)?;
            Ok::<_, Error>((file, Blob::pack(&content, &sealer, PART)?))
        });
        job.await.map_err(|error| Error::Internal(error.to_string()))?
    }

    fn report(&self, namespace: &str, workspace: &str, head: &Secret, content: Bytes) {
        let version = Head::read(Some(head)).ok().and_then(|head| head.index.current);
        if let Some(version) = version {
            let (namespace, workspace) = (namespace.to_owned(), workspace.to_owned());
            self.storage.sink.committed(Committed { namespace, workspace, version, content });
        }
    }

    /// Stores a dependency lock file.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn put_lock(&self, namespace: &str, owner: &Owner, lock: &[u8]) -> Result<(), Error> {
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        for _ in 0..ATTEMPTS {
            let secret = match seat.secret.take() {
                Some(secret) => secret,
                None => self.secret(namespace, &owner.workspace).await?,
            };
            let head = Head::read(secret.as_ref())?;
            let next = head::put_lock(owner, &head, secret.as_ref(), lock.to_vec());
            if let Some(stored) = self.swap(namespace, &next).await? {
                seat.secret = Some(Some(stored));
                return Ok(());
            }
        }
        Err(Error::Busy)
    }

    /// Makes the writes in their order. Returns the new head, or nothing when another writer was faster.
    async fn write(&self, namespace: &str, writes: Writes) -> Result<Option<Secret>, Error> {
        let Writes { parts, head, unneeded } = writes;
        let is_held = head.metadata.finalizers.is_some();
        let api = self.api(namespace);
        write_parts(&api, parts, |_| {}).await?;
        let Some(head) = self.swap(namespace, &head).await? else { return Ok(None) };
        // The new state is safe; nobody has to wait for the old one to go.
        if !unneeded.is_empty() {
            tokio::spawn(async move {
                for name in unneeded {
                    let released = if is_held { hold::release(&api, &name).await } else { Ok(()) };
                    let deleted = api.delete(&name, &DeleteParams::background()).await;
                    if let Err(error) = released.and(deleted.map(drop)) {
                        tracing::debug!(name, %error, "a part of an old state stays");
                    }
                }
            });
        }
        Ok(Some(head))
    }

    /// Creates the head, or replaces it on its resourceVersion; nothing when another writer was faster.
    async fn swap(&self, namespace: &str, head: &Secret) -> Result<Option<Secret>, Error> {
        let api = self.api(namespace);
        let written = match (&head.metadata.resource_version, &head.metadata.name) {
            (Some(_), Some(name)) => api.replace(name, &PostParams::default(), head).await,
            _ => api.create(&PostParams::default(), head).await,
        };
        match written {
            Ok(stored) => Ok(Some(stored)),
            Err(kube::Error::Api(status))
                if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn current(
        &self,
        namespace: &str,
        workspace: &str,
        index: &Index,
        inline: Option<Vec<u8>>,
    ) -> Result<Option<Bytes>, Error> {
        let Some(version) = &index.current else {
            return Ok(None);
        };
        match self.content(namespace, workspace, version, inline).await {
            Err(Error::Api(error)) => Err(Error::Api(error)),
            content => Ok(Some(content.map_err(|error| Error::Damaged(Box::new(error)))?)),
        }
    }

    /// The content of a version; `inline` are the bytes that the head holds.
    async fn content(
        &self,
        namespace: &str,
        workspace: &str,
        version: &Version,
        inline: Option<Vec<u8>>,
    ) -> Result<Bytes, Error> {
        let stored = match inline {
            Some(inline) if version.parts.is_empty() => inline,
            _ => read_parts(&self.api(namespace), Vec::new(), &version.parts, CONTENT).await?,
        };
        Ok(blob::unpack(stored, &version.digest, &self.sealer(namespace, workspace))?.into())
    }

    async fn head(&self, namespace: &str, workspace: &str) -> Result<Head, Error> {
        Ok(Head::read(self.secret(namespace, workspace).await?.as_ref())?)
    }

    async fn secret(&self, namespace: &str, workspace: &str) -> Result<Option<Secret>, Error> {
        Ok(self.api(namespace).get_opt(&names::state_secret(workspace)).await?)
    }

    fn sealer(&self, namespace: &str, workspace: &str) -> Sealer {
        self.storage.sealer(ContentKind::State, namespace, workspace)
    }

    fn api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.storage.client().clone(), namespace)
    }

    fn seat(&self, namespace: &str, workspace: &str) -> Arc<Mutex<Seat>> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(seats.entry((namespace.to_owned(), workspace.to_owned())).or_default())
    }
}

#[cfg(test)]
mod tests;
