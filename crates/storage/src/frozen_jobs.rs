//! The frozen jobs of Runs: immutable Secrets, named after their content. Beside each lie copies of what its pods take
//! from Secrets and ConfigMaps by name, in immutable Secrets as well.
//!
//! *Guarantees.* No job is used, and no pod gets a copy, that is not an immutable Secret of exactly this Run with the content
//! that was frozen. A Run has one set of Secrets, however often its job is frozen before its status names it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::Digest;
use knoll_api::names::{self, annotation, content, label};
use knoll_api::pod::PodSettingsError;
use knoll_api::run::{FrozenJobSummary, Run};
use knoll_api::workspace::Workspace;
use knoll_core::frozen::copies::CopyOf;
use knoll_core::frozen::{self, FrozenJob, PodTemplate, Reference, ReferenceDigest, ReferenceKind, Usage};
use knoll_core::identity::ObjectId;
use knoll_core::policy::Supplied;
use kube::api::{ListParams, PartialObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use sha2::{Digest as _, Sha256};

use crate::blob::{BlobError, LARGEST, delete_unchanged};
use crate::error::Error;
use crate::owned::{self, Owned};
use crate::variables::{Lookup, VariablesError};
use crate::{ContentKind, Storage, message_of, random};

/// Why there is no frozen job.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// Something that the Run refers to is not there.
    #[error(transparent)]
    Variables(VariablesError),
    #[error("`{0}`, which the pods of the run use, does not exist; create it and start the run again")]
    Missing(Reference),
    #[error("{0}; correct it in the Workspace and start the run again")]
    Settings(#[from] PodSettingsError),
    /// The frozen job, or something that it refers to, is not what it was.
    #[error("{}", frozen::changed_since_planned(.0))]
    Changed(String),
    #[error(transparent)]
    Store(Error),
    #[error("the Kubernetes API failed: {}", message_of(.0))]
    Api(#[from] kube::Error),
}

impl From<VariablesError> for FreezeError {
    fn from(error: VariablesError) -> Self {
        match error {
            VariablesError::Api(error) => Self::Api(error),
            error => Self::Variables(error),
        }
    }
}

impl From<Error> for FreezeError {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(error) => Self::Api(error),
            error => Self::Store(error),
        }
    }
}

/// The frozen jobs of Runs.
pub struct FrozenJobs {
    storage: Storage,
}

impl FrozenJobs {
    pub(crate) fn new(storage: Storage) -> Self {
        FrozenJobs { storage }
    }

    /// Freezes the job of a Run as everything is now, and stores it. Policies have `supplied` what the Workspace does not
    /// say itself.
    ///
    /// # Errors
    /// When something that the Run refers to is not there, or the job cannot be stored.
    pub async fn freeze(
        &self,
        run: &Run,
        workspace: &Workspace,
        pods: PodTemplate,
        supplied: &Supplied,
    ) -> Result<(FrozenJob, FrozenJobSummary), FreezeError> {
        let id = ObjectId::of(run).map_err(Error::from)?;
        let wanted = frozen::references(&pods.settings, &run.spec.hooks)?;
        let content = self.read(&id.namespace, &wanted).await?;
        let is_missing = |it: &&Reference| !it.optional && content.of(it.kind, &it.name).is_none();
        if let Some(missing) = wanted.iter().find(is_missing) {
            return Err(FreezeError::Missing(missing.clone()));
        }
        let references = content.digests(wanted);
        let inputs = Lookup::new(&self.storage, &id.namespace).inputs(run, workspace, &pods.settings, supplied).await?;
        let left = self.left(&id).await?;
        let salt = match self.salt(&id, &left).await? {
            Some(salt) => salt,
            None => random::digest()?.into(),
        };
        let job = FrozenJob { salt, pods, inputs, references, copied: true };
        let bytes = serde_json::to_vec(&job).map_err(|error| Error::Blob(BlobError::Format(error)))?;
        let digest = Digest::of(&bytes);
        let mut summary = job.summary(&digest);
        let secret = names::job_secret(&id.name, digest.as_str());
        let owned = Owned { immutable: true, ..Owned::of_run(run, &id, content::JOB, secret.clone()) };
        // The job is stored before its copies: an attempt that is cut off leaves its salt to the next one.
        if left.iter().any(|it| it.name_any() == secret) {
            self.stored(&id, &summary).await?;
        } else {
            let sealer = self.storage.sealer(ContentKind::Job, &id.namespace, &id.name);
            owned.put::<Secret>(&self.storage, &id.namespace, &sealer, &bytes).await?;
        }
        summary.copies = self.copy(&id, &owned, &job, &digest, &content).await?;
        self.tidy(&id, &left, &secret).await?;
        Ok((job, summary))
    }

