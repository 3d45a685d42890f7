//! The copies of objects that belong to states: Workspaces, Stacks, Policies.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use knoll_api::Digest;

use crate::archive::{Archive, ArchiveError, check};

const OBJECTS: &str = "objects";
/// The folder of objects that have no namespace. No namespace has this name.
const CLUSTER: &str = "_cluster";
const LIVE: &str = ".json";
const DELETED: &str = ".deleted";
/// The number of hex digits of a digest.
const DIGEST_DIGITS: usize = 64;

/// Which object it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectAddress {
    /// The kind, in lower case.
    pub kind: String,
    /// None for a cluster-scoped object.
    pub namespace: Option<String>,
    pub name: String,
}

/// An object as it was copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredObject {
    /// What a client applies: without status, and without what the API server adds.
    pub manifest: Value,
    /// The parts of the status that the controllers do not find out again.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub status: Value,
}

impl Archive {
    /// Copies an object, in place of what was copied of it before. The same object is not sent again.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn put_object(&self, address: &ObjectAddress, object: &StoredObject) -> Result<(), ArchiveError> {
        let document = serde_json::to_vec(object).unwrap_or_default();
        let digest = Digest::of(&document);
        let name = format!("{}{LIVE}", digest.short(DIGEST_DIGITS));
        let folder = self.object_folder(address)?;
        let path = folder.clone().join(name.as_str());
        let mut is_known = false;
        let others = self.list(&folder, |other| {
            is_known |= other == name;
            other != name
        });
        let others = others.await?;
        if !is_known {
            self.write(&path, document.into()).await?;
        }
        for other in others {
            self.delete(&folder.clone().join(other.as_str())).await?;
        }
        Ok(())
    }

    /// Marks the copy of an object that was deleted in the cluster. It stays, and a restore of everything leaves it out.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn mark_deleted(&self, address: &ObjectAddress) -> Result<(), ArchiveError> {
        let folder = self.object_folder(address)?;
        for name in self.list(&folder, is_live).await? {
            let Some(digest) = name.strip_suffix(LIVE) else { continue };
            let document = self.read(&folder.clone().join(name.as_str()), Self::document_limit()).await?;
            self.write(&folder.clone().join(format!("{digest}{DELETED}")), document).await?;
            self.delete(&folder.clone().join(name.as_str())).await?;
        }
        Ok(())
    }

    /// The objects of a kind that were not deleted, by their names: of a namespace, or the cluster-scoped ones.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn objects(&self, kind: &str, namespace: Option<&str>) -> Result<Vec<ObjectAddress>, ArchiveError> {
        check(kind)?;
        let folder = self.target.path(&[OBJECTS, scope(namespace)?, kind]);
        let mut found = Vec::new();
        for name in self.folders(&folder).await? {
            let address = ObjectAddress { kind: kind.to_owned(), namespace: namespace.map(str::to_owned), name };
            let names = self.list(&self.object_folder(&address)?, is_live).await?;
            if !names.is_empty() {
                found.push(address);
            }
        }
        Ok(found)
    }

    /// The namespaces that have an object here.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn object_namespaces(&self) -> Result<Vec<String>, ArchiveError> {
        self.folders(&self.target.path(&[OBJECTS])).await
    }

    /// An object as it was copied last.
    ///
    /// # Errors
    /// When the target fails, or has no such object.
    pub async fn object(&self, address: &ObjectAddress) -> Result<StoredObject, ArchiveError> {
        let folder = self.object_folder(address)?;
        let name = self.list(&folder, is_live).await?.into_iter().next();
        let name = name.ok_or_else(|| ArchiveError::Missing(folder.to_string()))?;
        let path = folder.join(name.as_str());
        let document = self.read(&path, Self::document_limit()).await?;
        let damaged = |why: &str| ArchiveError::Damaged { path: path.to_string(), why: why.to_owned() };
        if name.strip_suffix(LIVE) != Some(Digest::of(&document).short(DIGEST_DIGITS)) {
            return Err(damaged("its content is another"));
        }
        serde_json::from_slice(&document).map_err(|_| damaged("it is no object"))
    }

    fn object_folder(&self, address: &ObjectAddress) -> Result<object_store::path::Path, ArchiveError> {
        check(&address.kind)?;
        check(&address.name)?;
        Ok(self.target.path(&[OBJECTS, scope(address.namespace.as_deref())?, &address.kind, &address.name]))
    }
}

/// Whether a file has an object that was not deleted.
fn is_live(name: &str) -> bool {
    name.ends_with(LIVE)
}

fn scope(namespace: Option<&str>) -> Result<&str, ArchiveError> {
    match namespace {
        Some(namespace) => check(namespace).map(|()| namespace),
        None => Ok(CLUSTER),
    }
}
