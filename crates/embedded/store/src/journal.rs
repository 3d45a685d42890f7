//! What was written since the tables were last made durable.
//!
//! A durable commit of the tables writes a dozen pages all over their file. One record at the end of another file,
//! which keeps its length, takes less than half as long. So a write is durable as soon as the journal has it, and the
//! tables become durable when the journal is full, or the store is closed. Opening the store after a crash does again
//! what the journal has and the tables do not.
//!
//! A record is the writes of one commit: a digest of all that follows, the length of what follows, the revision at
//! which the tables were last durable, the revision of the first write, the writes. The first record lies at the
//! beginning of the file, each other one behind the one before, and the last is the one that no record follows: the
//! rest of the file is from before the tables were last durable, and says so, or was torn by a crash.

use std::io;

use bytes::Bytes;
use redb::StorageBackend;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use super::Write;
use super::error::Error;

/// The digest and the length of the rest.
const HEAD: usize = SHA256_OUTPUT_LEN + 4;

const CREATE: u8 = 0;
const UPDATE: u8 = 1;
const DELETE: u8 = 2;
const DELETE_WITH: u8 = 3;

pub(super) struct Journal {
    file: Box<dyn StorageBackend>,
    length: usize,
    /// The end of the last record.
    end: usize,
    /// The revision at which the tables were last durable.
    base: u64,
}

/// The writes of one commit, the first of which had this revision.
#[derive(Debug)]
pub(super) struct Record {
    pub first: u64,
    pub writes: Vec<Write>,
}

impl Journal {
    /// Reads the journal: it, and what was written after `revision`, the newest one that the tables have.
    pub fn open(file: Box<dyn StorageBackend>, length: usize, revision: u64) -> Result<(Journal, Vec<Record>), Error> {
        let failed = |error: io::Error| Error::read(redb::StorageError::from(error));
        let records = read(&*file, revision).map_err(failed)??;
        if file.len().map_err(failed)? < length as u64 {
            lengthen(&*file, length).map_err(failed)?;
        }
        Ok((Journal { file, length, end: 0, base: revision }, records))
    }

    /// Whether a record of these writes fits.
    pub fn has_room(&self, writes: &[Write]) -> bool {
        let body: usize = writes.iter().map(|write| 1 + 8 + 4 + 4 + write.size()).sum();
        self.end + HEAD + 8 + 8 + body <= self.length
    }

    /// Makes these writes durable, the first of which has this revision.
    pub fn append<'a>(&mut self, first: u64, writes: impl Iterator<Item = &'a Write>) -> io::Result<()> {
        let mut record = vec![0; HEAD];
        record.extend_from_slice(&self.base.to_le_bytes());
        record.extend_from_slice(&first.to_le_bytes());
        writes.for_each(|write| encode(write, &mut record));
        let length = u32::try_from(record.len() - HEAD).map_err(io::Error::other)?;
        record[SHA256_OUTPUT_LEN..HEAD].copy_from_slice(&length.to_le_bytes());
        let sum = digest(&SHA256, &record[SHA256_OUTPUT_LEN..]);
        record[..SHA256_OUTPUT_LEN].copy_from_slice(sum.as_ref());
        self.file.write(self.end as u64, &record)?;
        self.file.sync_data()?;
        self.end += record.len();
        Ok(())
    }

    /// Begins again, now that the tables have everything up to this revision.
    pub fn restart(&mut self, revision: u64) {
        self.end = 0;
        self.base = revision;
    }
}

/// Gives the file its length, so that no record has to. What is in it may still be needed.
fn lengthen(file: &dyn StorageBackend, length: usize) -> io::Result<()> {
    let from = usize::try_from(file.len()?).map_err(io::Error::other)?;
    file.set_len(length as u64)?;
    file.write(from as u64, &vec![0; length - from])?;
    file.sync_data()
}

/// The records after this revision.
fn read(file: &dyn StorageBackend, revision: u64) -> io::Result<Result<Vec<Record>, Error>> {
    let mut content = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    file.read(0, &mut content)?;
    let mut rest = content.as_slice();
    let (mut records, mut newest, mut base) = (Vec::new(), revision, None);
    while let Some((since, record, after)) = decode(rest) {
        if since != *base.get_or_insert(since) {
            break;
        }
        rest = after;
        if record.first <= newest {
            continue;
        }
        if record.first != newest + 1 {
            let message = format!("its journal goes on at revision {}, and it ends at {newest}", record.first);
            return Ok(Err(Error::Damaged(message)));
        }
        newest += record.writes.len() as u64;
        records.push(record);
    }
    Ok(Ok(records))
}

/// The record at the beginning of these bytes, what it says of the tables, and the bytes after it.
fn decode(bytes: &[u8]) -> Option<(u64, Record, &[u8])> {
    let (sum, rest) = bytes.split_at_checked(SHA256_OUTPUT_LEN)?;
    let length = rest.first_chunk().map(|length| u32::from_le_bytes(*length))?;
    let (summed, after) = rest.split_at_checked(4 + usize::try_from(length).ok()?)?;
    if digest(&SHA256, summed).as_ref() != sum {
        return None;
    }
    let mut body = &summed[4..];
    let since = u64::from_le_bytes(take(&mut body)?);
    let first = u64::from_le_bytes(take(&mut body)?);
    let mut writes = Vec::new();
    while !body.is_empty() {
        writes.push(decode_write(&mut body)?);
    }
    Some((since, Record { first, writes }, after))
}

fn encode(write: &Write, out: &mut Vec<u8>) {
    let (kind, expect, value): (u8, u64, &[u8]) = match write {
        Write::Create { value, .. } => (CREATE, 0, value),
        Write::Update { expect, value, .. } => (UPDATE, *expect, value),
        Write::Delete { expect, value: None, .. } => (DELETE, *expect, &[]),
        Write::Delete { expect, value: Some(value), .. } => (DELETE_WITH, *expect, value),
    };
    out.push(kind);
    out.extend_from_slice(&expect.to_le_bytes());
    for part in [write.key().as_bytes(), value] {
        // Both together are at most LARGEST_WRITE long, which fits.
        out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
}

fn decode_write(body: &mut &[u8]) -> Option<Write> {
    let [kind] = take(body)?;
    let expect = u64::from_le_bytes(take(body)?);
    let mut part = || {
        let length = usize::try_from(u32::from_le_bytes(take(body)?)).ok()?;
        body.split_off(..length)
    };
    let key = str::from_utf8(part()?).ok()?.to_owned();
    let value = Bytes::copy_from_slice(part()?);
    match kind {
        CREATE => Some(Write::Create { key, value }),
        UPDATE => Some(Write::Update { key, expect, value }),
        DELETE => Some(Write::Delete { key, expect, value: None }),
        DELETE_WITH => Some(Write::Delete { key, expect, value: Some(value) }),
        _ => None,
    }
}

/// The first bytes, which are taken away.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    bytes.split_off(..N)?.first_chunk().copied()
}
