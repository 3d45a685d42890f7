//! Content in Secrets or ConfigMaps that belong to an object and are deleted with it: a plan and its text, a state to
//! push, an input, a journal.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use knoll_api::Digest;
use knoll_api::Run;
use knoll_api::names::{annotation, label, secret_type};
use knoll_core::identity::ObjectId;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource};

use crate::Storage;
use crate::blob::{self, Blob, BlobError, CONTENT, Carrier, LARGEST, NAME_DIGITS, PART, read_parts, write_parts};
use crate::error::Error;
use crate::seal::Sealer;

/// The key of the names of the parts in a head, one a line.
const PARTS: &str = "parts";

/// The objects of one content.
pub(crate) struct Owned {
    /// The name of the head.
    pub name: String,
    /// One of [`knoll_api::names::secret_type`]; ConfigMaps have none.
    pub type_: &'static str,
    pub labels: BTreeMap<String, String>,
    pub owner: OwnerReference,
    /// Whether the head never changes. Parts never do.
    pub immutable: bool,
}

impl Owned {
    /// Content of a Run that can be replaced. `content` is one of [`knoll_api::names::content`].
    pub(crate) fn of_run(run: &Run, id: &ObjectId, content: &str, name: String) -> Self {
        let labels = run_labels(content, &id.name, &run.spec.workspace);
        let owner = owner_reference::<Run>(id);
        Self { name, type_: secret_type::CONTENT, labels, owner, immutable: false }
    }

