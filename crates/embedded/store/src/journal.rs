//! What was written since the tables were last made durable.
//!
//! A durable commit of the tables writes a dozen pages all over their file. One record at the end of another file,
//! which keeps its length, takes less than half as long. So a write is durable as soon as the journal has it, and the
//! tables become durable when the journal is full, or the store is closed. Opening the store after a crash does again
//! what the journal has and the tables do not.
//!
//! A record is the writes of one commit. It fills whole [sectors](super::sector), each with a checksum of its own. The
//! first record lies at the beginning of the file, each other one behind the one before. A record is appended after
//! the one before it is durable, so a crash tears only the last one.
//!
//! # Guarantees
//! A disk writes a sector as a whole or not at all. Therefore every sector of a torn record, which nobody was told of,
//! has the checksum of its new or of its old content. A sector whose checksum is wrong was changed later, and its
//! record may be one that was answered: the journal is refused. It is also refused when a record is missing and a later
//! one is there.

use std::io;
use std::path::Path;

use bytes::Bytes;
use redb::StorageBackend;

use super::Write;
use super::error::Error;
use super::sector::{self, Content, SECTOR, Sector, take};

const CREATE: u8 = 0;
const UPDATE: u8 = 1;
const DELETE: u8 = 2;
const DELETE_WITH: u8 = 3;

pub(super) struct Journal {
    file: Box<dyn StorageBackend>,
    /// How many sectors are used at most.
    sectors: usize,
    /// The sector behind the last record.
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
    /// Reads the journal: it, and what was written after `revision`, the newest one that the tables have. `path` is
    /// named when the journal is refused.
    pub fn open(
        file: Box<dyn StorageBackend>,
        path: &Path,
        length: usize,
        revision: u64,
    ) -> Result<(Journal, Vec<Record>), Error> {
        let failed = |error: io::Error| Error::read(redb::StorageError::from(error));
        let found = usize::try_from(file.len().map_err(failed)?).map_err(|error| failed(io::Error::other(error)))?;
        let mut content = vec![0; found];
        file.read(0, &mut content).map_err(failed)?;
        let records = read(&content, revision).map_err(|damage| Error::DamagedJournal {
            path: path.to_owned(),
            offset: (damage.sector * SECTOR) as u64,
            what: damage.what,
            revision,
        })?;
        if found < length {
            lengthen(&*file, found, length).map_err(failed)?;
        }
        Ok((Journal { file, sectors: length / SECTOR, end: 0, base: revision }, records))
    }

    /// Whether a record of these writes fits.
    pub fn has_room(&self, writes: &[Write]) -> bool {
        let body: usize = writes.iter().map(|write| 1 + 8 + 4 + 4 + write.size()).sum();
        self.end + sector::count(body) <= self.sectors
    }

    /// Makes these writes durable, the first of which has this revision.
    pub fn append<'a>(&mut self, first: u64, writes: impl Iterator<Item = &'a Write>) -> io::Result<()> {
        let mut body = Vec::new();
        writes.for_each(|write| encode(write, &mut body));
        let record = sector::encode(self.base, first, self.sectors, &body)?;
        self.file.write((self.end * SECTOR) as u64, &record)?;
        self.file.sync_data()?;
        self.end += record.len() / SECTOR;
        Ok(())
    }

    /// Begins again, now that the tables have everything up to this revision.
    pub fn restart(&mut self, revision: u64) {
        self.end = 0;
        self.base = revision;
    }
}

/// Gives the file its length, so that no record has to. What is in it may still be needed.
fn lengthen(file: &dyn StorageBackend, from: usize, length: usize) -> io::Result<()> {
    file.set_len(length as u64)?;
    file.write(from as u64, &vec![0; length - from])?;
    file.sync_data()
}

/// Why a journal is refused.
struct Damage {
    sector: usize,
    what: &'static str,
}

/// The records that the tables of this revision do not have. Sectors that say that the tables were last durable
/// earlier than that are from before.
fn read(content: &[u8], revision: u64) -> Result<Vec<Record>, Damage> {
    let sectors: Vec<Content<'_>> = content.chunks_exact(SECTOR).map(sector::decode).collect();
    let (mut records, mut newest, mut at) = (Vec::new(), revision, 0);
    while let Some((head, body)) = record_at(&sectors, at, revision)? {
        let damage = |what| Err(Damage { sector: at, what });
        if head.first != newest + 1 {
            return damage("the record before this one is missing");
        }
        let Some(writes) = decode(&body) else { return damage("the record cannot be read") };
        newest += writes.len() as u64;
        records.push(Record { first: head.first, writes });
        at += sector::count(body.len());
    }
    for (at, content) in sectors.iter().enumerate() {
        let Content::Sector(found) = content else { continue };
        let damage = |what| Err(Damage { sector: at, what });
        if found.base > revision {
            return damage("the tables are older than the journal");
        }
        if found.base == revision && found.first > newest + 1 {
            return damage("the record before this one is missing");
        }
        if found.base == revision && found.file > sectors.len() {
            return damage("the file was longer than it is");
        }
    }
    Ok(records)
}

/// The record that begins here and was written after the tables became durable at `base`. There is none where it was
/// torn, and none behind the last one.
fn record_at<'a>(sectors: &[Content<'a>], at: usize, base: u64) -> Result<Option<(Sector<'a>, Vec<u8>)>, Damage> {
    let (mut head, mut body) = (None, Vec::new());
    for (index, at) in (at..sectors.len()).enumerate() {
        let found = match sectors[at] {
            Content::Blank => return Ok(None),
            Content::Damaged => return Err(Damage { sector: at, what: "its checksum is wrong" }),
            Content::Sector(found) => found,
        };
        let head = head.get_or_insert(found);
        if found.base != base || found.index != index || !found.belongs_to(head) {
            return Ok(None);
        }
        body.extend_from_slice(found.payload);
        if body.len() >= found.length {
            body.truncate(found.length);
            return Ok(Some((*head, body)));
        }
    }
    Ok(None)
}

fn decode(mut body: &[u8]) -> Option<Vec<Write>> {
    let mut writes = Vec::new();
    while !body.is_empty() {
        writes.push(decode_write(&mut body)?);
    }
    Some(writes)
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
