//! Deletes the versions of states that need not stay.

use std::collections::BTreeSet;

use jiff::Timestamp;
use knoll_api::Digest;
use object_store::path::Path;

use crate::archive::{Archive, ArchiveError, Versions, record_name};
use crate::record::RecordName;
use crate::retention::Retention;

/// What a deletion of old versions has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned {
    pub versions: usize,
    /// Whether the folder has more names than are looked at, so that some were not.
    pub is_crowded: bool,
}

impl Archive {
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
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::archive::Limits;
    use crate::{Record, Target};

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
}