    /// Stores `content` in place of what was stored under this name. The head is written last.
    pub(crate) async fn put<K: Carrier>(
        &self,
        storage: &Storage,
        namespace: &str,
        sealer: &Sealer,
        content: &[u8],
    ) -> Result<Digest, Error> {
        let api: Api<K> = Api::namespaced(storage.client().clone(), namespace);
        let Blob { digest, parts } = Blob::pack(content, sealer, PART)?;
        let mut data = BTreeMap::new();
        let mut names = Vec::new();
        if let [only] = &parts[..] {
            data.insert(CONTENT.to_owned(), ByteString(only.clone()));
        } else {
            let parts = parts.into_iter().enumerate().map(|(number, part)| {
                let name = format!("{}-{}-{number}", self.name, digest.short(NAME_DIGITS));
                let data = BTreeMap::from([(CONTENT.to_owned(), ByteString(part))]);
                self.object(&name, &digest, Some(true), data)
            });
            let parts: Vec<K> = parts.collect();
            names.extend(parts.iter().filter_map(|part| part.meta().name.clone()));
            write_parts(&api, parts, |_| {}).await?;
        }
        data.insert(PARTS.to_owned(), ByteString(names.join("\n").into_bytes()));
        let mut head: K = self.object(&self.name, &digest, self.immutable.then_some(true), data);
        match api.create(&PostParams::default(), &head).await {
            Ok(_) => Ok(digest),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                // A runner that got no answer makes the same write again.
                let known = api.get(&self.name).await?;
                let stored = known.meta().annotations.as_ref().and_then(|notes| notes.get(annotation::DIGEST));
                if stored == Some(&digest.to_string()) && known.bytes() == head.bytes() {
                    return Ok(digest);
                }
                head.meta_mut().resource_version.clone_from(&known.meta().resource_version);
                api.replace(&self.name, &PostParams::default(), &head).await?;
                self.delete_parts(&api, &known, &names).await?;
                Ok(digest)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the content of this name.
    pub(crate) async fn delete<K: Carrier>(&self, storage: &Storage, namespace: &str) -> Result<(), Error> {
        let api: Api<K> = Api::namespaced(storage.client().clone(), namespace);
        let Some(head) = api.get_opt(&self.name).await? else { return Ok(()) };
        delete(&api, &self.name).await?;
        self.delete_parts(&api, &head, &[]).await
    }

    /// Deletes the parts that an earlier head names, but for those that are `kept`. The content of a runner is replaced as
    /// often as that runner likes, and all that it leaves would stay as long as its Run.
    async fn delete_parts<K: Carrier>(&self, api: &Api<K>, head: &K, kept: &[String]) -> Result<(), Error> {
        let names = head.bytes().and_then(|data| data.get(PARTS)).map(|names| String::from_utf8_lossy(&names.0));
        let own = format!("{}-", self.name);
        // A head may be somebody else's: nothing is deleted but what has the name of a part.
        let parts = names.iter().flat_map(|names| names.lines()).filter(|name| name.starts_with(&own));
        for part in parts.filter(|part| !kept.iter().any(|kept| kept == part)) {
            delete(api, part).await?;
        }
        Ok(())
    }

    /// One object of the content.
    pub(crate) fn object<K: Carrier>(
        &self,
        name: &str,
        digest: &Digest,
        immutable: Option<bool>,
        data: BTreeMap<String, ByteString>,
    ) -> K {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(self.labels.clone()),
            annotations: Some(BTreeMap::from([(annotation::DIGEST.to_owned(), digest.to_string())])),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        };
        K::carry(metadata, self.type_, immutable, data)
    }
}

async fn delete<K: Carrier>(api: &Api<K>, name: &str) -> Result<(), Error> {
    match api.delete(name, &DeleteParams::background()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}

/// The content that was stored under `name`.
pub(crate) async fn get<K: Carrier>(
    storage: &Storage,
    namespace: &str,
    sealer: &Sealer,
    name: &str,
) -> Result<Option<Bytes>, Error> {
    get_within::<K>(storage, namespace, sealer, name, LARGEST).await
}

/// The content of at most `limit` bytes that was stored under `name`.
pub(crate) async fn get_within<K: Carrier>(
    storage: &Storage,
    namespace: &str,
    sealer: &Sealer,
    name: &str,
    limit: u64,
) -> Result<Option<Bytes>, Error> {
    let api: Api<K> = Api::namespaced(storage.client().clone(), namespace);
    match api.get_opt(name).await? {
        Some(head) => read(&api, head, sealer, limit).await.map(Some),
        None => Ok(None),
    }
}

/// The content of at most `limit` bytes that this head names.
pub(crate) async fn read<K: Carrier>(api: &Api<K>, head: K, sealer: &Sealer, limit: u64) -> Result<Bytes, Error> {
    let name = head.meta().name.clone().unwrap_or_default();
    let digest = head.meta().annotations.as_ref().and_then(|notes| notes.get(annotation::DIGEST)?.parse().ok());
    let digest: Digest = digest.ok_or(BlobError::NoDigest(name))?;
    let mut data = head.into_bytes();
    let stored = match data.remove(CONTENT) {
        Some(inline) => inline.0,
        None => {
            let names = data.remove(PARTS).map(|names| names.0).unwrap_or_default();
            let names: Vec<String> = String::from_utf8_lossy(&names).lines().map(str::to_owned).collect();
            // Incompressible content is stored in a little more than its size.
            if (names.len() as u64).saturating_sub(2) * PART as u64 > limit {
                return Err(BlobError::TooLarge(limit).into());
            }
            read_parts(api, Vec::new(), &names, CONTENT).await?
        }
    };
    Ok(blob::unpack_within(stored, &digest, sealer, limit)?.into())
}

/// The labels of content that belongs to a Run.
pub(crate) fn run_labels(kind: &str, run: &str, workspace: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::RUN.to_owned(), run.to_owned()),
        (label::WORKSPACE.to_owned(), workspace.to_owned()),
        (label::CONTENT.to_owned(), kind.to_owned()),
        (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
    ])
}

/// The reference of content to the object that it belongs to.
pub(crate) fn owner_reference<K: Resource<DynamicType = ()>>(id: &ObjectId) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: id.name.clone(),
        uid: id.uid.clone(),
        ..OwnerReference::default()
    }
}
