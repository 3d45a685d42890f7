//! How far the copies of one state are, and how that is shown.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    names::{condition, reason},
    workspace::{BackupStatus, WorkspaceStatus},
};

use crate::conditions::{self, ConditionWriter, Truth};

/// A version of a state that is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub serial: u64,
    pub digest: String,
    pub written_at: Timestamp,
}

impl Copied {
    /// The version that a Workspace's status names.
    #[must_use]
    pub fn of(status: &BackupStatus) -> Option<Self> {
        let written_at = status.written_at.as_ref()?.0;
        Some(Self { serial: status.serial?, digest: status.digest.clone()?, written_at })
    }
}

/// A copy of a state that the cluster does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBackup {
    pub serial: u64,
    pub written_at: Timestamp,
}

/// A version that is not copied yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Uncopied {
    run: Option<String>,
    first: Timestamp,
    last: Timestamp,
}

/// How far the copies of one state are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The newest version that is copied.
    copied: Option<Copied>,
    /// The versions that are not, the oldest first. A Run has one: of those that it wrote, its last is kept.
    uncopied: Vec<Uncopied>,
    /// Why this state cannot be copied. Empty while the target as a whole is unreachable.
    pub(super) failure: Option<String>,
    found: Option<FoundBackup>,
}

impl Standing {
    /// The Workspace's status names this version as copied.
    pub(super) fn remember(&mut self, copied: Copied) {
        if self.copied.as_ref().is_none_or(|known| known.written_at < copied.written_at) {
            self.uncopied.retain(|version| version.last > copied.written_at);
            self.copied = Some(copied);
        }
    }

    /// A version is current; returns whether it has to be copied.
    pub(super) fn head(&mut self, digest: &str, written_at: Timestamp, run: Option<&str>) -> bool {
        if self.copied.as_ref().is_some_and(|copied| copied.digest == digest) {
            return false;
        }
        self.found = None;
        let is_newer = self.copied.as_ref().is_none_or(|copied| written_at > copied.written_at);
        match self.uncopied.last_mut() {
            Some(last) if last.run.as_deref() == run => last.last = last.last.max(written_at),
            Some(last) if last.last >= written_at => {}
            _ if is_newer => {
                let run = run.map(str::to_owned);
                self.uncopied.push(Uncopied { run, first: written_at, last: written_at });
            }
            _ => {}
        }
        true
    }

    /// Every version up to this one is copied. It need not be the newest by time: an older version can be restored.
    pub(super) fn copied(&mut self, copied: Copied) {
        self.uncopied.retain(|version| version.last > copied.written_at);
        (self.copied, self.failure, self.found) = (Some(copied), None, None);
    }

    /// The cluster has no state; `found` is the newest copy of one.
    pub(super) fn absent(&mut self, found: Option<FoundBackup>) {
        *self = Self { found, ..Self::default() };
    }

    #[must_use]
    pub fn behind(&self) -> usize {
        self.uncopied.len()
    }

    #[must_use]
    pub fn behind_since(&self) -> Option<Timestamp> {
        self.uncopied.first().map(|version| version.first)
    }
}

/// What the operator knows of the copies of one Workspace's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateBackup {
    /// The address of the target.
    pub target: String,
    pub standing: Standing,
    /// Why the target cannot be reached.
    pub outage: Option<String>,
}

/// Writes what is known of the copies into a Workspace's status. While one Run goes on (`is_changing`), the state has a
/// new version with every resource: then only a change between good and bad is shown.
pub fn tell(
    status: &mut WorkspaceStatus,
    name: &str,
    generation: Option<i64>,
    backup: Option<&StateBackup>,
    is_changing: bool,
    now: Timestamp,
) {
    let Some(backup) = backup else {
        status.backup = None;
        status.conditions.retain(|known| known.type_ != condition::BACKED_UP);
        return;
    };
    let Standing { copied, uncopied, failure, found } = &backup.standing;
    let next = BackupStatus {
        serial: copied.as_ref().map(|copied| copied.serial),
        digest: copied.as_ref().map(|copied| copied.digest.clone()),
        written_at: copied.as_ref().map(|copied| MicroTime(copied.written_at)),
        behind: u32::try_from(uncopied.len()).unwrap_or(u32::MAX),
        behind_since: backup.standing.behind_since().map(MicroTime),
    };
    let known = conditions::find(&status.conditions, condition::BACKED_UP);
    let why = failure.as_ref().or(backup.outage.as_ref().filter(|_| !uncopied.is_empty()));
    let (truth, reason, message) = match (found, why, copied) {
        (Some(found), ..) => (Truth::False, reason::BACKUP_FOUND, offer(name, found, &backup.target)),
        (None, Some(why), _) => (Truth::False, reason::BACKUP_FAILED, late(uncopied, why)),
        (None, None, Some(copied)) if uncopied.is_empty() => {
            (Truth::True, reason::BACKED_UP, format!("Serial {} is in `{}`.", copied.serial, backup.target))
        }
        // The copy is under way: what was true of the version before is still shown.
        (None, None, Some(_)) => match known {
            Some(known) if known.status == Truth::True.as_str() => return status.backup = Some(next),
            _ => (Truth::Unknown, reason::PROGRESSING, format!("Versions are being copied to `{}`.", backup.target)),
        },
        (None, None, None) if !uncopied.is_empty() => {
            (Truth::Unknown, reason::PROGRESSING, format!("The state is being copied to `{}`.", backup.target))
        }
        (None, None, None) => {
            status.conditions.retain(|known| known.type_ != condition::BACKED_UP);
            return status.backup = Some(next);
        }
    };
    let is_same = known.is_some_and(|known| known.reason == reason);
    if is_changing && is_same && status.backup.is_some() {
        return;
    }
    status.backup = Some(next);
    ConditionWriter::new(&mut status.conditions, generation, now).set(condition::BACKED_UP, truth, reason, message);
}

