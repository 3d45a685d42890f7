//! Keeps bundles in ConfigMaps that never change.
//!
//! The head is named after the digest and holds the first part and the names of the others, so it is written last: a
//! bundle whose head is there is complete, and a head can never meet parts of another bundle.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::names::{self, annotation, content, label};
use knoll_bundle::{Bundle, digest_of};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

mod sweep;

pub use sweep::{UNUSED_FOR, sweep};

/// The size of a part. A ConfigMap holds 1 MiB, and travels as base64.
const PART: usize = 512 * 1024;
/// What is so small that sending it costs no more than to ask whether it is there.
const SMALL: usize = 16 * 1024;
/// How many parts are on the way at the same time.
const AT_ONCE: usize = 4;
/// The key of the packed bytes.
const BYTES: &str = "bundle";
/// The key of the names of further parts in a head, one a line.
const PARTS: &str = "parts";

/// Why a bundle cannot be kept, or is not there.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The bundle is not there.
    #[error("there is no bundle `{digest}` in namespace `{namespace}`; apply the module from its source first")]
    Missing {
        /// The bundle's digest.
        digest: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// Parts of the bundle are missing or changed.
    #[error(
        "the bundle `{digest}` is damaged: {why}; delete the ConfigMaps with the label {}={label}, and apply the module from its source again",
        label::BUNDLE
    )]
    Damaged {
        /// The bundle's digest.
        digest: String,
        /// The value of the label of its ConfigMaps.
        label: String,
        /// What is wrong with it.
        why: String,
    },
    /// The API failed.
    #[error("the Kubernetes API failed: {}", crate::message_of(.0))]
    Api(#[from] kube::Error),
}

/// Keeps a bundle in this namespace; one that is there already is marked as used.
///
/// Whoever stores a bundle has [`UNUSED_FOR`] to write an object that refers to it.
///
/// # Errors
/// When the API does not take it.
pub async fn store(client: &Client, namespace: &str, bundle: &Bundle) -> Result<(), StoreError> {
    store_with(client, namespace, bundle, |_| {}).await
}

/// As [`store`], for a bundle that is most likely there: then it takes one request.
///
/// # Errors
/// As [`store`].
pub async fn store_again(client: &Client, namespace: &str, bundle: &Bundle) -> Result<(), StoreError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    if touch(&api, &names::bundle_config_map(&bundle.digest)).await? {
        return Ok(());
    }
    store(client, namespace, bundle).await
}

/// As [`store`]; `sent` is told how many bytes more are there.
///
/// # Errors
/// As [`store`].
pub async fn store_with(
    client: &Client,
    namespace: &str,
    bundle: &Bundle,
    sent: impl Fn(u64),
) -> Result<(), StoreError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let Bundle { digest, bytes } = bundle;
    let head_name = names::bundle_config_map(digest);
    // The same files are often applied again; then nothing has to be sent.
    if bytes.len() > SMALL && touch(&api, &head_name).await? {
        return Ok(());
    }
    // The packer's version decides about the packed bytes, so they are in the names of the parts too.
    let packed = knoll_bundle::digest(bytes);
    let mut parts = bytes.chunks(PART).map(<[u8]>::to_vec);
    let first = parts.next().unwrap_or_default();
    let parts: Vec<ConfigMap> = parts
        .enumerate()
        .map(|(number, part)| {
            let name = format!("{head_name}-{}-{}", short(&packed, 10), number + 1);
            config_map(digest, &name, BTreeMap::from([(BYTES.to_owned(), ByteString(part))]))
        })
        .collect();
    let names: Vec<String> = parts.iter().filter_map(|part| part.metadata.name.clone()).collect();
    let create_part = async |part: ConfigMap| {
        let size = part.binary_data.as_ref().and_then(|data| data.get(BYTES)).map_or(0, |part| part.0.len());
        create(&api, part).await?;
        sent(size as u64);
        Ok::<_, StoreError>(())
    };
    stream::iter(parts).map(create_part).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
    let data = BTreeMap::from([
        (BYTES.to_owned(), ByteString(first)),
        (PARTS.to_owned(), ByteString(names.join("\n").into_bytes())),
    ]);
    create(&api, config_map(digest, &head_name, data)).await
}

/// The packed bytes of a bundle.
///
/// # Errors
/// When it is not there, or is not what was stored.
pub async fn fetch(client: &Client, namespace: &str, digest: &str) -> Result<Vec<u8>, StoreError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let damaged =
        |why: String| StoreError::Damaged { digest: digest.to_owned(), label: label_value(digest).to_owned(), why };
    let head = api.get_opt(&names::bundle_config_map(digest)).await?;
    let head =
        head.ok_or_else(|| StoreError::Missing { digest: digest.to_owned(), namespace: namespace.to_owned() })?;
    let mut data = head.binary_data.unwrap_or_default();
    let mut take = |key: &str| data.remove(key).map(|value| value.0).unwrap_or_default();
    let (mut bytes, names) = (take(BYTES), take(PARTS));
    let names: Vec<String> = String::from_utf8_lossy(&names).lines().map(str::to_owned).collect();
    let mut parts = stream::iter(names)
        .map(|name| {
            let api = api.clone();
            async move { Ok::<_, kube::Error>((api.get_opt(&name).await?, name)) }
        })
        .buffered(AT_ONCE);
    while let Some((part, name)) = parts.try_next().await? {
        let part = part.and_then(|part| part.binary_data?.remove(BYTES));
        bytes.extend(part.ok_or_else(|| damaged(format!("its part `{name}` is missing")))?.0);
    }
    match digest_of(&bytes) {
        Ok(found) if found == digest => Ok(bytes),
        Ok(found) => Err(damaged(format!("its content is `{found}`"))),
        Err(error) => Err(damaged(format!("it cannot be unpacked: {error}"))),
    }
}

/// Whether a bundle is kept in this namespace.
///
/// # Errors
/// When the API fails.
pub async fn is_stored(client: &Client, namespace: &str, digest: &str) -> Result<bool, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_metadata_opt(&names::bundle_config_map(digest)).await?.is_some())
}

/// Marks a ConfigMap as used now; says whether it is there.
async fn touch(api: &Api<ConfigMap>, name: &str) -> Result<bool, StoreError> {
    let patch = json!({"metadata": {"annotations": {annotation::USED_AT: Timestamp::now().to_string()}}});
    match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Creates a ConfigMap whose name stands for its content; one that is there is marked as used.
async fn create(api: &Api<ConfigMap>, map: ConfigMap) -> Result<(), StoreError> {
    loop {
        match api.create(&PostParams::default(), &map).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let name = map.metadata.name.as_deref().unwrap_or_default();
                // It may be swept between the two requests; then it is created after all.
                if touch(api, name).await? {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn config_map(digest: &str, name: &str, data: BTreeMap<String, ByteString>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([
                (label::BUNDLE.to_owned(), label_value(digest).to_owned()),
                (label::CONTENT.to_owned(), content::BUNDLE.to_owned()),
                (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
            ])),
            annotations: Some(BTreeMap::from([(annotation::DIGEST.to_owned(), digest.to_owned())])),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        binary_data: Some(data),
        ..ConfigMap::default()
    }
}

fn label_value(digest: &str) -> &str {
    short(digest, 63)
}

/// The first digits of a digest.
fn short(digest: &str, digits: usize) -> &str {
    let hash = digest.strip_prefix("sha256:").unwrap_or(digest);
    hash.get(..digits).unwrap_or(hash)
}
