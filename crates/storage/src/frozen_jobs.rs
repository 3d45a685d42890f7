//! The frozen jobs of Runs: immutable Secrets, named after their content.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::Digest;
use knoll_api::names::{self, content};
use knoll_api::pod::PodSettingsError;
use knoll_api::run::{FrozenJobSummary, Run};
use knoll_api::workspace::Workspace;
use knoll_core::frozen::{self, FrozenJob, PodTemplate, Reference, ReferenceDigest, ReferenceKind};
use knoll_core::identity::ObjectId;
use knoll_core::policy::Supplied;
use kube::Api;
use sha2::{Digest as _, Sha256};

use crate::blob::BlobError;
use crate::error::Error;
use crate::owned::{self, Owned};
use crate::variables::{Lookup, VariablesError};
use crate::{ContentKind, Storage, message_of};

/// Why there is no frozen job.
#[derive(Debug, thiserror::Error)]
pub enum FreezeError {
    /// Something that the Run refers to is not there.
    #[error(transparent)]
    Variables(VariablesError),
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
        let references = self.digests(&id.namespace, wanted).await?;
        let inputs = Lookup::new(&self.storage, &id.namespace).inputs(run, workspace, &pods.settings, supplied).await?;
        let job = FrozenJob { salt: salt()?, pods, inputs, references };
        let content = serde_json::to_vec(&job).map_err(|error| Error::Blob(BlobError::Format(error)))?;
        let digest = Digest::of(&content);
        let secret = names::job_secret(&id.name, digest.as_str());
        let owned = Owned { immutable: true, ..Owned::of_run(run, &id, content::JOB, secret) };
        let sealer = self.storage.sealer(ContentKind::Job, &id.namespace, &id.name);
        owned.put::<Secret>(&self.storage, &id.namespace, &sealer, &content).await?;
        let summary = job.summary(&digest);
        Ok((job, summary))
    }

    /// The frozen job of a Run, after a look at all that it refers to by name: that is still what it was.
    ///
    /// # Errors
    /// When the job, or something that it refers to, is not what was frozen.
    pub async fn get(&self, run: &Run, summary: &FrozenJobSummary) -> Result<FrozenJob, FreezeError> {
        let id = ObjectId::of(run).map_err(Error::from)?;
        let job = self.stored(&id, summary).await?;
        let wanted = job.references.iter().map(|known| known.reference.clone()).collect();
        let now = self.digests(&id.namespace, wanted).await?;
        match job.changed(&now) {
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

    /// The digests of the content of these objects, each of which is read once.
    async fn digests(
        &self,
        namespace: &str,
        references: BTreeSet<Reference>,
    ) -> Result<Vec<ReferenceDigest>, kube::Error> {
        let mut read: BTreeMap<(ReferenceKind, String), Option<Data>> = BTreeMap::new();
        let mut digests = Vec::new();
        for reference in references {
            let Reference { kind, name, key } = &reference;
            let object = (*kind, name.clone());
            if !read.contains_key(&object) {
                let data = self.data(namespace, *kind, name).await?;
                read.insert(object.clone(), data);
            }
            let data = read.get(&object).and_then(Option::as_ref);
            let digest = data.and_then(|data| match key {
                Some(key) => data.get(key).map(Digest::of),
                None => Some(digest_of(data)),
            });
            digests.push(ReferenceDigest { reference, digest });
        }
        Ok(digests)
    }

    async fn data(&self, namespace: &str, kind: ReferenceKind, name: &str) -> Result<Option<Data>, kube::Error> {
        let client = self.storage.client().clone();
        let bytes = |data: Option<BTreeMap<String, ByteString>>| {
            data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0))
        };
        Ok(match kind {
            ReferenceKind::Secret => {
                let found = Api::<Secret>::namespaced(client, namespace).get_opt(name).await?;
                found.map(|secret| bytes(secret.data).collect())
            }
            ReferenceKind::ConfigMap => {
                let found = Api::<ConfigMap>::namespaced(client, namespace).get_opt(name).await?;
                found.map(|map| {
                    let texts = map.data.unwrap_or_default().into_iter();
                    texts.map(|(key, value)| (key, value.into_bytes())).chain(bytes(map.binary_data)).collect()
                })
            }
        })
    }
}

/// The content of a Secret or a ConfigMap by key.
type Data = BTreeMap<String, Vec<u8>>;

/// Every key and value is preceded by its length, so that no two contents share their bytes.
fn digest_of(data: &Data) -> Digest {
    let mut hash = Sha256::new();
    for part in data.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Digest::from_hash(hash.finalize().into())
}

fn salt() -> Result<String, Error> {
    let random = ring::rand::generate::<[u8; 32]>(&ring::rand::SystemRandom::new());
    let random = random.map_err(|_| Error::Internal("the system has no random numbers".to_owned()))?;
    Ok(Digest::from_hash(random.expose()).into())
}