    /// What earlier attempts to freeze the job of this Run have stored: jobs, their parts and copies.
    async fn left(&self, id: &ObjectId) -> Result<Vec<PartialObjectMeta<Secret>>, Error> {
        let selector = format!("{}={},{}={}", label::RUN, id.name, label::CONTENT, content::JOB);
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), &id.namespace);
        let found = api.list_metadata(&ListParams::default().labels(&selector)).await?;
        // Users choose labels and owners too, but not these names.
        let prefix = names::job_secret(&id.name, "");
        let is_own = |it: &PartialObjectMeta<Secret>| it.name_any().starts_with(&prefix) && is_of(&it.metadata, id);
        Ok(found.items.into_iter().filter(is_own).collect())
    }

    /// The salt of an earlier attempt. With it, the same content has the same digest and so the same names.
    async fn salt(&self, id: &ObjectId, left: &[PartialObjectMeta<Secret>]) -> Result<Option<String>, Error> {
        let digest = |it: &PartialObjectMeta<Secret>| it.annotations().get(annotation::DIGEST).cloned();
        let is_job = |it: &&PartialObjectMeta<Secret>| {
            digest(it).is_some_and(|digest| it.name_any() == names::job_secret(&id.name, &digest))
        };
        let sealer = self.storage.sealer(ContentKind::Job, &id.namespace, &id.name);
        for job in left.iter().filter(is_job) {
            let stored = match owned::get::<Secret>(&self.storage, &id.namespace, &sealer, &job.name_any()).await {
                Ok(stored) => stored,
                // It is damaged, and so of no use.
                Err(Error::Blob(_)) => None,
                Err(error) => return Err(error),
            };
            let job = stored.and_then(|stored| serde_json::from_slice::<FrozenJob>(&stored).ok());
            let salt = job.map(|job| job.salt).filter(|salt| salt.parse::<Digest>().is_ok());
            if salt.is_some() {
                return Ok(salt);
            }
        }
        Ok(None)
    }

    /// Deletes what earlier attempts have left of other content than `job`.
    async fn tidy(&self, id: &ObjectId, left: &[PartialObjectMeta<Secret>], job: &str) -> Result<(), Error> {
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), &id.namespace);
        let of_job = format!("{job}-");
        for old in left.iter().filter(|old| old.name_any() != job && !old.name_any().starts_with(&of_job)) {
            delete_unchanged(&api, old).await?;
        }
        Ok(())
    }

    /// Stores the copies that the pods of a job use, as they are: the kubelet reads them. Returns their UIDs.
    async fn copy(
        &self,
        id: &ObjectId,
        owned: &Owned,
        job: &FrozenJob,
        digest: &Digest,
        content: &Content,
    ) -> Result<Vec<String>, Error> {
        let mut uids = Vec::new();
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), &id.namespace);
        let keys = job.objects();
        for (object, name) in job.copies(&id.name, digest.as_str()).iter() {
            let data = content.of(object.kind, &object.name).map(|data| data.seen(object.usage));
            let wanted = keys.get(object).and_then(Option::as_ref);
            let mut data: BTreeMap<String, ByteString> =
                data.into_iter().flatten().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect();
            data.retain(|key, _| wanted.is_none_or(|wanted| wanted.contains(key)));
            let copy: Secret = owned.object(name, digest, Some(true), data);
            let stored = match api.create(&PostParams::default(), &copy).await {
                Ok(stored) => stored,
                // An earlier attempt has made it, unless it is somebody else's.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    let known = api.get_opt(name).await?.filter(|known| is_copy(job, object, id, known));
                    known.ok_or_else(|| BlobError::Occupied { kind: "Secret".to_owned(), name: name.to_owned() })?
                }
                Err(error) => return Err(error.into()),
            };
            uids.push(stored.uid().unwrap_or_default());
        }
        Ok(uids)
    }

    /// The frozen job of a Run, after a look at all that it refers to by name, and at the copies of it that its pods have:
    /// all of that is still what it was.
    ///
    /// # Errors
    /// When the job, something that it refers to, or a copy is not what was frozen.
    pub async fn get(&self, run: &Run, summary: &FrozenJobSummary) -> Result<FrozenJob, FreezeError> {
        let id = ObjectId::of(run).map_err(Error::from)?;
        let job = self.stored(&id, summary).await?;
        let wanted = job.references.iter().map(|known| known.reference.clone()).collect();
        let now = self.read(&id.namespace, &wanted).await?;
        match job.changed(&now.digests(wanted)) {
            Some(reference) => Err(FreezeError::Changed(format!("`{reference}`, which the pods of the run use,"))),
            None => {
                self.compare_copies(&id, &job, summary).await?;
                Ok(job)
            }
        }
    }

    /// Compares the copies that pods mount with what was frozen. An immutable Secret can still be deleted and made again:
    /// the UID tells, also when the content is back that it had.
    async fn compare_copies(
        &self,
        id: &ObjectId,
        job: &FrozenJob,
        summary: &FrozenJobSummary,
    ) -> Result<(), FreezeError> {
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), &id.namespace);
        for (number, (object, name)) in job.copies(&id.name, &summary.digest).iter().enumerate() {
            // A job that was frozen by an earlier version names no UIDs.
            let is_known =
                |copy: &Secret| summary.copies.is_empty() || summary.copies.get(number) == copy.uid().as_ref();
            let copy = api.get_opt(name).await?;
            if !copy.is_some_and(|copy| is_known(&copy) && is_copy(job, object, id, &copy)) {
                let CopyOf { kind, name: original, usage: _ } = object;
                let what = format!(
                    "The Secret `{name}`, the frozen copy of `{kind:?}/{original}` that the pods of the run use,"
                );
                return Err(FreezeError::Changed(what));
            }
        }
        Ok(())
    }

    /// The frozen job of a Run as it was frozen, whatever has become of the things that it refers to.
    ///
    /// # Errors
    /// When the job is not what was frozen.
    pub async fn stored(&self, run: &ObjectId, summary: &FrozenJobSummary) -> Result<FrozenJob, FreezeError> {
        let secret = names::job_secret(&run.name, &summary.digest);
        let changed = || FreezeError::Changed(frozen::job_of(&run.name, summary));
        let sealer = self.storage.sealer(ContentKind::Job, &run.namespace, &run.name);
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), &run.namespace);
        let head = api.get_opt(&secret).await?.filter(|head| is_frozen(head, run)).ok_or_else(changed)?;
        let content = match owned::read(&api, head, &sealer, LARGEST).await {
            Ok(content) => content,
            Err(Error::Blob(_)) => return Err(changed()),
            Err(error) => return Err(error.into()),
        };
        // The Secret has a digest of its own; the one that counts is in the status, where no user can write.
        if Digest::of(&content) != *summary.digest {
            return Err(changed());
        }
        serde_json::from_slice(&content).map_err(|_| changed())
    }

    /// The content of these objects, each of which is read once.
    async fn read(&self, namespace: &str, wanted: &BTreeSet<Reference>) -> Result<Content, kube::Error> {
        let objects: BTreeSet<(ReferenceKind, &str)> = wanted.iter().map(|it| (it.kind, it.name.as_str())).collect();
        let mut content = Content::default();
        for (kind, name) in objects {
            if let Some(data) = self.data(namespace, kind, name).await? {
                content.0.insert((kind, name.to_owned()), data);
            }
        }
        Ok(content)
    }

    async fn data(&self, namespace: &str, kind: ReferenceKind, name: &str) -> Result<Option<Data>, kube::Error> {
        let client = self.storage.client().clone();
        let bytes = |data: Option<BTreeMap<String, ByteString>>| {
            data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()
        };
        Ok(match kind {
            ReferenceKind::Secret => {
                let found = Api::<Secret>::namespaced(client, namespace).get_opt(name).await?;
                found.map(|secret| Data { texts: bytes(secret.data), binary: BTreeMap::new() })
            }
            ReferenceKind::ConfigMap => {
                let found = Api::<ConfigMap>::namespaced(client, namespace).get_opt(name).await?;
                found.map(|map| {
                    let texts = map.data.unwrap_or_default().into_iter();
                    Data {
                        texts: texts.map(|(key, value)| (key, value.into_bytes())).collect(),
                        binary: bytes(map.binary_data),
                    }
                })
            }
        })
    }
}

