//! Keeps states, plans and lock files in Secrets.
//!
//! *Guarantees.* A state is stored only by the claim that was made last: once a pod has claimed a head, no write of a pod
//! before it can land, however long it was under way, and the state that the new one reads has all that came before.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{self, annotation, field_manager};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Mutex;

use super::file::StateFile;
use super::head::{self as versions, CONTENT, Head, Index, Owner, Version, Write};
use crate::chunks::{self, PART};
use crate::error::Error;

/// How often a write is made again because another one was faster.
const ATTEMPTS: usize = 5;
/// How many parts are fetched at the same time.
const AT_ONCE: usize = 4;

/// What this replica knows of one head.
#[derive(Default)]
struct Seat {
    /// Its Secret, as it was last read or written.
    secret: Option<Option<Secret>>,
    /// The last claim that was made or found here.
    claim: Option<Claim>,
}

/// A pod's claim to be the one that writes.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What the head says while the claim holds: the pod's UID, and a word by which this claim differs from all others, so
    /// that one that lands late is not taken for another that was confirmed.
    writer: String,
    /// The head has had it since then at the latest.
    pub since: Instant,
}

impl Claim {
    /// A claim that the head has now.
    fn now(writer: String) -> Self {
        Claim { writer, since: Instant::now() }
    }

    fn is_of(&self, pod: &str) -> bool {
        self.writer.split('/').next() == Some(pod)
    }
}

/// The states of all Workspaces.
pub struct Store {
    client: Client,
    /// One seat a Workspace: who sits in it is the only one of this replica to read and write its head.
    seats: Lock<HashMap<(String, String), Arc<Mutex<Seat>>>>,
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

    /// Reads the head of a Workspace's state anew, for the run that begins, and returns its dependency lock file. A `pod`
    /// that is to write the state claims it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn open(&self, namespace: &str, owner: &Owner, pod: Option<&str>) -> Result<Option<String>, Error> {
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        match pod {
            Some(pod) => drop(self.claim_anew(namespace, owner, pod, &mut seat).await?),
            None => seat.secret = Some(self.read(namespace, &owner.workspace).await?),
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
        let secret = self.read(namespace, &owner.workspace).await?;
        let found = Head::read(secret.as_ref())?.writer.map(Claim::now).filter(|claim| claim.is_of(pod));
        (seat.secret, seat.claim) = (Some(secret), found.clone());
        match found {
            // Another replica has made it.
            Some(claim) => Ok(claim),
            None => self.claim_anew(namespace, owner, pod, &mut seat).await,
        }
    }

    /// One request: it makes the head if there is none, and its answer is the head as it is from then on.
    async fn claim_anew(&self, namespace: &str, owner: &Owner, pod: &str, seat: &mut Seat) -> Result<Claim, Error> {
        let writer = format!("{pod}/{:016x}", RandomState::new().hash_one(pod));
        let wanted = versions::claim(owner, &writer);
        let params = PatchParams::apply(field_manager::HUB).force();
        (seat.secret, seat.claim) = (None, None);
        let name = names::state_secret(&owner.workspace);
        let secret = self.api(namespace).patch(&name, &params, &Patch::Apply(&wanted)).await?;
        let claim = Claim::now(writer);
        (seat.secret, seat.claim) = (Some(Some(secret)), Some(claim.clone()));
        Ok(claim)
    }

    /// Forgets what was read for a run, unless another pod has claimed it since.
    pub async fn close(&self, namespace: &str, workspace: &str, pod: &str) {
        let seat = self.seat(namespace, workspace);
        if seat.lock().await.claim.as_ref().is_none_or(|claim| claim.is_of(pod)) {
            let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
            seats.remove(&(namespace.to_owned(), workspace.to_owned()));
        }
    }

