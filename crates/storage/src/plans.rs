//! The plans of Runs, and the states that clients hand in for a Run to push.

use bytes::Bytes;
use knoll_api::Digest;
use knoll_api::names::{self, content, secret_type};
use knoll_api::run::Run;
use kube::{Resource, ResourceExt};

use crate::error::Error;
use crate::owned::{self, Owned, run_labels};
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
        put(&self.storage, run, ContentKind::Plan, names::plan_secret(&run.name_any()), plan).await
    }

    /// The plan of a Run.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn get(&self, namespace: &str, run: &str) -> Result<Option<Bytes>, Error> {
        let sealer = self.storage.sealer(ContentKind::Plan, namespace, run);
        owned::get(&self.storage, namespace, &sealer, &names::plan_secret(run)).await
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
        put(&self.storage, run, ContentKind::Upload, names::upload_secret(&run.name_any()), state).await.map(drop)
    }

    /// The state that was handed in for a Run.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn get(&self, namespace: &str, run: &str) -> Result<Option<Bytes>, Error> {
        let sealer = self.storage.sealer(ContentKind::Upload, namespace, run);
        owned::get(&self.storage, namespace, &sealer, &names::upload_secret(run)).await
    }
}

async fn put(storage: &Storage, run: &Run, kind: ContentKind, secret: String, bytes: &[u8]) -> Result<Digest, Error> {
    let (name, namespace) = (run.name_any(), run.namespace().unwrap_or_default());
    let owner = run.owner_ref(&()).ok_or_else(|| Error::Internal("the Run has no UID".to_owned()))?;
    let label = if kind == ContentKind::Upload { content::UPLOAD } else { content::PLAN };
    let labels = run_labels(label, &name, &run.spec.workspace);
    let owned = Owned { name: secret, type_: secret_type::CONTENT, labels, owner, immutable: false };
    owned.put(storage, &namespace, &storage.sealer(kind, &namespace, &name), bytes).await
}