/// Whether an object belongs to exactly this Run, and not to an earlier one of its name.
fn is_of(metadata: &ObjectMeta, run: &ObjectId) -> bool {
    metadata.owner_references.iter().flatten().any(|owner| owner.uid == run.uid)
}

/// Whether a Secret has the form in which frozen content of this Run is stored.
fn is_frozen(secret: &Secret, run: &ObjectId) -> bool {
    secret.immutable == Some(true) && is_of(&secret.metadata, run)
}

/// Whether a Secret is the copy of this object as it was when the job was frozen.
fn is_copy(job: &FrozenJob, object: &CopyOf, run: &ObjectId, secret: &Secret) -> bool {
    if !is_frozen(secret, run) {
        return false;
    }
    let texts: BTreeMap<String, Vec<u8>> =
        secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect();
    let keys = job.objects().remove(object).flatten();
    if keys.is_some_and(|keys| texts.keys().any(|key| !keys.contains(key))) {
        return false;
    }
    let is_empty = texts.is_empty();
    let data = Data { texts, binary: BTreeMap::new() };
    let content = Content(BTreeMap::from([((object.kind, object.name.clone()), data)]));
    let CopyOf { kind, name, usage } = object;
    let mut known = job.references.iter().filter(|known| {
        let Reference { kind: of, name: named, usage: used, .. } = &known.reference;
        (of, named, used) == (kind, name, usage)
    });
    known.all(|known| match (&known.digest, &known.reference.key) {
        // What is optional and was missing has an empty copy.
        (None, None) => is_empty,
        (digest, _) => content.digest(&known.reference) == *digest,
    })
}

