//! Reading: one committed state of the store, which later commits do not change.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadableDatabase};

use super::error::Error;
use super::record::{self, Kind, Logged, Version};
use super::{Entry, Event, Extent, List, Page};

/// How many log records one piece of history is read from at most, so that a watcher that looks for
/// a rare key does not hold its thread for long.
const SCAN_RECORDS: usize = 4096;
/// How many events, and bytes of them, one piece of history has at most.
const PIECE_EVENTS: usize = 256;
const PIECE_BYTES: usize = 1 << 20;
/// How many bytes one piece of a list has, or one entry more. Tests have small entries.
const LIST_BYTES: usize = if cfg!(test) { 100 } else { 256 << 10 };

/// The tables as they were after one commit.
///
/// The tables are opened once a commit and shared by all readers: opening them costs several times
/// what reading a key does.
pub(super) struct Snapshot {
    pub revision: u64,
    pub compacted: u64,
    current: ReadOnlyTable<&'static [u8], &'static [u8]>,
    past: ReadOnlyTable<(&'static [u8], u64), &'static [u8]>,
    log: ReadOnlyTable<u64, &'static [u8]>,
}

/// A piece of history.
pub(super) struct History {
    pub events: Vec<Arc<Event>>,
    /// Every event up to this revision was looked at.
    pub reached: u64,
}

impl Snapshot {
    /// The newest commit, which the caller knows to be at `revision`.
    pub fn take(db: &Database, revision: u64, compacted: u64) -> Result<Snapshot, redb::Error> {
        let transaction = db.begin_read()?;
        Ok(Snapshot {
            revision,
            compacted,
            current: transaction.open_table(record::CURRENT)?,
            past: transaction.open_table(record::PAST)?,
            log: transaction.open_table(record::LOG)?,
        })
    }

    pub fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        match self.current.get(key.as_bytes()).map_err(Error::read)? {
            Some(stored) => Ok(Some(Version::decode(stored.value())?.to_entry(key.as_bytes())?)),
            None => Ok(None),
        }
    }

    pub fn count(&self, prefix: &str) -> Result<u64, Error> {
        let mut count = 0;
        for stored in self.current.range(prefix.as_bytes()..).map_err(Error::read)? {
            if !stored.map_err(Error::read)?.0.value().starts_with(prefix.as_bytes()) {
                break;
            }
            count += 1;
        }
        Ok(count)
    }

