//! How keys, versions and log records are laid out in the file.
//!
//! A version is `revision, created, value` with both numbers as 8 bytes, little endian. A log record is
//! one byte for its kind, the key's length as 4 bytes, the key, and for [`Kind::DeleteWith`] the value
//! that the event carries.

use bytes::Bytes;
use redb::TableDefinition;

use super::error::Error;
use super::{Entry, EventKind};

/// The format that this program writes. A file with another number is refused.
pub(super) const FORMAT: u64 = 3;

/// Named numbers: [`META_FORMAT`] and [`META_COMPACTED`].
pub(super) const META: TableDefinition<'static, &'static str, u64> = TableDefinition::new("meta");
pub(super) const META_FORMAT: &str = "format";
/// The oldest revision that can be read. It is also the newest revision while the log is empty.
pub(super) const META_COMPACTED: &str = "compacted";

/// Key to its newest version. Holds no deleted keys.
pub(super) const CURRENT: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("current");
/// Key and the revision that replaced or deleted it, to the version that was there before.
pub(super) const PAST: TableDefinition<'static, (&'static [u8], u64), &'static [u8]> = TableDefinition::new("past");
/// Revision to what happened: a log record.
pub(super) const LOG: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("log");

const VERSION_HEAD: usize = 16;
const LOG_HEAD: usize = 5;

/// A version as it lies in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version<'a> {
    pub revision: u64,
    pub created: u64,
    pub value: &'a [u8],
}

impl<'a> Version<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Version<'a>, Error> {
        let damaged = || Error::Damaged("a version is shorter than its head".to_owned());
        let (revision, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (created, value) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        Ok(Version { revision: u64::from_le_bytes(*revision), created: u64::from_le_bytes(*created), value })
    }

    pub fn encoded_len(&self) -> usize {
        VERSION_HEAD + self.value.len()
    }

    /// Fills `out`, which must be `encoded_len` bytes long.
    pub fn encode(&self, out: &mut [u8]) {
        let (head, value) = out.split_at_mut(VERSION_HEAD);
        head[..8].copy_from_slice(&self.revision.to_le_bytes());
        head[8..].copy_from_slice(&self.created.to_le_bytes());
        value.copy_from_slice(self.value);
    }

    pub fn to_entry(self, key: &[u8]) -> Result<Entry, Error> {
        Ok(Entry {
            key: key_from(key)?,
            revision: self.revision,
            created: self.created,
            value: Bytes::copy_from_slice(self.value),
        })
    }
}

/// What a log record says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The key got a value.
    Put,
    /// The key was deleted; the event carries the value it had.
    Delete,
    /// The key was deleted; the event carries the value in the record.
    DeleteWith,
}

impl Kind {
    pub fn event(self) -> EventKind {
        match self {
            Kind::Put => EventKind::Put,
            Kind::Delete | Kind::DeleteWith => EventKind::Delete,
        }
    }
}

/// A log record as it lies in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged<'a> {
    pub kind: Kind,
    pub key: &'a [u8],
    /// Empty but for [`Kind::DeleteWith`].
    pub value: &'a [u8],
}

impl<'a> Logged<'a> {
    pub fn decode(bytes: &'a [u8]) -> Result<Logged<'a>, Error> {
        let damaged = || Error::Damaged("a log record is not well formed".to_owned());
        let (head, rest) = bytes.split_first_chunk::<LOG_HEAD>().ok_or_else(damaged)?;
        let kind = match head[0] {
            0 => Kind::Put,
            1 => Kind::Delete,
            2 => Kind::DeleteWith,
            _ => return Err(damaged()),
        };
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (key, value) = rest.split_at_checked(length).ok_or_else(damaged)?;
        Ok(Logged { kind, key, value })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LOG_HEAD + self.key.len() + self.value.len());
        out.push(match self.kind {
            Kind::Put => 0,
            Kind::Delete => 1,
            Kind::DeleteWith => 2,
        });
        // A key is at most LARGEST_WRITE long, which fits.
        out.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        out
    }
}

/// A stored key as text.
pub(super) fn key_from(bytes: &[u8]) -> Result<String, Error> {
    match str::from_utf8(bytes) {
        Ok(key) => Ok(key.to_owned()),
        Err(_) => Err(Error::Damaged("a key is not UTF-8".to_owned())),
    }
}