/// The content of a Secret or a ConfigMap by key.
struct Data {
    /// All keys of a Secret; of a ConfigMap those that have text.
    texts: BTreeMap<String, Vec<u8>>,
    /// The other keys of a ConfigMap.
    binary: BTreeMap<String, Vec<u8>>,
}

impl Data {
    /// The keys and values that are seen in this use, in the order of their keys.
    fn seen(&self, usage: Usage) -> BTreeMap<&String, &Vec<u8>> {
        let binary = (usage == Usage::Files).then_some(&self.binary).into_iter().flatten();
        self.texts.iter().chain(binary).collect()
    }
}

/// The content of several objects.
#[derive(Default)]
struct Content(BTreeMap<(ReferenceKind, String), Data>);

impl Content {
    fn of(&self, kind: ReferenceKind, name: &str) -> Option<&Data> {
        self.0.get(&(kind, name.to_owned()))
    }

    fn digest(&self, reference: &Reference) -> Option<Digest> {
        let data = self.of(reference.kind, &reference.name)?.seen(reference.usage);
        match &reference.key {
            Some(key) => data.get(key).map(Digest::of),
            None => Some(digest_of(&data)),
        }
    }

    fn digests(&self, references: BTreeSet<Reference>) -> Vec<ReferenceDigest> {
        references.into_iter().map(|it| ReferenceDigest { digest: self.digest(&it), reference: it }).collect()
    }
}

/// Every key and value is preceded by its length, so that no two contents share their bytes.
fn digest_of(data: &BTreeMap<&String, &Vec<u8>>) -> Digest {
    let mut hash = Sha256::new();
    for part in data.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Digest::from_hash(hash.finalize().into())
}
