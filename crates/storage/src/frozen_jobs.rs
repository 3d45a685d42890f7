//! The frozen jobs of Runs: immutable Secrets, named after their content. Beside each lie copies of what its pods take
//! from Secrets and ConfigMaps by name, in immutable Secrets as well.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::Digest;
use knoll_api::names::{self, content};
use knoll_api::pod::PodSettingsError;
use knoll_api::run::{FrozenJobSummary, Run};
use knoll_api::workspace::Workspace;
use knoll_core::frozen::{self, FrozenJob, PodTemplate, Reference, ReferenceDigest, ReferenceKind, Usage};
use knoll_core::identity::ObjectId;
use knoll_core::policy::Supplied;
use kube::Api;
use kube::api::PostParams;
use sha2::{Digest as _, Sha256};

use crate::blob::BlobError;
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
        let job = FrozenJob { salt: random::digest()?.into(), pods, inputs, references, copied: true };
        let bytes = serde_json::to_vec(&job).map_err(|error| Error::Blob(BlobError::Format(error)))?;
        let digest = Digest::of(&bytes);
        let secret = names::job_secret(&id.name, digest.as_str());
        let owned = Owned { immutable: true, ..Owned::of_run(run, &id, content::JOB, secret) };
        self.copy(&id, &owned, &job, &digest, &content).await?;
        let sealer = self.storage.sealer(ContentKind::Job, &id.namespace, &id.name);
        owned.put::<Secret>(&self.storage, &id.namespace, &sealer, &bytes).await?;
        let summary = job.summary(&digest);
        Ok((job, summary))
    }

    /// Stores the copies that the pods of a job use, as they are: the kubelet reads them.
    async fn copy(
        &self,
        id: &ObjectId,
        owned: &Owned,
        job: &FrozenJob,
        digest: &Digest,
        content: &Content,
    ) -> Result<(), Error> {
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), &id.namespace);
        let keys = job.objects();
        for (object, name) in job.copies(&id.name, digest.as_str()).iter() {
            let data = content.of(object.kind, &object.name).map(|data| data.seen(object.usage));
            let wanted = keys.get(object).and_then(Option::as_ref);
            let mut data: BTreeMap<String, ByteString> =
                data.into_iter().flatten().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect();
            data.retain(|key, _| wanted.is_none_or(|wanted| wanted.contains(key)));
            let copy: Secret = owned.object(name, digest, Some(true), data);
            match api.create(&PostParams::default(), &copy).await {
                Ok(_) => {}
                // The name has the digest of a job with a random salt.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    return Err(BlobError::Occupied { kind: "Secret".to_owned(), name: name.to_owned() }.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The frozen job of a Run, after a look at all that it refers to by name: that is still what it was.
    ///
    /// # Errors
    /// When the job, or something that it refers to, is not what was frozen.
    pub async fn get(&self, run: &Run, summary: &FrozenJobSummary) -> Result<FrozenJob, FreezeError> {
        let id = ObjectId::of(run).map_err(Error::from)?;
        let job = self.stored(&id, summary).await?;
        let wanted = job.references.iter().map(|known| known.reference.clone()).collect();
        let now = self.read(&id.namespace, &wanted).await?;
        match job.changed(&now.digests(wanted)) {
            Some(reference) => Err(FreezeError::Changed(format!("`{reference}`, which the pods of the run use,"))),
            None => Ok(job),
        }
    }

    /// The frozen job of a Run as it was frozen, whatever has become of the things that it refers to.
    ///
    /// # Errors
    /// When the job is not what was frozen.
    pub async fn stored(&self, run: &ObjectId, summary: &FrozenJobSummary) -> Result<FrozenJob, FreezeError> {
        let secret = names::job_secret(&run.name, &summary.digest);
        let changed = || FreezeError::Changed(frozen::job_of(&run.name, summary));
        let sealer = self.storage.sealer(ContentKind::Job, &run.namespace, &run.name);
        let content = match owned::get::<Secret>(&self.storage, &run.namespace, &sealer, &secret).await {
            Ok(Some(content)) => content,
            Ok(None) | Err(Error::Blob(_)) => return Err(changed()),
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

    fn digests(&self, references: BTreeSet<Reference>) -> Vec<ReferenceDigest> {
        let digest = |it: &Reference| {
            let data = self.of(it.kind, &it.name)?.seen(it.usage);
            match &it.key {
                Some(key) => data.get(key).map(Digest::of),
                None => Some(digest_of(&data)),
            }
        };
        references.into_iter().map(|it| ReferenceDigest { digest: digest(&it), reference: it }).collect()
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
