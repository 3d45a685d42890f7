//! The bundle of any source: packed from what is at hand in the cluster, or fetched.

use k8s_openapi::api::core::v1::Secret;
use knoll_api::source::{LocalRef, Source, SourceKind};
use knoll_bundle::{Origin, StoreError};
use kube::{Api, Client};

use crate::{Credentials, Error};

/// What fetches may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Whether `file://` is read: only where whoever writes a source may read the operator's files anyway.
    pub local: bool,
}

/// Why a source gives no bundle.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// What is in the cluster cannot be used.
    #[error(transparent)]
    Cluster(knoll_bundle::SourceError),
    /// The Secret with the credentials is not there.
    #[error("the Secret `{0}` with the credentials of the source is not there; create it, or correct `secretRef`")]
    NoSecret(String),
    /// It cannot be fetched.
    #[error(transparent)]
    Fetch(#[from] Error),
    /// It cannot be kept in the cluster.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The API failed.
    #[error("the Kubernetes API failed: {}", knoll_bundle::said(.0))]
    Api(#[from] kube::Error),
}

impl From<knoll_bundle::SourceError> for SourceError {
    fn from(error: knoll_bundle::SourceError) -> Self {
        match error {
            knoll_bundle::SourceError::Api(error) => Self::Api(error),
            error => Self::Cluster(error),
        }
    }
}

/// Packs what a source names; fetches it first when it is elsewhere.
///
/// # Errors
/// When that is not there, cannot be fetched or cannot be packed.
pub async fn of_source(
    client: &Client,
    namespace: &str,
    source: &Source,
    settings: Settings,
) -> Result<Origin, SourceError> {
    let bundle = match source.kind() {
        Some(SourceKind::Git(source)) => {
            let credentials = Credentials::of(client, namespace, source.secret_ref.as_ref()).await?;
            let commit = crate::newest(source, &credentials, settings).await?;
            crate::git(source, &commit, &credentials, settings).await?
        }
        Some(SourceKind::Archive(source)) => {
            let credentials = Credentials::of(client, namespace, source.secret_ref.as_ref()).await?;
            crate::archive(source, &credentials, settings).await?
        }
        _ => return Ok(knoll_bundle::of_source(client, namespace, source).await?),
    };
    Ok(Origin::Files(bundle))
}

impl Credentials {
    /// Those of the Secret that a source names; none when it names none.
    ///
    /// # Errors
    /// When the Secret is not there, or the API fails.
    pub async fn of(client: &Client, namespace: &str, secret: Option<&LocalRef>) -> Result<Self, SourceError> {
        let Some(secret) = secret else { return Ok(Self::default()) };
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let found = api.get_opt(&secret.name).await?.ok_or_else(|| SourceError::NoSecret(secret.name.clone()))?;
        Ok(Self::read(&found.data.unwrap_or_default()))
    }
}
