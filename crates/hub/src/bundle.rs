//! The files of a module as one archive: tar, packed with zstd, the same bytes for the same files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::names::label;
use knoll_api::run::Run;
use knoll_api::source::{ConfigMapSource, SourceKind};
use knoll_api::workspace::Workspace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::chunks;

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file's name leads out of the module.
    #[error("the module has a file `{0}`, which lies outside of it; use relative names without `..`")]
    Outside(String),
    /// The ConfigMap is not there.
    #[error("the ConfigMap `{0}` that holds the module is not there; create it, or correct the run's source")]
    NoConfigMap(String),
    /// The bundle is not there.
    #[error("there is no bundle `{0}` in this namespace; apply the module from its source first")]
    NoBundle(String),
    /// Parts of the bundle are missing or changed.
    #[error("the bundle `{0}` is damaged; apply the module from its source again")]
    Damaged(String),
    /// The source was not fetched.
    #[error("the run's source is a {0}, of which no bundle was made; use `inline`, `configMap` or `bundle`")]
    NotFetched(&'static str),
    /// Nothing says which files to run.
    #[error("the run has no source, and nothing was applied in its Workspace yet; give it a source")]
    NoSource,
    /// The archive cannot be written.
    #[error("cannot pack the module: {0}")]
    Pack(#[from] io::Error),
    /// The API failed.
    #[error("the Kubernetes API failed: {0}")]
    Api(#[from] kube::Error),
}

/// The bundle of a run, or nothing for a run that can do without.
///
/// # Errors
/// When its source is not there or cannot be used.
pub async fn of(client: &Client, run: &Run, workspace: &Workspace) -> Result<Option<Vec<u8>>, Error> {
    let namespace = run.namespace().unwrap_or_default();
    let kind = run.spec.source.as_ref().and_then(|source| source.kind());
    let files = match kind {
        Some(SourceKind::Inline(files)) => {
            files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes())).collect()
        }
        Some(SourceKind::ConfigMap(source)) => config_map(client, &namespace, source).await?,
        Some(SourceKind::Bundle(bundle)) => {
            return stored(client, &namespace, &bundle.digest).await.map(Some);
        }
        Some(SourceKind::Git(_)) => return Err(Error::NotFetched("git repository")),
        Some(SourceKind::Archive(_)) => return Err(Error::NotFetched("archive")),
        None => {
            let last = workspace.status.as_ref().and_then(|status| status.bundle.as_deref());
            return match (last, run.spec.operation) {
                (Some(digest), _) => stored(client, &namespace, digest).await.map(Some),
                // A command such as `state list` needs no files.
                (None, knoll_api::run::Operation::Command) => Ok(None),
                (None, _) => Err(Error::NoSource),
            };
        }
    };
    pack(&files).map(Some)
}

async fn config_map(
    client: &Client,
    namespace: &str,
    source: &ConfigMapSource,
) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = api.get_opt(&source.name).await?.ok_or_else(|| Error::NoConfigMap(source.name.clone()))?;
    let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
    let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
    Ok(text.chain(binary).collect())
}

/// A bundle that is kept in ConfigMaps: `binaryData.bundle` of each, in the order of their names.
async fn stored(client: &Client, namespace: &str, digest: &str) -> Result<Vec<u8>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let hash = digest.strip_prefix("sha256:").unwrap_or(digest);
    let value = hash.get(..63).unwrap_or(hash);
    let mut maps = api.list(&ListParams::default().labels(&format!("{}={value}", label::BUNDLE))).await?.items;
    if maps.is_empty() {
        return Err(Error::NoBundle(digest.to_owned()));
    }
    maps.sort_by_key(|map| {
        let name = map.name_any();
        let number = name.rsplit('-').next().and_then(|number| number.parse::<u64>().ok());
        (number, name)
    });
    let bundle: Vec<u8> = maps
        .into_iter()
        .flat_map(|map| map.binary_data.unwrap_or_default().remove("bundle").map(|part| part.0).unwrap_or_default())
        .collect();
    if chunks::digest(&bundle) == digest { Ok(bundle) } else { Err(Error::Damaged(digest.to_owned())) }
}

/// Packs files by their names.
///
/// # Errors
/// When a name leads out of the module.
pub fn pack(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, Error> {
    let mut archive = tar::Builder::new(zstd::Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?);
    for (name, content) in files {
        let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || name.is_empty() || name.ends_with('/') {
            return Err(Error::Outside(name.clone()));
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(if content.starts_with(b"#!") { 0o755 } else { 0o644 });
        // Nothing of where and when it was packed goes into it.
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, name, content.as_slice())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Read;

    use super::*;

    fn files(names: &[&str]) -> BTreeMap<String, Vec<u8>> {
        names.iter().map(|name| ((*name).to_owned(), name.as_bytes().to_vec())).collect()
    }

    #[test]
    fn the_same_files_are_the_same_bytes_and_come_out_again() {
        let packed = pack(&files(&["main.tf", "modules/net/main.tf"])).unwrap();
        assert_eq!(packed, pack(&files(&["modules/net/main.tf", "main.tf"])).unwrap());
        let mut archive = tar::Archive::new(zstd::Decoder::new(&packed[..]).unwrap());
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            assert_eq!(entry.path().unwrap().to_str(), Some(text.as_str()));
            names.push(text);
        }
        assert_eq!(names, ["main.tf", "modules/net/main.tf"]);
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["../x.tf", "a/../../x.tf", "/etc/x.tf", "", ".", "a/"] {
            let error = pack(&files(&[name])).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }

    #[test]
    fn a_long_name_is_packed_too() {
        let name = format!("{}/main.tf", "long".repeat(60));
        assert!(pack(&files(&[&name])).is_ok());
    }
}
