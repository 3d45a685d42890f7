//! A disk that forgets: it records what was written and synced, and can be cut off at any point.
//!
//! It has the two files of a store, which are synced one by one.

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

use super::super::{Error, Options, Store};

/// What the files hold: the tables and the journal.
pub type Content = [Vec<u8>; 2];

#[derive(Debug, Clone)]
pub enum Op {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
    Sync,
}

#[derive(Debug, Default)]
struct State {
    content: Content,
    /// What was done, with the number of the file.
    ops: Vec<(usize, Op)>,
    /// Every operation from this one on fails.
    fails_at: Option<usize>,
}

/// Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

/// One of its files.
#[derive(Debug)]
struct File(Disk, usize);

/// What becomes of a write that was not synced before the cut.
#[derive(Debug, Clone, Copy)]
pub enum Unsynced {
    /// All of them arrive: the process was killed, the machine went on.
    Kept,
    Lost,
    /// Some arrive, some do not, some arrive in part, in sectors of 512 bytes, as the seed says.
    Torn(u64),
}

impl Disk {
    /// Opens the store on this disk.
    pub fn store(&self, options: Options) -> Result<Store, Error> {
        Store::with_backend(File(self.clone(), 0), Some(Box::new(File(self.clone(), 1))), options)
    }

    pub fn with(content: Content) -> Disk {
        Disk(Arc::new(Mutex::new(State { content, ..State::default() })))
    }

    pub fn fail_at(&self, op: usize) {
        self.0.lock().unwrap().fails_at = Some(op);
    }

    pub fn ops(&self) -> Vec<(usize, Op)> {
        self.0.lock().unwrap().ops.clone()
    }

    /// How many operations there were.
    pub fn now(&self) -> usize {
        self.0.lock().unwrap().ops.len()
    }

    pub fn content(&self) -> Content {
        self.0.lock().unwrap().content.clone()
    }

    fn record(&self, file: usize, op: Op) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if state.fails_at.is_some_and(|at| state.ops.len() >= at) {
            return Err(io::Error::other("the disk is broken"));
        }
        apply(&mut state.content[file], &op);
        state.ops.push((file, op));
        Ok(())
    }
}

/// What the disk holds when the power goes after `cut` operations.
pub fn after_cut(ops: &[(usize, Op)], cut: usize, unsynced: Unsynced) -> Content {
    let ops = &ops[..cut];
    let mut random = match unsynced {
        Unsynced::Torn(seed) => Random(seed | 1),
        Unsynced::Kept | Unsynced::Lost => Random(1),
    };
    [0, 1].map(|file| {
        let ops: Vec<&Op> = ops.iter().filter(|(of, _)| *of == file).map(|(_, op)| op).collect();
        let synced = ops.iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |at| at + 1);
        let mut content = Vec::new();
        for op in &ops[..synced] {
            apply(&mut content, op);
        }
        for op in &ops[synced..] {
            match (unsynced, op) {
                (Unsynced::Kept, op) => apply(&mut content, op),
                (Unsynced::Lost, _) => {}
                (Unsynced::Torn(_), Op::Write { offset, data }) => tear(&mut content, *offset, data, &mut random),
                // A file system journals the length, so it comes in order; writes beyond it cannot come first.
                (Unsynced::Torn(_), op) => apply(&mut content, op),
            }
        }
        content
    })
}

fn tear(content: &mut [u8], offset: u64, data: &[u8], random: &mut Random) {
    const SECTOR: usize = 512;
    let fate = random.next() % 3;
    let mut at = 0;
    while at < data.len() {
        let here = offset as usize + at;
        let end = (at + SECTOR - here % SECTOR).min(data.len());
        let arrives = match fate {
            0 => false,
            1 => true,
            _ => random.next().is_multiple_of(2),
        };
        if arrives {
            content[here..here + end - at].copy_from_slice(&data[at..end]);
        }
        at = end;
    }
}

fn apply(content: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write { offset, data } => {
            let offset = *offset as usize;
            content[offset..offset + data.len()].copy_from_slice(data);
        }
        Op::SetLen(len) => content.resize(*len as usize, 0),
        Op::Sync => {}
    }
}

/// A small generator, so that a failing cut can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.0.lock().unwrap().content[self.1].len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.0.lock().unwrap();
        let offset = offset as usize;
        let stored = state.content[self.1].get(offset..offset + out.len());
        out.copy_from_slice(stored.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.record(self.1, Op::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.record(self.1, Op::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.record(self.1, Op::Write { offset, data: data.to_vec() })
    }
}
