//! Keeps states, plans and lock files in Secrets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Lock, PoisonError};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{self, annotation};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Mutex;

use crate::chunks::{self, PART};
use crate::error::Error;
use crate::state_file::StateFile;
use crate::versions::{self, CONTENT, Head, Index, Owner, Version, Write};

/// How often a write is made again because another one was faster.
const ATTEMPTS: usize = 5;
/// How many parts are fetched at the same time.
const AT_ONCE: usize = 4;

/// The Secret of one head, as this replica last read or wrote it.
type Seat = Arc<Mutex<Option<Option<Secret>>>>;

/// The states of all Workspaces.
pub struct Store {
    client: Client,
    /// One seat a Workspace: who sits in it is the only one of this replica to read and write its head.
    seats: Lock<HashMap<(String, String), Seat>>,
}

/// What became of a state that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is stored.
    Stored,
    /// It was stored already.
    Known,
}

impl Store {
    /// Nothing is read yet.
    pub fn new(client: Client) -> Self {
        Store { client, seats: Lock::default() }
    }

    /// Reads the head of a Workspace's state anew, for the run that begins, and returns its dependency lock file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn open(&self, namespace: &str, workspace: &str) -> Result<Option<String>, Error> {
        let seat = self.seat(namespace, workspace);
        let mut seat = seat.lock().await;
        let secret = self.read(namespace, workspace).await?;
        let lock = Head::read(secret.as_ref())?.lock;
        *seat = Some(secret);
        Ok(lock.and_then(|lock| String::from_utf8(lock).ok()))
    }

    /// Forgets what was read for a run.
    pub fn close(&self, namespace: &str, workspace: &str) {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.remove(&(namespace.to_owned(), workspace.to_owned()));
    }

    /// The current state of a Workspace, by the head that [`Store::open`] read. Who is about to `replace` it by force gets
    /// an empty one in the place of one that is damaged.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn state(&self, namespace: &str, workspace: &str, replace: bool) -> Result<Option<Bytes>, Error> {
        let seat = self.seat(namespace, workspace);
        let mut seat = seat.lock().await;
        let secret = match seat.take() {
            Some(secret) => secret,
            None => self.read(namespace, workspace).await?,
        };
        let Head { index, inline, .. } = Head::read(secret.as_ref())?;
        *seat = Some(secret);
        match (self.current(namespace, &index, inline).await, index.current) {
            (Err(Error::Damaged(why)), Some(Version { serial, lineage, .. })) if replace => {
                tracing::warn!(namespace, workspace, serial, %why, "a damaged state is about to be replaced");
                Ok(Some(StateFile::empty(serial, &lineage).into()))
            }
            (state, _) => state,
        }
    }

    /// The current state of any Workspace, read anew; it may be another run's to change.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn look(&self, namespace: &str, workspace: &str) -> Result<Option<Bytes>, Error> {
        let Head { index, inline, .. } = Head::read(self.read(namespace, workspace).await?.as_ref())?;
        self.current(namespace, &index, inline).await
    }

    /// What is kept of a Workspace's state, and the version of that serial when it is.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn version(
        &self,
        namespace: &str,
        workspace: &str,
        serial: u64,
    ) -> Result<(Index, Option<Bytes>), Error> {
        let Head { index, inline, .. } = Head::read(self.read(namespace, workspace).await?.as_ref())?;
        let Some(version) = index.current.iter().chain(&index.history).find(|version| version.serial == serial) else {
            return Ok((index, None));
        };
        let content = self.content(namespace, version, inline).await?;
        Ok((index, Some(content)))
    }

    /// Makes `content` the current state. It follows on the stored one: the same lineage and a higher serial. With `force`
    /// it may be of another lineage.
    ///
    /// # Errors
    /// When it does not follow, or cannot be stored.
    pub async fn put_state(
        &self,
        namespace: &str,
        owner: &Owner,
        run: &str,
        content: Bytes,
        force: bool,
    ) -> Result<Taken, Error> {
        // Large states take a while to parse and to pack.
        let job = tokio::task::spawn_blocking(move || {
            let file = StateFile::parse(&content)?;
            let packed = chunks::pack(&content, PART).map_err(|error| Error::Internal(error.to_string()))?;
            Ok::<_, Error>((file, packed))
        });
        let (file, packed) = job.await.map_err(|error| Error::Internal(error.to_string()))??;
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        for _ in 0..ATTEMPTS {
            let secret = match seat.take() {
                Some(secret) => secret,
                None => self.read(namespace, &owner.workspace).await?,
            };
            let head = Head::read(secret.as_ref())?;
            if follows(head.index.current.as_ref(), &file, &packed.digest, force)? == Taken::Known {
                *seat = Some(secret);
                return Ok(Taken::Known);
            }
            let writes = versions::put(owner, &head, &file, packed.clone(), run, Timestamp::now());
            if let Some(stored) = self.write(namespace, writes).await? {
                *seat = Some(Some(stored));
                return Ok(Taken::Stored);
            }
        }
        Err(Error::NotYet("the state's Secret changes too often".to_owned()))
    }

    /// Keeps a dependency lock file.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn put_lock(&self, namespace: &str, owner: &Owner, lock: &[u8]) -> Result<(), Error> {
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        for _ in 0..ATTEMPTS {
            let secret = match seat.take() {
                Some(secret) => secret,
                None => self.read(namespace, &owner.workspace).await?,
            };
            let head = Head::read(secret.as_ref())?;
            let write = versions::put_lock(owner, &head, secret.as_ref(), lock.to_vec());
            if let Some(stored) = self.write(namespace, vec![write]).await? {
                *seat = Some(Some(stored));
                return Ok(());
            }
        }
        Err(Error::NotYet("the state's Secret changes too often".to_owned()))
    }

    /// Makes the writes in their order. Returns the new head, or nothing when another writer was faster.
    async fn write(&self, namespace: &str, writes: Vec<Write>) -> Result<Option<Secret>, Error> {
        let api = self.api(namespace);
        let mut head = None;
        let mut deletes = Vec::new();
        for write in writes {
            match write {
                Write::Create(secret) => create_once(&api, &secret).await?,
                Write::Head(secret) => {
                    let name = secret.metadata.name.clone().unwrap_or_default();
                    let written = match secret.metadata.resource_version {
                        None => api.create(&PostParams::default(), &secret).await,
                        Some(_) => api.replace(&name, &PostParams::default(), &secret).await,
                    };
                    match written {
                        Ok(stored) => head = Some(stored),
                        Err(kube::Error::Api(status))
                            if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
                        {
                            return Ok(None);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Write::Delete(name) => deletes.push(name),
            }
        }
        // The new state is safe; nobody has to wait for the old one to go.
        if !deletes.is_empty() {
            tokio::spawn(async move {
                for name in deletes {
                    if let Err(error) = api.delete(&name, &DeleteParams::background()).await {
                        tracing::debug!(name, %error, "a part of an old state stays");
                    }
                }
            });
        }
        Ok(head)
    }

    async fn current(&self, namespace: &str, index: &Index, inline: Option<Vec<u8>>) -> Result<Option<Bytes>, Error> {
        let Some(version) = &index.current else {
            return Ok(None);
        };
        match self.content(namespace, version, inline).await {
            Err(Error::Api(error)) if !matches!(&error, kube::Error::Api(status) if status.is_not_found()) => {
                Err(Error::Api(error))
            }
            content => Ok(Some(content.map_err(|error| Error::Damaged(Box::new(error)))?)),
        }
    }

    /// The content of a version; `inline` is what the head holds.
    async fn content(&self, namespace: &str, version: &Version, inline: Option<Vec<u8>>) -> Result<Bytes, Error> {
        let parts = match inline {
            Some(inline) if version.parts.is_empty() => vec![inline],
            _ => self.parts(namespace, &version.parts).await?,
        };
        Ok(chunks::unpack(parts.iter().map(Vec::as_slice), &version.digest)?.into())
    }

    /// The content of these Secrets, in their order.
    pub(crate) async fn parts(&self, namespace: &str, names: &[String]) -> Result<Vec<Vec<u8>>, Error> {
        let api = self.api(namespace);
        stream::iter(names.to_vec())
            .map(move |name| {
                let api = api.clone();
                async move {
                    let secret = api.get(&name).await?;
                    let content = secret.data.unwrap_or_default().remove(CONTENT);
                    content.map(|content| content.0).ok_or_else(|| {
                        Error::Conflict(format!("the Secret `{name}` has no content; somebody changed it"))
                    })
                }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    async fn read(&self, namespace: &str, workspace: &str) -> Result<Option<Secret>, Error> {
        Ok(self.api(namespace).get_opt(&names::state_secret(workspace)).await?)
    }

    fn api(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn seat(&self, namespace: &str, workspace: &str) -> Seat {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(seats.entry((namespace.to_owned(), workspace.to_owned())).or_default())
    }
}

/// Creates a Secret whose name stands for its content. One that is there is from an attempt that was cut off.
pub(crate) async fn create_once(api: &Api<Secret>, secret: &Secret) -> Result<(), Error> {
    match api.create(&PostParams::default(), secret).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let name = secret.metadata.name.clone().unwrap_or_default();
            let known = api.get(&name).await?;
            if known.data == secret.data {
                // What is marked as used is not swept before the head names it.
                let used = json!({"metadata": {"annotations": {annotation::USED_AT: Timestamp::now().to_string()}}});
                api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&used)).await?;
                return Ok(());
            }
            Err(Error::Conflict(format!("there is a Secret `{name}` with other content; delete it")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a state may take the place of the stored one.
fn follows(current: Option<&Version>, file: &StateFile, digest: &str, force: bool) -> Result<Taken, Error> {
    let Some(current) = current else {
        return Ok(Taken::Stored);
    };
    if current.digest == digest {
        return Ok(Taken::Known);
    }
    if current.lineage != file.lineage {
        if force {
            return Ok(Taken::Stored);
        }
        return Err(Error::Conflict(format!(
            "the state has the lineage `{}`, but the Workspace's state has `{}`; they are not of the same infrastructure; `state push -force` replaces it",
            file.lineage, current.lineage
        )));
    }
    if current.serial >= file.serial {
        return Err(Error::Conflict(format!(
            "the state has the serial {}, but the Workspace's state has {} already, with other content",
            file.serial, current.serial
        )));
    }
    Ok(Taken::Stored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_state_follows_on_its_own_lineage_with_a_higher_serial() {
        let current =
            |serial, digest: &str| Version { serial, lineage: "l".into(), digest: digest.into(), ..Version::default() };
        let file = |serial, lineage: &str| StateFile {
            serial,
            lineage: lineage.into(),
            resources: 0,
            outputs: Default::default(),
        };
        assert_eq!(follows(None, &file(1, "l"), "a", false).unwrap(), Taken::Stored);
        assert_eq!(follows(Some(&current(1, "a")), &file(2, "l"), "b", false).unwrap(), Taken::Stored);
        assert_eq!(follows(Some(&current(2, "b")), &file(2, "l"), "b", false).unwrap(), Taken::Known);
        for refused in [file(2, "l"), file(1, "l"), file(9, "other")] {
            assert!(matches!(follows(Some(&current(2, "b")), &refused, "c", false), Err(Error::Conflict(_))));
        }
        assert_eq!(follows(Some(&current(2, "b")), &file(1, "other"), "c", true).unwrap(), Taken::Stored);
    }
}
