//! What one write does to the tables.

use bytes::Bytes;
use redb::{ReadableTable, Table, WriteTransaction};

use super::error::Error;
use super::record::{self, Kind, Logged, Version};
use super::writer::TransactError;
use super::{Entry, Event, Write};

/// The tables of a write transaction.
pub(super) struct Tables<'t> {
    current: Table<'t, &'static [u8], &'static [u8]>,
    past: Table<'t, (&'static [u8], u64), &'static [u8]>,
    log: Table<'t, u64, &'static [u8]>,
}

impl<'t> Tables<'t> {
    pub fn open(transaction: &'t WriteTransaction) -> Result<Tables<'t>, TransactError> {
        Ok(Tables {
            current: transaction.open_table(record::CURRENT)?,
            past: transaction.open_table(record::PAST)?,
            log: transaction.open_table(record::LOG)?,
        })
    }

    /// Removes up to `limit` revisions of history that `compacted` made unreachable, and says how many
    /// it found. Each log record names the one version that is only reachable before it.
    pub fn sweep(&mut self, compacted: u64, limit: usize) -> Result<usize, TransactError> {
        for swept in 0..limit {
            let Some((first, stored)) = self.log.first()? else {
                return Ok(swept);
            };
            let revision = first.value();
            if revision > compacted {
                return Ok(swept);
            }
            let key = Logged::decode(stored.value())?.key;
            self.past.remove((key, revision))?;
            drop((first, stored));
            self.log.remove(revision)?;
        }
        Ok(limit)
    }

    /// Moves the current version of a key to the past.
    fn supersede(&mut self, key: &str, revision: u64) -> Result<Option<Entry>, TransactError> {
        let key = key.as_bytes();
        let Some(stored) = self.current.get(key)? else {
            return Ok(None);
        };
        self.past.insert((key, revision), stored.value())?;
        Ok(Some(Version::decode(stored.value())?.to_entry(key)?))
    }

    fn put(&mut self, key: &str, version: Version<'_>) -> Result<(), TransactError> {
        let mut slot = self.current.insert_reserve(key.as_bytes(), version.encoded_len())?;
        version.encode(slot.as_mut());
        Ok(())
    }

    fn log(&mut self, revision: u64, kind: Kind, key: &str, value: &[u8]) -> Result<(), TransactError> {
        let logged = Logged { kind, key: key.as_bytes(), value };
        self.log.insert(revision, logged.encode().as_slice())?;
        Ok(())
    }

    /// The revision of a key now, with what earlier writes of the transaction did to it.
    fn revision_of(&self, key: &str) -> Result<Option<u64>, TransactError> {
        match self.current.get(key.as_bytes())? {
            Some(stored) => Ok(Some(Version::decode(stored.value())?.revision)),
            None => Ok(None),
        }
    }
}

/// Carries out one write as `revision`, or says why it is refused, having changed nothing.
pub(super) fn apply(
    tables: &mut Tables<'_>,
    write: &Write,
    revision: u64,
) -> Result<Result<Event, Error>, TransactError> {
    let current = tables.revision_of(write.key())?;
    if let Err(refused) = check(write, current) {
        return Ok(Err(refused));
    }
    let previous = tables.supersede(write.key(), revision)?;
    let (key, kind, value) = match write {
        Write::Create { key, value } | Write::Update { key, value, .. } => {
            let created = previous.as_ref().map_or(revision, |previous| previous.created);
            tables.put(key, Version { revision, created, value })?;
            (key, Kind::Put, value.clone())
        }
        Write::Delete { key, value, .. } => {
            tables.current.remove(key.as_bytes())?;
            match (value, &previous) {
                (Some(value), _) => (key, Kind::DeleteWith, value.clone()),
                (None, Some(previous)) => (key, Kind::Delete, previous.value.clone()),
                // The precondition found the key, so this is not reached.
                (None, None) => (key, Kind::Delete, Bytes::new()),
            }
        }
    };
    let logged: &[u8] = if kind == Kind::DeleteWith { &value } else { &[] };
    tables.log(revision, kind, key, logged)?;
    Ok(Ok(Event { revision, key: key.clone(), kind: kind.event(), value, previous }))
}

fn check(write: &Write, current: Option<u64>) -> Result<(), Error> {
    match write {
        Write::Create { .. } if current.is_some() => Err(Error::Exists),
        Write::Create { .. } => Ok(()),
        Write::Update { expect, .. } | Write::Delete { expect, .. } if current == Some(*expect) => Ok(()),
        Write::Update { .. } | Write::Delete { .. } => Err(Error::Conflict { current }),
    }
}
