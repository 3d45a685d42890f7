//! The copies of states in a target.

use std::collections::BTreeSet;
use std::io;

use bytes::{Bytes, BytesMut};
use futures::{Stream, TryStreamExt};
use knoll_api::Digest;
use knoll_api::wire::LARGEST_CONTENT;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::names::is_part;
use crate::record::{Record, RecordName};
use crate::target::{Target, describe};

/// The largest record, and the largest object. An API server takes none above 1.5 MiB, and a lock file is a few KiB.
const LARGEST_DOCUMENT: u64 = 4 * 1024 * 1024;
/// Names in one folder that are held in memory. A state that is written every two minutes has as many versions in the 90
/// days of the default.
const MOST_NAMES: usize = 65_536;
/// Names in one folder that are looked at: a thousand requests to a bucket. Whoever may write there could add to them
/// without an end.
const MOST_SCANNED: usize = 1 << 20;
/// The number of hex digits of a digest.
const DIGEST_DIGITS: usize = 64;

const STATES: &str = "states";
const VERSIONS: &str = "versions";
const CONTENT: &str = "content";
const BUNDLES: &str = "bundles";

/// Why a copy cannot be written or read. The message holds no content.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The target does not do what it is asked for, now.
    #[error("`{target}` failed: {why}")]
    Target { target: String, why: String },
    #[error("the backup `{path}` is damaged: {why}")]
    Damaged { path: String, why: String },
    #[error("there is no backup `{0}`")]
    Missing(String),
    #[error("`{0}` is no name of an object of Kubernetes")]
    Name(String),
}

/// Everything that was copied to a target.
#[derive(Clone, Debug)]
pub struct Archive {
    pub(crate) target: Target,
    pub(crate) limits: Limits,
}

/// How many names of one folder are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Those that are held in memory.
    pub held: usize,
    /// Those that are looked at.
    pub scanned: usize,
}

/// The versions of a state.
#[derive(Clone, Debug)]
pub struct Versions {
    /// What is listed of the copies of a state.
    pub names: Vec<RecordName>,
    /// Whether there are no others.
    pub is_whole: bool,
}

impl Archive {
    #[must_use]
    pub fn new(target: Target) -> Self {
        Archive { target, limits: Limits { held: MOST_NAMES, scanned: MOST_SCANNED } }
    }

