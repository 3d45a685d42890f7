//! The Secrets and ConfigMaps that hold the parts of a blob.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ByteString, NamespaceResourceScope};
use knoll_api::names::annotation;
use kube::api::{DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{BlobError, LARGEST};
use crate::error::Error;

/// How many parts are on the way at the same time.
const AT_ONCE: usize = 4;

/// The most parts that are read of one content: far more than the largest has. Each costs a request, however small it is,
/// and a head is written by users.
const MOST_PARTS: usize = 1024;

/// A kind of object that holds bytes.
pub(crate) trait Carrier:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
    /// An object of these bytes. Only Secrets have a type.
    fn carry(metadata: ObjectMeta, type_: &str, immutable: Option<bool>, bytes: BTreeMap<String, ByteString>) -> Self;
    fn bytes(&self) -> Option<&BTreeMap<String, ByteString>>;
    fn into_bytes(self) -> BTreeMap<String, ByteString>;
}

impl Carrier for Secret {
    fn carry(metadata: ObjectMeta, type_: &str, immutable: Option<bool>, bytes: BTreeMap<String, ByteString>) -> Self {
        Secret { metadata, type_: Some(type_.to_owned()), immutable, data: Some(bytes), ..Secret::default() }
    }

    fn bytes(&self) -> Option<&BTreeMap<String, ByteString>> {
        self.data.as_ref()
    }

    fn into_bytes(self) -> BTreeMap<String, ByteString> {
        self.data.unwrap_or_default()
    }
}

impl Carrier for ConfigMap {
    fn carry(metadata: ObjectMeta, _: &str, immutable: Option<bool>, bytes: BTreeMap<String, ByteString>) -> Self {
        ConfigMap { metadata, immutable, binary_data: Some(bytes), ..ConfigMap::default() }
    }

    fn bytes(&self) -> Option<&BTreeMap<String, ByteString>> {
        self.binary_data.as_ref()
    }

    fn into_bytes(self) -> BTreeMap<String, ByteString> {
        self.binary_data.unwrap_or_default()
    }
}

/// Writes the parts of a blob, in any order; `sent` is told the bytes of each.
pub(crate) async fn write_parts<K: Carrier>(api: &Api<K>, parts: Vec<K>, sent: impl Fn(u64)) -> Result<(), Error> {
    let mut written = stream::iter(parts)
        .map(|part| {
            let api = api.clone();
            async move {
                create_part(&api, &part).await?;
                let bytes = part.bytes().into_iter().flat_map(BTreeMap::values);
                Ok::<u64, Error>(bytes.map(|bytes| bytes.0.len() as u64).sum())
            }
        })
        .buffer_unordered(AT_ONCE);
    while let Some(bytes) = written.try_next().await? {
        sent(bytes);
    }
    Ok(())
}

/// Creates an object whose name stands for its content. One that exists was left by an attempt that was cut off; it is
/// marked as used, so that it is not swept before a head names it.
async fn create_part<K: Carrier>(api: &Api<K>, part: &K) -> Result<(), Error> {
    loop {
        match api.create(&PostParams::default(), part).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
        let name = part.name_any();
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(&used_at(Timestamp::now()))).await {
            Ok(existing) if existing.bytes() == part.bytes() => return Ok(()),
            Ok(_) => return Err(BlobError::Occupied { kind: K::kind(&()).into_owned(), name }.into()),
            // It was swept between the two requests, so it is created after all.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The patch that marks an object as used at this time.
pub(crate) fn used_at(now: Timestamp) -> Value {
    json!({"metadata": {"annotations": {annotation::USED_AT: now.to_string()}}})
}

/// `first`, and behind it the bytes that these objects have under `key`, in their order.
pub(crate) async fn read_parts<K: Carrier>(
    api: &Api<K>,
    first: Vec<u8>,
    names: &[String],
    key: &str,
) -> Result<Vec<u8>, Error> {
    if names.len() > MOST_PARTS {
        return Err(BlobError::TooLarge(LARGEST).into());
    }
    let mut stored = first;
    let mut parts = stream::iter(names.to_vec())
        .map(|name| {
            let api = api.clone();
            async move { Ok::<_, kube::Error>((api.get_opt(&name).await?, name)) }
        })
        .buffered(AT_ONCE);
    while let Some((part, name)) = parts.try_next().await? {
        let part = part.and_then(|part| part.into_bytes().remove(key));
        stored.extend(part.ok_or(BlobError::MissingPart(name))?.0);
        if stored.len() as u64 > LARGEST {
            return Err(BlobError::TooLarge(LARGEST).into());
        }
    }
    Ok(stored)
}

/// Deletes an object if it is as it was when `seen` was read; false when it is gone or was touched.
pub(crate) async fn delete_unchanged<K: Carrier>(
    api: &Api<K>,
    seen: &PartialObjectMeta<K>,
) -> Result<bool, kube::Error> {
    let preconditions = Preconditions { uid: seen.uid(), resource_version: seen.resource_version() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    match api.delete(&seen.name_any(), &params).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(error),
    }
}
