//! The copies of states in a target.

use std::collections::BTreeSet;
use std::io;

use bytes::{Bytes, BytesMut};
use futures::{Stream, TryStreamExt};
use jiff::Timestamp;
use knoll_api::Digest;
use knoll_api::wire::LARGEST_CONTENT;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::names::is_part;
use crate::record::{Record, RecordName};
use crate::retention::Retention;
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
    limits: Limits,
}

/// How many names of one folder are read.
#[derive(Clone, Copy, Debug)]
struct Limits {
    held: usize,
    scanned: usize,
}

/// The versions of a state.
#[derive(Clone, Debug)]
pub struct Versions {
    /// The newest first.
    pub names: Vec<RecordName>,
    /// Whether there are no others.
    pub is_whole: bool,
}

/// What a deletion of old versions has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned {
    pub versions: usize,
    /// Whether the folder has more names than are looked at, so that some were not.
    pub is_crowded: bool,
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

    /// Deletes the versions that `retention` does not keep, and content that no version has any more. Of more versions than
    /// are held in memory, the oldest go first and the others the next time. `versions` are those that [`Archive::listed`]
    /// has found, and those that were copied since.
    ///
    /// # Errors
    /// When the target fails; what is left goes the next time.
    pub async fn prune(
        &self,
        namespace: &str,
        workspace: &str,
        versions: Versions,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<Pruned, ArchiveError> {
        let folder = self.versions_of(namespace, workspace)?;
        let Versions { names, is_whole } = versions;
        let (expired, mut is_crowded) = match is_whole {
            true => (retention.expired(names.clone(), now).into_iter().collect(), false),
            false => self.oldest_expired(&folder, &names, retention, now).await?,
        };
        for name in &expired {
            self.delete(&folder.clone().join(format!("{name}.json"))).await?;
        }
        let mut gone: BTreeSet<Digest> = expired.iter().map(|version| version.digest.clone()).collect();
        for version in names.iter().filter(|version| !expired.contains(version)) {
            gone.remove(&version.digest);
        }
        if !is_whole && !gone.is_empty() {
            // A version that is not held may have the same content.
            let see = |name: &str| {
                if let Some(version) = record_name(name).filter(|version| !expired.contains(version)) {
                    gone.remove(&version.digest);
                }
            };
            is_crowded |= !self.scan(&folder, see).await?;
            if is_crowded {
                gone.clear();
            }
        }
        for digest in &gone {
            self.delete(&self.content_of(namespace, workspace, digest)?).await?;
        }
        Ok(Pruned { versions: expired.len(), is_crowded })
    }

    /// The oldest versions that may go, where only the newest are held in `names`; and whether the folder has more names
    /// than are looked at.
    async fn oldest_expired(
        &self,
        folder: &Path,
        names: &[RecordName],
        retention: &Retention,
        now: Timestamp,
    ) -> Result<(BTreeSet<RecordName>, bool), ArchiveError> {
        let mut newest: Vec<&RecordName> = names.iter().collect();
        newest.sort_unstable();
        let mut expired = BTreeSet::new();
        // Which others the retention keeps by their number is not known.
        let Some(oldest_kept) = newest.iter().rev().nth(retention.versions.max(1) - 1) else {
            return Ok((expired, true));
        };
        let see = |name: &str| {
            let version = record_name(name).filter(|it| it < *oldest_kept && retention.is_old(it, now));
            expired.extend(version);
            if expired.len() > self.limits.held {
                expired.pop_last();
            }
        };
        let seen_all = self.scan(folder, see).await?;
        Ok((expired, !seen_all))
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

    fn versions_of(&self, namespace: &str, workspace: &str) -> Result<Path, ArchiveError> {
        check(namespace)?;
        check(workspace)?;
        Ok(self.target.path(&[STATES, namespace, workspace, VERSIONS]))
    }

    fn record_of(&self, record: &Record) -> Result<Path, ArchiveError> {
        Ok(self.versions_of(&record.namespace, &record.workspace)?.join(format!("{}.json", record.name())))
    }

    fn content_of(&self, namespace: &str, workspace: &str, digest: &Digest) -> Result<Path, ArchiveError> {
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
    async fn scan(&self, path: &Path, mut see: impl FnMut(&str)) -> Result<bool, ArchiveError> {
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
fn record_name(file: &str) -> Option<RecordName> {
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

    use std::time::Duration;

    use super::*;

    fn archive(folder: &tempfile::TempDir, held: usize, scanned: usize) -> Archive {
        let archive = Archive::new(Target::open(&format!("file://{}", folder.path().display())).unwrap());
        Archive { limits: Limits { held, scanned }, ..archive }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The record of this second; every fourth one has the same state.
    fn record(second: i64) -> (Record, Bytes) {
        let content = format!("state {}", second % 4);
        let record = Record {
            namespace: "team".to_owned(),
            workspace: "net".to_owned(),
            serial: 1,
            lineage: "l".to_owned(),
            digest: Digest::of(&content),
            size: content.len() as u64,
            resources: 0,
            written_at: at(second),
            run: "run".to_owned(),
            requested_by: None,
            lock: None,
        };
        (record, content.into())
    }

    async fn seconds(archive: &Archive) -> Vec<i64> {
        let versions = archive.versions("team", "net").await.unwrap();
        versions.iter().map(|version| version.written_at.as_second()).collect()
    }

    /// From then on nothing was copied and nothing deleted, for ever.
    #[tokio::test]
    async fn a_state_with_more_versions_than_are_held_was_not_copied_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let (all, few) = (archive(&folder, 100, 1000), archive(&folder, 3, 1000));
        for second in 1..=10 {
            let (record, content) = record(second);
            all.put(&record, &content).await.unwrap();
        }
        let listed = few.listed("team", "net").await.unwrap();
        assert!(!listed.is_whole);
        assert_eq!(seconds(&few).await, [10, 9, 8]);
        // Those up to second 8 are old, and the two newest stay.
        let retention = Retention { versions: 2, age: Duration::from_secs(91) };
        let mut rounds = Vec::new();
        loop {
            let listed = few.listed("team", "net").await.unwrap();
            let pruned = few.prune("team", "net", listed, &retention, at(100)).await.unwrap();
            assert!(!pruned.is_crowded);
            if pruned.versions == 0 {
                break;
            }
            rounds.push(seconds(&all).await);
        }
        let expect: [&[i64]; 3] = [&[10, 9, 8, 7, 6, 5, 4], &[10, 9, 8, 7], &[10, 9]];
        assert_eq!(rounds, expect);
        // The states of seconds 9 and 10 are those of seconds 1 and 2, and were never deleted.
        for second in [9, 10] {
            let (record, content) = record(second);
            assert_eq!(all.content(&record).await.unwrap(), content);
        }
        for second in [7, 8] {
            assert!(matches!(all.content(&record(second).0).await, Err(ArchiveError::Missing(_))));
        }
    }

    /// Whoever may write the bucket chooses how many names there are.
    #[tokio::test]
    async fn a_folder_with_names_without_end_is_not_looked_at_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let crowded = archive(&folder, 3, 12);
        let path = crowded.versions_of("team", "net").unwrap();
        for number in 0..20 {
            crowded.write(&path.clone().join(format!("junk-{number}.json")), Bytes::new()).await.unwrap();
        }
        for second in 1..=5 {
            let (record, content) = record(second);
            crowded.put(&record, &content).await.unwrap();
        }
        assert!(!crowded.listed("team", "net").await.unwrap().is_whole);
        assert_eq!(crowded.list(&path, |_| true).await.unwrap().len(), 3);
        let listed = crowded.listed("team", "net").await.unwrap();
        let retention = Retention { versions: 1, age: Duration::ZERO };
        assert!(crowded.prune("team", "net", listed, &retention, at(100)).await.unwrap().is_crowded);
        // Another version, which nobody has seen, may have the content of one that was deleted.
        for second in 1..=5 {
            let (record, content) = record(second);
            assert_eq!(crowded.content(&record).await.unwrap(), content);
        }
    }

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