    /// The address of the target, for messages.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.target.shown()
    }

    /// The namespaces that have a state here.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn namespaces(&self) -> Result<Vec<String>, ArchiveError> {
        self.folders(&self.target.path(&[STATES])).await
    }

    /// The Workspaces of a namespace that have a state here.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn workspaces(&self, namespace: &str) -> Result<Vec<String>, ArchiveError> {
        check(namespace)?;
        self.folders(&self.target.path(&[STATES, namespace])).await
    }

    /// The versions of a Workspace's state, the newest first: as many as are held in memory.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn versions(&self, namespace: &str, workspace: &str) -> Result<Vec<RecordName>, ArchiveError> {
        self.listed(namespace, workspace).await.map(|versions| versions.names)
    }

    /// As [`Archive::versions`], and whether there are others.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn listed(&self, namespace: &str, workspace: &str) -> Result<Versions, ArchiveError> {
        let (mut newest, mut left_out) = (BTreeSet::new(), false);
        let see = |name: &str| {
            newest.extend(record_name(name));
            if newest.len() > self.limits.held {
                newest.pop_first();
                left_out = true;
            }
        };
        let seen_all = self.scan(&self.versions_of(namespace, workspace)?, see).await?;
        Ok(Versions { names: newest.into_iter().rev().collect(), is_whole: seen_all && !left_out })
    }

    /// Copies a version. Content that is there already is not sent.
    ///
    /// # Errors
    /// When the target fails. The version is there as a whole or not at all.
    pub async fn put(&self, record: &Record, content: &Bytes) -> Result<(), ArchiveError> {
        let path = self.content_of(&record.namespace, &record.workspace, &record.digest)?;
        if !self.exists(&path).await? {
            let content = content.clone();
            let packed = tokio::task::spawn_blocking(move || zstd::bulk::compress(&content, 0));
            let packed = packed.await.map_err(io::Error::other).and_then(|packed| packed);
            self.write(&path, packed.map_err(|error| self.failed(error.to_string()))?.into()).await?;
        }
        let document = serde_json::to_vec(record).map_err(|error| self.failed(error.to_string()))?;
        self.write(&self.record_of(record)?, document.into()).await
    }

    /// A version's record.
    ///
    /// # Errors
    /// When the target fails, or the record is not what its name says.
    pub async fn record(&self, namespace: &str, workspace: &str, name: &RecordName) -> Result<Record, ArchiveError> {
        let path = self.versions_of(namespace, workspace)?.join(format!("{name}.json"));
        let document = self.read(&path, LARGEST_DOCUMENT).await?;
        let damaged = |why: &str| ArchiveError::Damaged { path: path.to_string(), why: why.to_owned() };
        // The error of the parser could quote what it found.
        let record: Record = serde_json::from_slice(&document).map_err(|_| damaged("it is no record"))?;
        let is_theirs = record.namespace == namespace && record.workspace == workspace;
        if is_theirs && record.name() == *name { Ok(record) } else { Err(damaged("its record is of another version")) }
    }

    /// The bytes of a version's state, which have the digest of its record.
    ///
    /// # Errors
    /// When the target fails, or the bytes are others.
    pub async fn content(&self, record: &Record) -> Result<Bytes, ArchiveError> {
        let path = self.content_of(&record.namespace, &record.workspace, &record.digest)?;
        let content = unpack(&path, self.read(&path, LARGEST_CONTENT).await?).await?;
        self.verified(&path, content, &record.digest)
    }

    /// Copies the files of a module; returns whether they had to be sent.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn put_bundle(&self, digest: &Digest, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        self.write(&self.bundle_of(digest), bytes.into()).await
    }

    /// Whether the files of a module are here.
    ///
    /// # Errors
    /// When the target fails.
    pub async fn has_bundle(&self, digest: &Digest) -> Result<bool, ArchiveError> {
        self.exists(&self.bundle_of(digest)).await
    }

    /// The files of a module, as they were copied. The caller checks them, as their digest is not that of these bytes.
    ///
    /// # Errors
    /// When the target fails or does not have them.
    pub async fn bundle(&self, digest: &Digest) -> Result<Bytes, ArchiveError> {
        self.read(&self.bundle_of(digest), LARGEST_CONTENT).await
    }

    pub(crate) fn versions_of(&self, namespace: &str, workspace: &str) -> Result<Path, ArchiveError> {
        check(namespace)?;
        check(workspace)?;
        Ok(self.target.path(&[STATES, namespace, workspace, VERSIONS]))
    }

    fn record_of(&self, record: &Record) -> Result<Path, ArchiveError> {
        Ok(self.versions_of(&record.namespace, &record.workspace)?.join(format!("{}.json", record.name())))
    }

    pub(crate) fn content_of(&self, namespace: &str, workspace: &str, digest: &Digest) -> Result<Path, ArchiveError> {
        check(namespace)?;
        check(workspace)?;
        let name = format!("{}.zst", digest.short(DIGEST_DIGITS));
        Ok(self.target.path(&[STATES, namespace, workspace, CONTENT, &name]))
    }

    fn bundle_of(&self, digest: &Digest) -> Path {
        self.target.path(&[BUNDLES, &format!("{}.tar.zst", digest.short(DIGEST_DIGITS))])
    }

    fn verified(&self, path: &Path, content: Bytes, expected: &Digest) -> Result<Bytes, ArchiveError> {
        let found = Digest::of(&content);
        if found == *expected {
            return Ok(content);
        }
        Err(ArchiveError::Damaged { path: path.to_string(), why: format!("its content is `{found}`") })
    }

    /// The folders in a folder whose names can be names of objects.
    pub(crate) async fn folders(&self, path: &Path) -> Result<Vec<String>, ArchiveError> {
        let listed = self.target.store.list_with_delimiter(Some(path)).await;
        let listed = listed.map_err(|error| self.failed(describe(&error)))?;
        let names = listed.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned));
        let mut names: Vec<String> = names.filter(|name| is_part(name)).collect();
        names.sort();
        Ok(names)
    }

    /// The names in a folder that are `wanted`: as many as are held in memory.
    pub(crate) async fn list(
        &self,
        path: &Path,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<Vec<String>, ArchiveError> {
        let mut names = Vec::new();
        let see = |name: &str| {
            if wanted(name) && names.len() < self.limits.held {
                names.push(name.to_owned());
            }
        };
        self.scan(path, see).await?;
        Ok(names)
    }

    /// Shows the names in a folder; false if there are more than are looked at.
    pub(crate) async fn scan(&self, path: &Path, mut see: impl FnMut(&str)) -> Result<bool, ArchiveError> {
        let mut found = self.target.store.list(Some(path));
        let mut left = self.limits.scanned;
        while let Some(meta) = found.try_next().await.map_err(|error| self.failed(describe(&error)))? {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            if let Some(name) = meta.location.filename() {
                see(name);
            }
        }
        Ok(true)
    }

    pub(crate) async fn exists(&self, path: &Path) -> Result<bool, ArchiveError> {
        match self.target.store.head(path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed(describe(&error))),
        }
    }

    pub(crate) async fn write(&self, path: &Path, bytes: Bytes) -> Result<(), ArchiveError> {
        let written = self.target.store.put(path, PutPayload::from_bytes(bytes)).await;
        written.map(drop).map_err(|error| self.failed(describe(&error)))
    }

    pub(crate) async fn delete(&self, path: &Path) -> Result<(), ArchiveError> {
        match self.target.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(describe(&error))),
        }
    }

    /// What lies there, if it has at most `limit` bytes.
    pub(crate) async fn read(&self, path: &Path, limit: u64) -> Result<Bytes, ArchiveError> {
        let failed = |error: object_store::Error| match error {
            object_store::Error::NotFound { .. } => ArchiveError::Missing(path.to_string()),
            error => self.failed(describe(&error)),
        };
        let found = self.target.store.get(path).await.map_err(failed)?;
        let too_large = || {
            let why = format!("it has more than {} MiB", limit / 1024 / 1024);
            ArchiveError::Damaged { path: path.to_string(), why }
        };
        let declared = found.meta.size;
        let bytes = within(declared, limit, found.into_stream()).await.map_err(failed)?;
        bytes.ok_or_else(too_large)
    }

    pub(crate) fn document_limit() -> u64 {
        LARGEST_DOCUMENT
    }

    fn failed(&self, why: String) -> ArchiveError {
        ArchiveError::Target { target: self.target.shown().to_owned(), why }
    }
}

