//! Resolves the source of a Run or a Stack to a bundle.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::source::{ConfigMapSource, LocalRef, Source, SourceKind};
use knoll_api::{Digest, DigestError};
use knoll_bundle::{Bundle, File, Files, PackError, pack, pack_texts};
use knoll_fetch::{Credentials, Settings};
use kube::Api;

use crate::bundles::BundleError;
use crate::{Storage, message_of};

/// Why a source gives no bundle.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the ConfigMap `{0}` that holds the module does not exist; create it, or correct the source")]
    NoConfigMap(String),
    #[error("the Secret `{0}` with the credentials of the source does not exist; create it, or correct `secretRef`")]
    NoSecret(String),
    #[error("the source names no files; set one of `inline`, `configMap` or `bundle`")]
    Nothing,
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A git repository or an archive cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] knoll_fetch::Error),
    #[error(transparent)]
    Digest(#[from] DigestError),
    #[error(transparent)]
    Store(#[from] BundleError),
    #[error("the Kubernetes API failed: {}", message_of(.0))]
    Api(#[from] kube::Error),
}

/// The files that a source stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The files as they are now. They are not stored yet.
    Files {
        bundle: Bundle,
        /// The commit of a git repository or the digest of an archive; none for files from the cluster.
        revision: Option<String>,
    },
    /// A bundle that is stored, by its digest.
    Stored(Digest),
}

impl Origin {
    /// The digest of the files.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        match self {
            Origin::Files { bundle, .. } => &bundle.digest,
            Origin::Stored(digest) => digest,
        }
    }
}

/// An earlier result of a source outside of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Earlier<'a> {
    /// The commit, or the digest of the archive.
    pub revision: &'a str,
    /// The digest of the bundle that was made of it.
    pub bundle: &'a Digest,
    /// Whether the caller knows that the bundle is stored. Otherwise the API is asked.
    pub is_stored: bool,
}

/// Resolves sources with the rights of its client.
#[derive(Clone)]
pub struct Sources {
    storage: Storage,
    settings: Settings,
}

impl Sources {
    pub(crate) fn new(storage: Storage, settings: Settings) -> Self {
        Self { storage, settings }
    }

    /// The files that `source` stands for: those of a ConfigMap, of the source itself, of a stored bundle, or fetched from
    /// a git repository or an archive. What is outside of the cluster is not fetched again while it has the revision that
    /// `earlier` names and its bundle is stored.
    ///
    /// # Errors
    /// When the source is not there, cannot be fetched or cannot be packed.
    pub async fn resolve(
        &self,
        namespace: &str,
        source: &Source,
        earlier: Option<Earlier<'_>>,
    ) -> Result<Origin, SourceError> {
        let settings = &self.settings;
        let (bundle, revision) = match source.kind() {
            Some(SourceKind::Inline(files)) => (pack_texts(files)?, None),
            Some(SourceKind::ConfigMap(source)) => (pack(&self.config_map(namespace, source).await?)?, None),
            Some(SourceKind::Bundle(bundle)) => return Ok(Origin::Stored(bundle.digest.parse()?)),
            Some(SourceKind::Git(source)) => {
                let credentials = self.credentials(namespace, source.secret_ref.as_ref()).await?;
                let commit = knoll_fetch::newest(source, &credentials, settings).await?;
                if let Some(stored) = self.unchanged(namespace, earlier, &commit.hash).await? {
                    return Ok(stored);
                }
                (knoll_fetch::git(source, &commit, &credentials, settings).await?, Some(commit.hash))
            }
            Some(SourceKind::Archive(source)) => {
                let revision = format!("sha256:{}", source.sha256);
                let credentials = self.credentials(namespace, source.secret_ref.as_ref()).await?;
                if let Some(stored) = self.unchanged(namespace, earlier, &revision).await? {
                    return Ok(stored);
                }
                (knoll_fetch::archive(source, &credentials, settings).await?, Some(revision))
            }
            None => return Err(SourceError::Nothing),
        };
        Ok(Origin::Files { bundle, revision })
    }

    /// The bundle of an earlier result, when it is of this revision and is still stored.
    async fn unchanged(
        &self,
        namespace: &str,
        earlier: Option<Earlier<'_>>,
        revision: &str,
    ) -> Result<Option<Origin>, SourceError> {
        let Some(earlier) = earlier.filter(|earlier| earlier.revision == revision) else { return Ok(None) };
        let stored = earlier.is_stored || self.storage.bundles().is_stored(namespace, earlier.bundle).await?;
        Ok(stored.then(|| Origin::Stored(earlier.bundle.clone())))
    }

    async fn config_map(&self, namespace: &str, source: &ConfigMapSource) -> Result<Files, SourceError> {
        let api: Api<ConfigMap> = Api::namespaced(self.storage.client().clone(), namespace);
        let map = api.get_opt(&source.name).await?.ok_or_else(|| SourceError::NoConfigMap(source.name.clone()))?;
        let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, File::new(value)));
        let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, File::new(value.0)));
        Ok(text.chain(binary).collect())
    }

    async fn credentials(&self, namespace: &str, secret: Option<&LocalRef>) -> Result<Credentials, SourceError> {
        let Some(secret) = secret else { return Ok(Credentials::default()) };
        let api: Api<Secret> = Api::namespaced(self.storage.client().clone(), namespace);
        let found = api.get_opt(&secret.name).await?.ok_or_else(|| SourceError::NoSecret(secret.name.clone()))?;
        Ok(Credentials::read(&found.data.unwrap_or_default()))
    }
}
