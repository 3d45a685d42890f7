//! The record of one version of a state.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use knoll_api::Digest;
use serde::{Deserialize, Serialize};

/// The number of digits of a time in microseconds, and of a serial: names sort by time.
const DIGITS: usize = 20;
/// The number of hex digits of a digest.
const DIGEST_DIGITS: usize = 64;

/// One version of a state, and how it came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub namespace: String,
    pub workspace: String,
    /// Terraform's count of its writes.
    pub serial: u64,
    /// Terraform's name for the state's history.
    pub lineage: String,
    /// The digest of the state's bytes.
    pub digest: Digest,
    /// How many bytes the state has.
    pub size: u64,
    /// How many resource instances the state holds.
    pub resources: u32,
    /// When the state was written into the cluster.
    pub written_at: Timestamp,
    /// The Run that wrote it.
    pub run: String,
    /// The user who asked for that Run; absent if that user is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// The dependency lock file that the Workspace had then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
}

impl Record {
    #[must_use]
    pub fn name(&self) -> RecordName {
        RecordName { written_at: self.written_at, serial: self.serial, digest: self.digest.clone() }
    }
}

/// What the name of a record says. Names are ordered by the time at which the state was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordName {
    pub written_at: Timestamp,
    pub serial: u64,
    pub digest: Digest,
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.written_at.as_microsecond().max(0);
        write!(f, "{micros:0DIGITS$}-{:0DIGITS$}-{}", self.serial, self.digest.short(DIGEST_DIGITS))
    }
}

impl FromStr for RecordName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '-');
        let mut next = || parts.next().ok_or(());
        let (micros, serial, digest) = (next()?, next()?, next()?);
        let digits = |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(micros) || !digits(serial) {
            return Err(());
        }
        let written_at = Timestamp::from_microsecond(micros.parse().map_err(drop)?).map_err(drop)?;
        let digest = format!("sha256:{digest}").parse().map_err(drop)?;
        Ok(RecordName { written_at, serial: serial.parse().map_err(drop)?, digest })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn name(micros: i64, serial: u64) -> RecordName {
        let written_at = Timestamp::from_microsecond(micros).unwrap();
        RecordName { written_at, serial, digest: Digest::of("x") }
    }

    #[test]
    fn names_are_read_back_and_sort_by_time() {
        let names =
            [name(0, 9), name(1_700_000_000_000_001, 2), name(1_700_000_000_000_002, 1), name(1 << 53, u64::MAX)];
        for name in &names {
            assert_eq!(name.to_string().parse(), Ok(name.clone()));
        }
        assert!(names.is_sorted());
        assert!(names.map(|name| name.to_string()).is_sorted());
    }

    #[test]
    fn other_names_are_refused() {
        let good = name(1, 1).to_string();
        for bad in
            ["", "1-1-abc", &good[1..], &good.replace('-', "_"), &format!("{good}0"), &good.replace("0001", "00+1")]
        {
            assert_eq!(bad.parse::<RecordName>(), Err(()), "{bad}");
        }
    }
}
