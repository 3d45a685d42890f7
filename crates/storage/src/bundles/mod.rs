//! The bundles of modules, in ConfigMaps that never change.
//!
//! *Guarantees.* The head is named after the digest, holds the first part and names the others, and is written last: a
//! bundle whose head exists is complete. What [`Bundles::fetch`] returns has the digest that was asked for, and a bundle
//! counts as stored only after its content was compared with it: users write these ConfigMaps too. Other content under the
//! name of a bundle keeps nobody from storing it (`checked`). A bundle has no owner: Runs, Workspaces and Stacks refer to
//! it by its digest, and [`Bundles::sweep`] deletes those that nothing has referred to for a while.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::Digest;
use knoll_api::names::{self, annotation, content, label};
use knoll_bundle::Bundle;
use kube::Api;
use kube::api::PostParams;

use crate::blob::{BlobError, NAME_DIGITS, PART, cut, write_parts};
use crate::error::Error;
use crate::seal::Sealer;
use crate::{ContentKind, Storage, message_of};

mod checked;
mod sweep;

use checked::Standing;

/// To send a bundle up to this size costs no more than to ask whether it is stored.
const SMALL: usize = 16 * 1024;
/// How often other content, or a sweep, may be in the way of one bundle under its own name. After that it is stored under a
/// name that nobody knows beforehand.
const ATTEMPTS: usize = 3;
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

    /// As [`Bundles::store`], for a bundle that is most likely stored already: then a small one takes one request.
    ///
    /// # Errors
    /// As [`Bundles::store`].
    pub async fn store_again(&self, namespace: &str, bundle: &Bundle) -> Result<(), BundleError> {
        self.write(namespace, bundle, true, |_| {}).await
    }

    /// As [`Bundles::store`]; `sent` is told the bytes of each part that is stored.
    ///
    /// # Errors
    /// As [`Bundles::store`].
    pub async fn store_with(&self, namespace: &str, bundle: &Bundle, sent: impl Fn(u64)) -> Result<(), BundleError> {
        // The same files are often applied again; then nothing has to be sent.
        self.write(namespace, bundle, bundle.bytes.len() > SMALL, sent).await
    }

    /// `ask_first` asks whether the bundle is stored before anything of it is sent.
    async fn write(
        &self,
        namespace: &str,
        bundle: &Bundle,
        mut ask_first: bool,
        sent: impl Fn(u64),
    ) -> Result<(), BundleError> {
        let api = self.api(namespace);
        let sealer = self.sealer(namespace, &bundle.digest);
        let own_name = names::bundle_config_map(bundle.digest.as_str());
        for _ in 0..ATTEMPTS {
            if ask_first {
                match checked::mark_used(&api, &own_name, &bundle.digest, &sealer).await? {
                    Standing::Stored => return Ok(()),
                    Standing::Absent => {}
                    // A user who may not delete it stores the bundle beside it.
                    Standing::Other(head) if !checked::delete(&api, &head).await? => break,
                    Standing::Other(_) => {}
                }
            }
            if self.create(&api, &own_name, bundle, &sealer, &sent).await? {
                return Ok(());
            }
            ask_first = true;
        }
        let copy = checked::name_of_copy(&own_name).map_err(failure(&bundle.digest))?;
        match self.create(&api, &copy, bundle, &sealer, &sent).await? {
            true => Ok(()),
            false => Err(BundleError::Damaged {
                digest: bundle.digest.clone(),
                why: format!("other content has the name `{copy}`"),
            }),
        }
    }

    /// Creates the ConfigMaps of a bundle under this name; false when the name is taken.
    async fn create(
        &self,
        api: &Api<ConfigMap>,
        name: &str,
        bundle: &Bundle,
        sealer: &Sealer,
        sent: impl Fn(u64),
    ) -> Result<bool, BundleError> {
        let Bundle { digest, bytes } = bundle;
        let failed = failure(digest);
        // The packer's version decides about the packed bytes, so these are in the names of the parts too.
        let packed = Digest::of(bytes);
        let stored = sealer.seal(bytes.clone()).map_err(Error::from).map_err(&failed)?;
        let mut parts = cut(&stored, PART).into_iter();
        let first = parts.next().unwrap_or_default();
        let parts: Vec<ConfigMap> = parts
            .enumerate()
            .map(|(number, part)| {
                let name = format!("{name}-{}-{}", packed.short(NAME_DIGITS), number + 1);
                config_map(digest, &name, BTreeMap::from([(BYTES.to_owned(), ByteString(part))]))
            })
            .collect();
        let names: Vec<String> = parts.iter().filter_map(|part| part.metadata.name.clone()).collect();
        match write_parts(api, parts, sent).await {
            Err(Error::Blob(BlobError::Occupied { .. })) => return Ok(false),
            written => written.map_err(&failed)?,
        }
        let data = BTreeMap::from([
            (BYTES.to_owned(), ByteString(first)),
            (PARTS.to_owned(), ByteString(names.join("\n").into_bytes())),
        ]);
        match api.create(&PostParams::default(), &config_map(digest, name, data)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The packed bytes of a bundle.
    ///
    /// # Errors
    /// When it is not stored, or is damaged.
    pub async fn fetch(&self, namespace: &str, digest: &Digest) -> Result<Vec<u8>, BundleError> {
        let api = self.api(namespace);
        let sealer = self.sealer(namespace, digest);
        let missing = match checked::under_own_name(&api, digest, &sealer).await {
            Ok(Some(bytes)) => return Ok(bytes),
            Ok(None) => BundleError::Missing { digest: digest.clone(), namespace: namespace.to_owned() },
            Err(error @ BundleError::Damaged { .. }) => error,
            Err(error) => return Err(error),
        };
        checked::of_a_copy(&api, digest, &sealer).await?.ok_or(missing)
    }

    /// Whether a bundle is stored in this namespace, as it was stored.
    ///
    /// # Errors
    /// When the API fails.
    pub async fn is_stored(&self, namespace: &str, digest: &Digest) -> Result<bool, kube::Error> {
        match self.fetch(namespace, digest).await {
            Ok(_) => Ok(true),
            Err(BundleError::Missing { .. } | BundleError::Damaged { .. }) => Ok(false),
            Err(BundleError::Api(error)) => Err(error),
        }
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
