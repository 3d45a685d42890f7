//! Which copies are kept. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::record::RecordName;

/// Which versions of a state stay in the target. A version goes when neither of the two keeps it; the newest always stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How many of the newest versions stay.
    pub versions: usize,
    /// How long every version stays.
    pub age: Duration,
}

impl Retention {
    /// The versions that may go, among all versions of one state.
    #[must_use]
    pub fn expired(&self, mut versions: Vec<RecordName>, now: Timestamp) -> Vec<RecordName> {
        versions.sort();
        versions.reverse();
        let beyond = versions.into_iter().skip(self.versions.max(1));
        beyond.filter(|version| self.is_old(version, now)).collect()
    }

    /// Whether a version has stayed as long as every version does.
    pub(crate) fn is_old(&self, version: &RecordName, now: Timestamp) -> bool {
        now.duration_since(version.written_at) > SignedDuration::try_from(self.age).unwrap_or(SignedDuration::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use knoll_api::Digest;

    use super::*;

    #[test]
    fn a_version_goes_when_it_is_old_and_beyond_the_count() {
        let second = |at: i64| Timestamp::from_second(at).unwrap();
        let name = |at: i64| RecordName { written_at: second(at), serial: 1, digest: Digest::of("x") };
        // How many and how long, the times of the versions, and of those that go; it is second 1000.
        let rows: [(usize, u64, &[i64], &[i64]); 8] = [
            (2, 100, &[100, 200, 300], &[100]),
            (2, 100, &[300, 100, 200], &[100]),
            (2, 100, &[950, 960, 970], &[]),
            (1, 100, &[899, 900, 901], &[899]),
            (0, 0, &[100, 200], &[100]),
            (0, 0, &[100], &[]),
            (5, 0, &[100, 200], &[]),
            (1, u64::MAX, &[0, 1], &[]),
        ];
        for (versions, age, times, expect) in rows {
            let retention = Retention { versions, age: Duration::from_secs(age) };
            let gone = retention.expired(times.iter().copied().map(name).collect(), second(1000));
            let mut gone: Vec<i64> = gone.iter().map(|name| name.written_at.as_second()).collect();
            gone.sort_unstable();
            assert_eq!(gone, expect, "{versions} {age} {times:?}");
        }
    }
}