    /// The current state of a Workspace, by the head that [`Store::open`] read. Who is about to `replace` it by force gets
    /// an empty one in the place of one that is damaged.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn state(&self, namespace: &str, workspace: &str, replace: bool) -> Result<Option<Bytes>, Error> {
        let seat = self.seat(namespace, workspace);
        let mut seat = seat.lock().await;
        let secret = match seat.secret.take() {
            Some(secret) => secret,
            None => self.read(namespace, workspace).await?,
        };
        let Head { index, inline, .. } = Head::read(secret.as_ref())?;
        seat.secret = Some(secret);
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
    /// When it does not follow, cannot be stored, or another claim was made since: [`Error::Superseded`].
    pub async fn put_state(
        &self,
        namespace: &str,
        owner: &Owner,
        claim: &Claim,
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
            let secret = match seat.secret.take() {
                Some(secret) => secret,
                None => self.read(namespace, &owner.workspace).await?,
            };
            let head = Head::read(secret.as_ref())?;
            if head.writer.as_ref() != Some(&claim.writer) {
                seat.claim = None;
                return Err(Error::Superseded);
            }
            if follows(head.index.current.as_ref(), &file, &packed.digest, force)? == Taken::Known {
                seat.secret = Some(secret);
                return Ok(Taken::Known);
            }
            let writes = versions::put(owner, &head, &file, packed.clone(), run, Timestamp::now());
            if let Some(stored) = self.write(namespace, writes).await? {
                seat.secret = Some(Some(stored));
                return Ok(Taken::Stored);
            }
        }
        Err(Error::Busy)
    }

    /// Keeps a dependency lock file.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn put_lock(&self, namespace: &str, owner: &Owner, lock: &[u8]) -> Result<(), Error> {
        let seat = self.seat(namespace, &owner.workspace);
        let mut seat = seat.lock().await;
        for _ in 0..ATTEMPTS {
            let secret = match seat.secret.take() {
                Some(secret) => secret,
                None => self.read(namespace, &owner.workspace).await?,
            };
            let head = Head::read(secret.as_ref())?;
            let write = versions::put_lock(owner, &head, secret.as_ref(), lock.to_vec());
            if let Some(stored) = self.write(namespace, vec![write]).await? {
                seat.secret = Some(Some(stored));
                return Ok(());
            }
        }
        Err(Error::Busy)
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

    fn seat(&self, namespace: &str, workspace: &str) -> Arc<Mutex<Seat>> {
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

    use knoll_embedded::Cluster;

    use super::*;

    const NAMESPACE: &str = "default";

    fn content(serial: u64) -> Bytes {
        json!({"version": 4, "serial": serial, "lineage": "l", "resources": [], "outputs": {}}).to_string().into()
    }

    async fn put(store: &Store, claim: &Claim, serial: u64) -> Result<Taken, Error> {
        store.put_state(NAMESPACE, &owner(), claim, "r", content(serial), false).await
    }

    fn owner() -> Owner {
        Owner { workspace: "w".to_owned(), reference: None, keep: 10 }
    }

    /// Each replica has a store of its own.
    #[tokio::test]
    async fn a_write_that_is_under_way_does_not_land_behind_the_claim_of_the_next_run() {
        let cluster = Cluster::memory().await.unwrap();
        let [ours, theirs] = [(); 2].map(|()| Store::new(cluster.client()));
        ours.open(NAMESPACE, &owner(), Some("first")).await.unwrap();
        let first = ours.claim(NAMESPACE, &owner(), "first").await.unwrap();
        assert_eq!(put(&ours, &first, 1).await.unwrap(), Taken::Stored);

        theirs.open(NAMESPACE, &owner(), Some("next")).await.unwrap();
        let next = theirs.claim(NAMESPACE, &owner(), "next").await.unwrap();
        assert_eq!(theirs.state(NAMESPACE, "w", false).await.unwrap(), Some(content(1)));
        // To its replica the head is still the one that it wrote itself.
        assert!(matches!(put(&ours, &first, 2).await, Err(Error::Superseded)));
        assert_eq!(put(&theirs, &next, 2).await.unwrap(), Taken::Stored);

        // A claim of the first one that lands late is another one, and the next one claims the state back.
        Store::new(cluster.client()).open(NAMESPACE, &owner(), Some("first")).await.unwrap();
        assert!(matches!(put(&ours, &first, 3).await, Err(Error::Superseded)));
        assert!(matches!(put(&theirs, &next, 3).await, Err(Error::Superseded)));
        let again = theirs.claim(NAMESPACE, &owner(), "next").await.unwrap();
        assert!(again.since > next.since);
        assert_eq!(put(&theirs, &again, 3).await.unwrap(), Taken::Stored);
        assert_eq!(ours.look(NAMESPACE, "w").await.unwrap(), Some(content(3)));
        // Another replica takes the claim for what it is, and writes nothing to know of it.
        let before = ours.read(NAMESPACE, "w").await.unwrap();
        let elsewhere = ours.claim(NAMESPACE, &owner(), "next").await.unwrap();
        assert_eq!(
            (elsewhere.writer.as_str(), ours.read(NAMESPACE, "w").await.unwrap()),
            (again.writer.as_str(), before)
        );
        assert!(elsewhere.since > again.since, "it has to be confirmed there, too");
    }

    #[tokio::test]
    async fn a_run_that_only_reads_claims_nothing_and_leaves_the_claim_of_another_alone() {
        let cluster = Cluster::memory().await.unwrap();
        let store = Store::new(cluster.client());
        assert_eq!(store.open(NAMESPACE, &owner(), None).await.unwrap(), None);
        assert!(store.read(NAMESPACE, "w").await.unwrap().is_none(), "to read is to write nothing");
        let writer = store.claim(NAMESPACE, &owner(), "writer").await.unwrap();
        store.open(NAMESPACE, &owner(), None).await.unwrap();
        store.put_lock(NAMESPACE, &owner(), b"lock").await.unwrap();
        store.close(NAMESPACE, "w", "reader").await;
        assert_eq!(store.claim(NAMESPACE, &owner(), "writer").await.unwrap().writer, writer.writer);
        assert_eq!(put(&store, &writer, 1).await.unwrap(), Taken::Stored);
        assert_eq!(store.open(NAMESPACE, &owner(), None).await.unwrap().as_deref(), Some("lock"));
    }

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
