//! The bundle of a source: packed from files that are at hand, or known by its digest.

use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::source::{ConfigMapSource, Source, SourceKind};
use kube::{Api, Client};

use crate::pack::{Bundle, File, Files, PackError, pack, pack_texts};

/// Why a source gives no bundle.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The ConfigMap is not there.
    #[error("the ConfigMap `{0}` that holds the module is not there; create it, or correct the source")]
    NoConfigMap(String),
    /// The source has to be fetched from elsewhere.
    #[error("the source is a {0}, of which no bundle was made; use `inline`, `configMap` or `bundle`")]
    NotFetched(&'static str),
    /// No source is given.
    #[error("the source names no files; set one of `inline`, `configMap` or `bundle`")]
    Nothing,
    /// The files cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The API failed.
    #[error("the Kubernetes API failed: {}", crate::said(.0))]
    Api(#[from] kube::Error),
}

/// What a source comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Its files, packed as they are now; nobody has stored them yet.
    Files(Bundle),
    /// A bundle that is kept already, by its digest.
    Kept(String),
}

/// Packs what a source names.
///
/// # Errors
/// When that is not there or cannot be packed.
pub async fn of_source(client: &Client, namespace: &str, source: &Source) -> Result<Origin, SourceError> {
    match source.kind() {
        Some(SourceKind::Inline(files)) => Ok(Origin::Files(pack_texts(files)?)),
        Some(SourceKind::ConfigMap(source)) => Ok(Origin::Files(pack(&config_map(client, namespace, source).await?)?)),
        Some(SourceKind::Bundle(bundle)) => Ok(Origin::Kept(bundle.digest.clone())),
        Some(SourceKind::Git(_)) => Err(SourceError::NotFetched("git repository")),
        Some(SourceKind::Archive(_)) => Err(SourceError::NotFetched("archive")),
        None => Err(SourceError::Nothing),
    }
}

async fn config_map(client: &Client, namespace: &str, source: &ConfigMapSource) -> Result<Files, SourceError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = api.get_opt(&source.name).await?.ok_or_else(|| SourceError::NoConfigMap(source.name.clone()))?;
    let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, File::new(value)));
    let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, File::new(value.0)));
    Ok(text.chain(binary).collect())
}
