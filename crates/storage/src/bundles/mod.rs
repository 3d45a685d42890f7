//! The bundles of modules, in ConfigMaps that never change.
//!
//! *Guarantees.* The head is named after the digest, holds the first part and names the others, and is written last: a
//! bundle whose head exists is complete. What [`Bundles::fetch`] returns has the digest that was asked for. A bundle has no
//! owner: Runs, Workspaces and Stacks refer to it by its digest, and [`Bundles::sweep`] deletes those that nothing has
//! referred to for a while.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::Digest;
use knoll_api::names::{self, annotation, content, label};
use knoll_bundle::{Bundle, digest_of};
use kube::Api;
use kube::api::PostParams;

use crate::blob::{NAME_DIGITS, PART, cut, mark_used, read_parts, write_parts};
use crate::error::Error;
use crate::seal::Sealer;
use crate::{ContentKind, Storage, message_of};

mod sweep;

/// To send a bundle up to this size costs no more than to ask whether it is stored.
const SMALL: usize = 16 * 1024;
/// The key of the packed bytes.
const BYTES: &str = "bundle";
/// The key of the names of further parts in a head, one a line.
const PARTS: &str = "parts";
/// The value of a label has at most 63 characters.
const LABEL_DIGITS: usize = 63;

/// Why a bundle cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("there is no bundle `{digest}` in namespace `{namespace}`; apply the module from its source first")]
    Missing { digest: Digest, namespace: String },
    /// Parts of the bundle are missing or changed.
    #[error(
        "the bundle `{digest}` is damaged: {why}; delete the ConfigMaps with the label {}={}, and apply the module from its source again",
        label::BUNDLE, digest.short(LABEL_DIGITS)
    )]
    Damaged { digest: Digest, why: String },
    #[error("the Kubernetes API failed: {}", message_of(.0))]
    Api(#[from] kube::Error),
}

/// The bundles of modules.
#[derive(Clone)]
pub struct Bundles {
    storage: Storage,
}

impl Bundles {
    pub(crate) fn new(storage: Storage) -> Self {
        Bundles { storage }
    }

    /// Stores a bundle in this namespace; one that is stored already is marked as used.
    ///
    /// The caller has [`crate::UNUSED_FOR`] to write an object that refers to it.
    ///
    /// # Errors
    /// When the API does not take it.
    pub async fn store(&self, namespace: &str, bundle: &Bundle) -> Result<(), BundleError> {
        self.store_with(namespace, bundle, |_| {}).await
    }

    /// As [`Bundles::store`], for a bundle that is most likely stored already: then it takes one request.
    ///
    /// # Errors
    /// As [`Bundles::store`].
    pub async fn store_again(&self, namespace: &str, bundle: &Bundle) -> Result<(), BundleError> {
        if mark_used(&self.api(namespace), &names::bundle_config_map(bundle.digest.as_str())).await? {
            return Ok(());
        }
        self.store(namespace, bundle).await
    }

    /// As [`Bundles::store`]; `sent` is told the bytes of each part that is stored.
    ///
    /// # Errors
    /// As [`Bundles::store`].
    pub async fn store_with(&self, namespace: &str, bundle: &Bundle, sent: impl Fn(u64)) -> Result<(), BundleError> {
        let api = self.api(namespace);
        let Bundle { digest, bytes } = bundle;
        let failed = failure(digest);
        let head_name = names::bundle_config_map(digest.as_str());
        // The same files are often applied again; then nothing has to be sent.
        if bytes.len() > SMALL && mark_used(&api, &head_name).await? {
            return Ok(());
        }
        // The packer's version decides about the packed bytes, so these are in the names of the parts too.
        let packed = Digest::of(bytes);
        let stored = self.sealer(namespace, digest).seal(bytes.clone()).map_err(Error::from).map_err(&failed)?;
        let mut parts = cut(&stored, PART).into_iter();
        let first = parts.next().unwrap_or_default();
        let parts: Vec<ConfigMap> = parts
            .enumerate()
            .map(|(number, part)| {
                let name = format!("{head_name}-{}-{}", packed.short(NAME_DIGITS), number + 1);
                config_map(digest, &name, BTreeMap::from([(BYTES.to_owned(), ByteString(part))]))
            })
            .collect();
        let names: Vec<String> = parts.iter().filter_map(|part| part.metadata.name.clone()).collect();
        write_parts(&api, parts, sent).await.map_err(&failed)?;
        let data = BTreeMap::from([
            (BYTES.to_owned(), ByteString(first)),
            (PARTS.to_owned(), ByteString(names.join("\n").into_bytes())),
        ]);
        create_head(&api, &config_map(digest, &head_name, data), &head_name).await
    }