/// The bytes of a stream; none if there are more than `limit`, whatever the server has `declared`.
async fn within<E>(
    declared: u64,
    limit: u64,
    mut pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> Result<Option<Bytes>, E> {
    if declared > limit {
        return Ok(None);
    }
    let mut all = BytesMut::new();
    while let Some(piece) = pieces.try_next().await? {
        if (all.len() + piece.len()) as u64 > limit {
            return Ok(None);
        }
        all.extend_from_slice(&piece);
    }
    Ok(Some(all.freeze()))
}

/// The version that a file is the record of.
pub(crate) fn record_name(file: &str) -> Option<RecordName> {
    file.strip_suffix(".json")?.parse().ok()
}

pub(crate) fn check(name: &str) -> Result<(), ArchiveError> {
    if is_part(name) { Ok(()) } else { Err(ArchiveError::Name(name.to_owned())) }
}

/// Decompresses as many bytes as the frame declares, and no more than a state may have.
async fn unpack(path: &Path, packed: Bytes) -> Result<Bytes, ArchiveError> {
    let damaged = |why: &str| ArchiveError::Damaged { path: path.to_string(), why: why.to_owned() };
    let unpacked = tokio::task::spawn_blocking(move || {
        let declared = zstd::zstd_safe::get_frame_content_size(&packed).ok().flatten();
        let size = declared.filter(|size| *size <= LARGEST_CONTENT).and_then(|size| usize::try_from(size).ok())?;
        zstd::bulk::decompress(&packed, size).ok()
    });
    let unpacked = unpacked.await.map_err(|_| damaged("it cannot be decompressed"))?;
    Ok(unpacked.ok_or_else(|| damaged("it cannot be decompressed"))?.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// The size was believed as the server declared it.
    #[tokio::test]
    async fn a_server_that_declared_less_than_it_sent_filled_the_memory() {
        let pieces = || futures::stream::iter((0..4).map(|_| Ok::<_, ()>(Bytes::from_static(b"1234"))));
        for (declared, limit, expect) in [(16, 16, Some(16)), (17, 16, None), (1, 16, Some(16)), (1, 15, None)] {
            let read = within(declared, limit, pieces()).await.unwrap();
            assert_eq!(read.map(|bytes| bytes.len()), expect, "{declared} {limit}");
        }
    }
}