    pub fn list(&self, list: List<'_>) -> Result<Page, Error> {
        let at = list.at.unwrap_or(self.revision);
        self.check(at)?;
        let prefix = list.prefix.as_bytes();
        let start = match list.after.map(str::as_bytes) {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut collect = Collect::new(list.extent);
        // The page is what is there now, but for the keys that changed after `at`: those have the value
        // that the first such change replaced, or none when it created the key. Both sides come in
        // order of the keys.
        let mut changed = self.changed_since(at, prefix, start)?.into_iter().peekable();
        for stored in self.current.range::<&[u8]>((start, Bound::Unbounded)).map_err(Error::read)? {
            let (key, version) = stored.map_err(Error::read)?;
            let key = key.value();
            if !key.starts_with(prefix) || collect.is_done() {
                break;
            }
            while let Some((key, first)) = changed.next_if(|(changed, _)| changed.as_slice() < key) {
                self.collect_past(&key, first, &mut collect)?;
            }
            match changed.next_if(|(changed, _)| changed.as_slice() == key) {
                Some((_, first)) => self.collect_past(key, first, &mut collect)?,
                None => collect.take(key, version.value())?,
            }
        }
        for (key, first) in changed {
            self.collect_past(&key, first, &mut collect)?;
        }
        Ok(collect.into_page(at))
    }

    /// The events with this prefix after `from` and up to `upto`, or the first piece of them.
    pub fn history(&self, prefix: &str, from: u64, upto: u64) -> Result<History, Error> {
        self.check(from)?;
        let mut events = Vec::new();
        let mut reached = from;
        let mut bytes = 0;
        let records = self.log.range(from + 1..=upto).map_err(Error::read)?;
        for stored in records.take(SCAN_RECORDS) {
            let (revision, stored) = stored.map_err(Error::read)?;
            reached = revision.value();
            let logged = Logged::decode(stored.value())?;
            if !logged.key.starts_with(prefix.as_bytes()) {
                continue;
            }
            let event = self.event(reached, logged)?;
            bytes += event.size();
            events.push(Arc::new(event));
            if events.len() == PIECE_EVENTS || bytes >= PIECE_BYTES {
                break;
            }
        }
        Ok(History { events, reached })
    }

    fn event(&self, revision: u64, logged: Logged<'_>) -> Result<Event, Error> {
        let previous = match self.past.get((logged.key, revision)).map_err(Error::read)? {
            Some(stored) => Some(Version::decode(stored.value())?.to_entry(logged.key)?),
            None => None,
        };
        let value = match (logged.kind, &previous) {
            (Kind::Put, _) => self.written_at(logged.key, revision)?,
            (Kind::DeleteWith, _) => bytes::Bytes::copy_from_slice(logged.value),
            (Kind::Delete, Some(previous)) => previous.value.clone(),
            (Kind::Delete, None) => {
                let what = format!("revision {revision} deleted a key that has no version");
                return Err(Error::Damaged(what));
            }
        };
        let key = record::key_from(logged.key)?;
        Ok(Event { revision, key, kind: logged.kind.event(), value, previous })
    }

    /// The value that `revision` gave the key: the first version that something later replaced, or the
    /// current one.
    fn written_at(&self, key: &[u8], revision: u64) -> Result<bytes::Bytes, Error> {
        let replaced = self.past.range((key, revision + 1)..=(key, u64::MAX)).map_err(Error::read)?.next();
        let stored = match replaced {
            Some(stored) => Some(stored.map_err(Error::read)?.1),
            None => self.current.get(key).map_err(Error::read)?,
        };
        if let Some(stored) = stored {
            let version = Version::decode(stored.value())?;
            if version.revision == revision {
                return Ok(bytes::Bytes::copy_from_slice(version.value));
            }
        }
        Err(Error::Damaged(format!("the value of revision {revision} is missing")))
    }

    /// Every key of the range that was written after `at`, with the revision of its first such write.
    fn changed_since(&self, at: u64, prefix: &[u8], start: Bound<&[u8]>) -> Result<BTreeMap<Vec<u8>, u64>, Error> {
        let mut changed = BTreeMap::new();
        if at == self.revision {
            return Ok(changed);
        }
        for stored in self.log.range(at + 1..).map_err(Error::read)? {
            let (revision, stored) = stored.map_err(Error::read)?;
            let key = Logged::decode(stored.value())?.key;
            let past_start = match start {
                Bound::Excluded(after) => key > after,
                Bound::Included(_) | Bound::Unbounded => true,
            };
            if past_start && key.starts_with(prefix) && !changed.contains_key(key) {
                changed.insert(key.to_vec(), revision.value());
            }
        }
        Ok(changed)
    }

    fn collect_past(&self, key: &[u8], replaced: u64, collect: &mut Collect) -> Result<(), Error> {
        match self.past.get((key, replaced)).map_err(Error::read)? {
            Some(stored) => collect.take(key, stored.value()),
            None => Ok(()),
        }
    }

    /// How many log records and past versions the file still holds.
    #[cfg(test)]
    pub fn history_len(&self) -> u64 {
        use redb::ReadableTableMetadata;
        self.log.len().unwrap_or(0) + self.past.len().unwrap_or(0)
    }

    /// Whether `revision` can be read and watched from.
    pub fn check(&self, revision: u64) -> Result<(), Error> {
        if revision < self.compacted {
            return Err(Error::Compacted { oldest: self.compacted });
        }
        if revision > self.revision {
            return Err(Error::Future { asked: revision, newest: self.revision });
        }
        Ok(())
    }
}

/// Fills a page and counts what does not fit.
struct Collect {
    extent: Extent,
    entries: Vec<Entry>,
    bytes: usize,
    remaining: u64,
}

impl Collect {
    fn new(extent: Extent) -> Collect {
        Collect { extent, entries: Vec::new(), bytes: 0, remaining: 0 }
    }

    fn take(&mut self, key: &[u8], stored: &[u8]) -> Result<(), Error> {
        let is_full = match self.extent {
            Extent::All => false,
            Extent::Page(limit) => self.entries.len() >= limit,
            Extent::Piece => self.bytes >= LIST_BYTES,
        };
        if is_full {
            self.remaining += 1;
        } else {
            self.bytes += stored.len();
            self.entries.push(Version::decode(stored)?.to_entry(key)?);
        }
        Ok(())
    }

    /// Whether what comes after the page does not matter any more: that there is something is known.
    fn is_done(&self) -> bool {
        self.extent == Extent::Piece && self.remaining > 0
    }

    fn into_page(self, revision: u64) -> Page {
        let more = self.remaining > 0;
        let counted = more && self.extent != Extent::Piece;
        Page { entries: self.entries, revision, more, remaining: counted.then_some(self.remaining) }
    }
}
