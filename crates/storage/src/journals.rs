//! The journals of Atoms: what an update touches, kept before the first write of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use knoll_api::Atom;
use knoll_api::names::{self, content, label, secret_type};
use knoll_core::atom::journal::Journal;
use knoll_core::identity::{ObjectId, Subject};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};

use crate::blob::BlobError;
use crate::error::Error;
use crate::owned::{self, Owned, owner_reference};
use crate::{ContentKind, Storage};

/// The journals of Atoms.
pub struct Journals {
    storage: Storage,
}

impl Journals {
    pub(crate) fn new(storage: Storage) -> Self {
        Journals { storage }
    }

    /// Stores the journal of an attempt, and returns the name of its Secret.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn put(&self, atom: &Subject<Atom>, attempt: u32, journal: &Journal) -> Result<String, Error> {
        let ObjectId { namespace, name, .. } = &atom.id;
        let labels = BTreeMap::from([
            (label::ATOM.to_owned(), name.clone()),
            (label::CONTENT.to_owned(), content::JOURNAL.to_owned()),
            (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
        ]);
        let (secret, type_) = (names::journal_secret(name, attempt), secret_type::JOURNAL);
        let owned = Owned { name: secret, type_, labels, owner: owner_reference::<Atom>(&atom.id), immutable: false };
        let bytes = serde_json::to_vec(journal).map_err(BlobError::from)?;
        let sealer = self.storage.sealer(ContentKind::Journal, namespace, name);
        owned.put::<Secret>(&self.storage, namespace, &sealer, &bytes).await?;
        Ok(owned.name)
    }

    /// The journal in that Secret of an Atom.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub async fn get(&self, atom: &Subject<Atom>, secret: &str) -> Result<Option<Journal>, Error> {
        let sealer = self.storage.sealer(ContentKind::Journal, atom.namespace(), atom.name());
        let bytes = owned::get::<Secret>(&self.storage, atom.namespace(), &sealer, secret).await?;
        Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose().map_err(BlobError::from)?)
    }

    /// Deletes all journals of an Atom.
    ///
    /// # Errors
    /// When the API fails.
    pub async fn delete_all(&self, atom: &Subject<Atom>) -> Result<(), kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), atom.namespace());
        let selector = format!("{}={},{}={}", label::ATOM, atom.name(), label::CONTENT, content::JOURNAL);
        for secret in api.list_metadata(&ListParams::default().labels(&selector)).await? {
            if !secret.owner_references().iter().any(|owner| owner.uid == atom.uid()) {
                continue;
            }
            match api.delete(&secret.name_any(), &DeleteParams::background()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