fn offer(name: &str, found: &FoundBackup, target: &str) -> String {
    let FoundBackup { serial, written_at } = found;
    format!(
        "The Workspace has no state, but `{target}` has serial {serial} of it, written at {written_at:.0}. To restore it: knoll restore -w {name}"
    )
}

fn late(uncopied: &[Uncopied], why: &str) -> String {
    let since = uncopied.first().map(|version| format!(" since {:.0}", version.first)).unwrap_or_default();
    let count = match uncopied.len() {
        0 => "The state is".to_owned(),
        1 => "1 version is".to_owned(),
        many => format!("{many} versions are"),
    };
    format!("{count} not copied{since}: {why}. This is tried again.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn second(at: i64) -> Timestamp {
        Timestamp::from_second(at).unwrap()
    }

    fn copied(serial: u64, at: i64) -> Copied {
        Copied { serial, digest: format!("d{serial}"), written_at: second(at) }
    }

    fn shown(
        standing: &Standing,
        outage: Option<&str>,
        before: Option<WorkspaceStatus>,
        changing: bool,
    ) -> WorkspaceStatus {
        let mut status = before.unwrap_or_default();
        let outage = outage.map(str::to_owned);
        let backup = StateBackup { target: "s3://b".to_owned(), standing: standing.clone(), outage };
        tell(&mut status, "net", Some(1), Some(&backup), changing, second(0));
        status
    }

    #[track_caller]
    fn check(status: &WorkspaceStatus, behind: u32, expect: Option<(&str, &str)>) {
        let condition = conditions::find(&status.conditions, condition::BACKED_UP);
        let found = condition.map(|condition| (condition.status.as_str(), condition.reason.as_str()));
        assert_eq!(found, expect, "{condition:?}");
        assert_eq!(status.backup.as_ref().map(|backup| backup.behind), Some(behind));
    }

    #[test]
    fn a_run_is_one_version_behind_however_often_it_writes() {
        let mut standing = Standing::default();
        for (digest, at, run, behind) in
            [("a", 1, "r", 1), ("b", 2, "r", 1), ("c", 3, "s", 2), ("c", 3, "s", 2), ("d", 9, "t", 3)]
        {
            assert!(standing.head(digest, second(at), Some(run)));
            assert_eq!(standing.behind(), behind, "{digest}");
        }
        assert_eq!(standing.behind_since(), Some(second(1)));
        standing.copied(Copied { serial: 3, digest: "c".to_owned(), written_at: second(3) });
        assert_eq!((standing.behind(), standing.behind_since()), (1, Some(second(9))));
        assert!(!standing.head("c", second(3), Some("s")), "it is copied");
        standing.copied(Copied { serial: 4, digest: "d".to_owned(), written_at: second(9) });
        assert_eq!((standing.behind(), standing.behind_since()), (0, None));
        assert!(standing.head("a", second(1), Some("r")), "an older version is current again and may be missing");
        assert_eq!(standing.behind(), 0);
    }

    #[test]
    fn the_condition_says_how_far_the_copies_are() {
        let mut standing = Standing::default();
        check(&shown(&standing, None, None, false), 0, None);
        check(&shown(&standing, Some("away"), None, false), 0, None);
        standing.head("d1", second(1), Some("r"));
        check(&shown(&standing, None, None, false), 1, Some(("Unknown", reason::PROGRESSING)));
        let bad = shown(&standing, Some("away"), None, false);
        check(&bad, 1, Some(("False", reason::BACKUP_FAILED)));
        standing.copied(copied(1, 1));
        let good = shown(&standing, None, Some(bad), false);
        check(&good, 0, Some(("True", reason::BACKED_UP)));
        // An outage is no fault of a state that is copied.
        check(&shown(&standing, Some("away"), Some(good.clone()), false), 0, Some(("True", reason::BACKED_UP)));
        standing.head("d2", second(2), Some("s"));
        check(&shown(&standing, None, Some(good.clone()), false), 1, Some(("True", reason::BACKED_UP)));
        check(&shown(&standing, Some("away"), Some(good), true), 1, Some(("False", reason::BACKUP_FAILED)));
        standing.failure = Some("damaged".to_owned());
        check(&shown(&standing, None, None, false), 1, Some(("False", reason::BACKUP_FAILED)));
        standing.absent(Some(FoundBackup { serial: 7, written_at: second(7) }));
        let offered = shown(&standing, None, None, false);
        check(&offered, 0, Some(("False", reason::BACKUP_FOUND)));
        let message = &offered.conditions[0].message;
        assert!(message.contains("serial 7") && message.contains("knoll restore -w net"), "{message}");
    }

    #[test]
    fn a_run_that_goes_on_changes_the_status_only_between_good_and_bad() {
        let mut standing = Standing::default();
        standing.head("d1", second(1), Some("r"));
        standing.copied(copied(1, 1));
        let before = shown(&standing, None, None, false);
        standing.head("d2", second(2), Some("s"));
        standing.copied(copied(2, 2));
        assert_eq!(shown(&standing, None, Some(before.clone()), true), before);
        assert_eq!(shown(&standing, None, Some(before), false).backup.unwrap().serial, Some(2));
    }

    #[test]
    fn nothing_is_said_where_there_are_no_backups() {
        let mut status = shown(&Standing::default(), None, None, false);
        tell(&mut status, "net", None, None, false, second(0));
        assert_eq!(status, WorkspaceStatus::default());
    }
}
