//! The sectors that the records of the journal consist of.
//!
//! | bytes | are |
//! |---|---|
//! | 0..16 | the checksum of all that follows: a SHA-256, cut short |
//! | 16..32 | the digest of the whole record, which tells two attempts at the same record apart |
//! | 32..40 | the revision at which the tables were last durable |
//! | 40..48 | the revision of the record's first write |
//! | 48..52 | the number of this sector in its record |
//! | 52..56 | the length of the record's body in bytes |
//! | 56..60 | the number of sectors that the journal has |
//! | 60.. | the sector's part of the body, then zeros |
//!
//! All numbers are little endian.

use std::io;

use ring::digest::{SHA256, digest};

/// What a disk writes as a whole. Disks with larger sectors keep that promise too.
pub(super) const SECTOR: usize = 512;

const SUM: usize = 16;
const HEAD: usize = 60;
const PAYLOAD: usize = SECTOR - HEAD;

/// What the bytes of a sector are.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    /// Nothing was ever written here.
    Blank,
    Sector(Sector<'a>),
    /// No program has written this.
    Damaged,
}

/// A part of a record.
#[derive(Clone, Copy)]
pub(super) struct Sector<'a> {
    record: [u8; SUM],
    pub base: u64,
    pub first: u64,
    pub index: usize,
    pub length: usize,
    /// How many sectors the journal had when this one was written.
    pub file: usize,
    pub payload: &'a [u8],
}

impl Sector<'_> {
    /// Whether both are parts of one record.
    pub fn belongs_to(&self, other: &Sector<'_>) -> bool {
        (self.record, self.base, self.first, self.length) == (other.record, other.base, other.first, other.length)
    }
}

/// How many sectors a body of this length takes.
pub(super) fn count(length: usize) -> usize {
    length.div_ceil(PAYLOAD).max(1)
}

/// The sectors of a record in a journal of `file` sectors.
pub(super) fn encode(base: u64, first: u64, file: usize, body: &[u8]) -> io::Result<Vec<u8>> {
    let number = |number: usize| u32::try_from(number).map(u32::to_le_bytes).map_err(io::Error::other);
    let record = sum(body);
    let (length, file) = (number(body.len())?, number(file)?);
    let mut out = vec![0; count(body.len()) * SECTOR];
    for (index, sector) in out.chunks_exact_mut(SECTOR).enumerate() {
        let part = &body[(index * PAYLOAD).min(body.len())..((index + 1) * PAYLOAD).min(body.len())];
        sector[16..32].copy_from_slice(&record);
        sector[32..40].copy_from_slice(&base.to_le_bytes());
        sector[40..48].copy_from_slice(&first.to_le_bytes());
        sector[48..52].copy_from_slice(&number(index)?);
        sector[52..56].copy_from_slice(&length);
        sector[56..HEAD].copy_from_slice(&file);
        sector[HEAD..HEAD + part.len()].copy_from_slice(part);
        let sum = sum(&sector[SUM..]);
        sector[..SUM].copy_from_slice(&sum);
    }
    Ok(out)
}

/// What these bytes are, which are as long as a sector.
pub(super) fn decode(bytes: &[u8]) -> Content<'_> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Content::Blank;
    }
    match bytes.split_first_chunk() {
        Some((written, rest)) if sum(rest) == *written => parts(rest).map_or(Content::Damaged, Content::Sector),
        _ => Content::Damaged,
    }
}

fn parts(mut rest: &[u8]) -> Option<Sector<'_>> {
    let record = take(&mut rest)?;
    let base = u64::from_le_bytes(take(&mut rest)?);
    let first = u64::from_le_bytes(take(&mut rest)?);
    let mut number = || usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok();
    let (index, length, file) = (number()?, number()?, number()?);
    Some(Sector { record, base, first, index, length, file, payload: rest })
}

fn sum(bytes: &[u8]) -> [u8; SUM] {
    let mut sum = [0; SUM];
    sum.copy_from_slice(&digest(&SHA256, bytes).as_ref()[..SUM]);
    sum
}

/// The first bytes, which are taken away.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    bytes.split_off(..N)?.first_chunk().copied()
}
