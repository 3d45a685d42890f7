//! The plans of Runs, the states that clients hand in for a Run to push, and the answers of reading commands.

use bytes::Bytes;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::Digest;
use knoll_api::names::{self, content};
use knoll_api::run::Run;
use knoll_api::wire::{Answer, LARGEST_PLAN_JSON};
use knoll_core::identity::ObjectId;

use crate::blob::BlobError;
use crate::error::Error;
use crate::owned::{self, Owned};
use crate::states::StateFile;
use crate::{ContentKind, Storage};

/// The plans of Runs.
pub struct Plans {
    storage: Storage,
}

impl Plans {
    pub(crate) fn new(storage: Storage) -> Self {
        Plans { storage }
    }

    /// Stores the plan of a Run and returns its digest.
    ///
    /// # Errors
    /// When the API does not take it.
    pub async fn put(&self, run: &Run, plan: &[u8]) -> Result<Digest, Error> {
        put(&self.storage, run, ContentKind::Plan, plan).await
    }

    /// The plan of a Run.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn get(&self, namespace: &str, run: &str) -> Result<Option<Bytes>, Error> {
        let sealer = self.storage.sealer(ContentKind::Plan, namespace, run);
        owned::get::<Secret>(&self.storage, namespace, &sealer, &names::plan_secret(run)).await
    }
}

/// The JSON of the plans of Runs, as terraform describes them: for rules that are tried on plans that were made.
pub struct Descriptions {
    storage: Storage,
}

impl Descriptions {
    pub(crate) fn new(storage: Storage) -> Self {
        Descriptions { storage }
    }

    /// Stores the JSON of the plan of a Run. It is deleted with the Run.
    ///
    /// # Errors
    /// When the API does not take it.
    pub async fn put(&self, run: &Run, json: &[u8]) -> Result<(), Error> {
        put(&self.storage, run, ContentKind::Description, json).await.map(drop)
    }

    /// The JSON of the plan of a Run, if it is kept.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn get(&self, namespace: &str, run: &str) -> Result<Option<Bytes>, Error> {
        let sealer = self.storage.sealer(ContentKind::Description, namespace, run);
        let head = names::description_secret(run);
        owned::get_within::<Secret>(&self.storage, namespace, &sealer, &head, LARGEST_PLAN_JSON).await
    }
}

/// The states that clients hand in for a Run to push.
pub struct Uploads {
    storage: Storage,
}

impl Uploads {
    pub(crate) fn new(storage: Storage) -> Self {
        Uploads { storage }
    }

    /// Gives a Run that was created from [`crate::states::push`] the state to push.
    ///
    /// # Errors
    /// When it is no state, or cannot be stored.
    pub async fn put(&self, run: &Run, state: &[u8]) -> Result<(), Error> {
        StateFile::parse(state)?;
        put(&self.storage, run, ContentKind::Upload, state).await.map(drop)
    }

    /// The state of this digest that was handed in for a Run.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or is another one.
    pub async fn get(&self, namespace: &str, run: &str, expected: &Digest) -> Result<Option<Bytes>, Error> {
        let sealer = self.storage.sealer(ContentKind::Upload, namespace, run);
        let state = owned::get::<Secret>(&self.storage, namespace, &sealer, &names::upload_secret(run)).await?;
        match state.as_ref().map(Digest::of) {
            Some(found) if found != *expected => Err(BlobError::Digest { expected: expected.clone(), found }.into()),
            _ => Ok(state),
        }
    }
}

/// The answers of reading commands.
pub struct Answers {
    storage: Storage,
}

impl Answers {
    pub(crate) fn new(storage: Storage) -> Self {
        Answers { storage }
    }

    /// Stores the answer of a Run.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn put(&self, run: &Run, answer: &Answer) -> Result<(), Error> {
        let bytes = serde_json::to_vec(answer).map_err(BlobError::Format)?;
        put(&self.storage, run, ContentKind::Answer, &bytes).await.map(drop)
    }

    /// The answer of a Run, if its log differs from it.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn get(&self, namespace: &str, run: &str) -> Result<Option<Answer>, Error> {
        let sealer = self.storage.sealer(ContentKind::Answer, namespace, run);
        let stored = owned::get::<Secret>(&self.storage, namespace, &sealer, &names::answer_secret(run)).await?;
        Ok(stored.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(BlobError::Format)?)
    }
}

async fn put(storage: &Storage, run: &Run, kind: ContentKind, bytes: &[u8]) -> Result<Digest, Error> {
    let id = ObjectId::of(run)?;
    let owned = match kind {
        ContentKind::Upload => Owned::of_run(run, &id, content::UPLOAD, names::upload_secret(&id.name)),
        ContentKind::Description => Owned::of_run(run, &id, content::DESCRIPTION, names::description_secret(&id.name)),
        ContentKind::Answer => Owned::of_run(run, &id, content::ANSWER, names::answer_secret(&id.name)),
        _ => Owned::of_run(run, &id, content::PLAN, names::plan_secret(&id.name)),
    };
    owned.put::<Secret>(storage, &id.namespace, &storage.sealer(kind, &id.namespace, &id.name), bytes).await
}