    /// The packed bytes of a bundle.
    ///
    /// # Errors
    /// When it is not stored, or is damaged.
    pub async fn fetch(&self, namespace: &str, digest: &Digest) -> Result<Vec<u8>, BundleError> {
        let api = self.api(namespace);
        let failed = failure(digest);
        let damaged = |why: String| BundleError::Damaged { digest: digest.clone(), why };
        let head = api.get_opt(&names::bundle_config_map(digest.as_str())).await?;
        let missing = || BundleError::Missing { digest: digest.clone(), namespace: namespace.to_owned() };
        let mut data = head.ok_or_else(missing)?.binary_data.unwrap_or_default();
        let mut take = |key: &str| data.remove(key).map(|value| value.0).unwrap_or_default();
        let (first, names) = (take(BYTES), take(PARTS));
        let names: Vec<String> = String::from_utf8_lossy(&names).lines().map(str::to_owned).collect();
        let stored = read_parts(&api, first, &names, BYTES).await.map_err(&failed)?;
        let bytes = self.sealer(namespace, digest).open(stored).map_err(Error::from).map_err(&failed)?;
        match digest_of(&bytes) {
            Ok(found) if found == *digest => Ok(bytes),
            Ok(found) => Err(damaged(format!("its content is `{found}`"))),
            Err(error) => Err(damaged(format!("it cannot be unpacked: {error}"))),
        }
    }

    /// Whether a bundle is stored in this namespace.
    ///
    /// # Errors
    /// When the API fails.
    pub async fn is_stored(&self, namespace: &str, digest: &Digest) -> Result<bool, kube::Error> {
        let head = self.api(namespace).get_metadata_opt(&names::bundle_config_map(digest.as_str())).await?;
        Ok(head.is_some())
    }

    fn sealer(&self, namespace: &str, digest: &Digest) -> Sealer {
        self.storage.sealer(ContentKind::Bundle, namespace, digest.as_str())
    }

    fn api(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.storage.client().clone(), namespace)
    }
}

fn failure(digest: &Digest) -> impl Fn(Error) -> BundleError + '_ {
    |error| match error {
        Error::Api(error) => BundleError::Api(error),
        error => BundleError::Damaged { digest: digest.clone(), why: error.to_string() },
    }
}

/// Creates a head; one that exists is marked as used. Its bytes are not compared: another version of the packer makes
/// other bytes of the same files.
async fn create_head(api: &Api<ConfigMap>, head: &ConfigMap, name: &str) -> Result<(), BundleError> {
    loop {
        match api.create(&PostParams::default(), head).await {
            Ok(_) => return Ok(()),
            // It may be swept between the two requests; then it is created after all.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                if mark_used(api, name).await? {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn config_map(digest: &Digest, name: &str, data: BTreeMap<String, ByteString>) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([
                (label::BUNDLE.to_owned(), digest.short(LABEL_DIGITS).to_owned()),
                (label::CONTENT.to_owned(), content::BUNDLE.to_owned()),
                (label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned()),
            ])),
            annotations: Some(BTreeMap::from([(annotation::DIGEST.to_owned(), digest.to_string())])),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        binary_data: Some(data),
        ..ConfigMap::default()
    }
}
