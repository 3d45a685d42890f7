#![doc = include_str!("../README.md")]
//!
//! # What is in the file
//! The file is a redb database with four tables:
//!
//! | table | key | value |
//! |---|---|---|
//! | `current` | key | the newest version: revision, revision of creation, value |
//! | `past` | (key, revision that ended it) | a version that was replaced or deleted |
//! | `log` | revision | what was done to which key |
//! | `meta` | name | format version, oldest readable revision |
//!
//! A value is stored once: in `current` while it is the newest, then it moves to `past`. So a read of
//! what is there now is one lookup or one range scan that no history slows down, however often a key was
//! written. A past version lies under the revision that *ended* it, because that makes three things direct:
//! an event's previous value is `past[key, revision]`; the state as of a past revision is `current`
//! with every key that the log names since then taken from `past` under the first such revision; and
//! compaction removes for each log record exactly the one version it names, with nothing to search.
//! Keys are bytes in their own order, so a prefix is a range.
//!
//! # Durability
//! A commit is one record in the journal, and one fsync of it. The tables get it too, but not durably: redb makes
//! them so when the journal is full, in its one-phase mode with checksums. The new pages, the commit slot and the
//! switch to it are written, then one fsync makes them durable together. A crash before the fsync may leave any part
//! of them. On opening, redb takes the newer slot only when the checksums of every page it reaches are right,
//! otherwise the slot before, whose pages no later commit has touched; and what the journal has after that is done
//! again. The two-phase mode would cost a second fsync, and guards against a local attacker who forges checksums; who
//! can do that to this file already owns it.
//!
//! When a commit fails the store takes no more writes until it is opened again: after a failed
//! fsync nobody knows what the disk holds.

mod apply;
mod error;
mod file;
mod journal;
mod live;
mod options;
mod record;
mod retention;
mod sector;
mod shared;
mod snapshot;
#[cfg(test)]
mod tests;
mod watch;
mod writer;

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::oneshot;

pub use error::Error;
pub use options::{LARGEST_WRITE, Options};
pub use watch::{Batch, Watch};

use file::Opened;
use retention::Retention;
use shared::Shared;
use snapshot::Snapshot;
use writer::{Command, Writer};

/// A key with its newest value, or the value it had at the revision that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    /// The revision of the last write to the key.
    pub revision: u64,
    /// The revision that created the key.
    pub created: u64,
    pub value: Bytes,
}

/// One change of one key. A precondition that fails changes nothing.
#[derive(Debug, Clone)]
pub enum Write {
    /// Makes a key that must not be there yet: [`Error::Exists`].
    Create { key: String, value: Bytes },
    /// Gives a key a new value when it is at revision `expect`: [`Error::Conflict`].
    Update {
        key: String,
        /// The revision of the last write that the caller has seen.
        expect: u64,
        value: Bytes,
    },
    /// Removes a key when it is at revision `expect`: [`Error::Conflict`].
    Delete {
        key: String,
        /// The revision of the last write that the caller has seen.
        expect: u64,
        /// What the event carries, when that is not the last stored value.
        value: Option<Bytes>,
    },
}

#[derive(Debug, Clone, Copy, Default)]
pub struct List<'a> {
    /// Keys that start with this.
    pub prefix: &'a str,
    /// Keys after this one only: the last key of the page before.
    pub after: Option<&'a str>,
    /// How much of it.
    pub extent: Extent,
    /// The revision to read at: that of the first page, for the pages after it. `None` is the newest.
    pub at: Option<u64>,
}

/// How much of a list is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Extent {
    #[default]
    All,
    /// So many entries; those that come after them are counted.
    Page(usize),
    /// As much as is well held in memory at once.
    Piece,
}

/// A part of a list, in order of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// The revision that the page shows.
    pub revision: u64,
    /// Whether there are entries after this page.
    pub more: bool,
    /// How many there are after this page, if there are more and they were counted.
    pub remaining: Option<u64>,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created (no previous entry) or got a new value.
    Put,
    Delete,
}

/// One change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The revision of the change.
    pub revision: u64,
    pub key: String,
    /// What happened to it.
    pub kind: EventKind,
    /// The new value; for a deletion what [`Write::Delete`] said, or the last value.
    pub value: Bytes,
    /// The entry before the change.
    pub previous: Option<Entry>,
}

/// A store. Clones are the same store; when the last one is dropped, what was queued is written and the
/// file is let go of, as [`Store::close`] does.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Command>>,
    writer: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the store at `path`, or makes one. The folder must exist.
    ///
    /// A file that was not closed is checked first, which reads all of it.
    pub fn open(path: &Path, options: Options) -> Result<Store, Error> {
        Store::start(file::open(path, &options)?, &options)
    }

    /// A store in memory that ends with the process.
    pub fn memory() -> Store {
        let options = Options { cache_bytes: 4 << 20, ..Options::default() };
        Store::with_backend(redb::backends::InMemoryBackend::new(), None, options).unwrap_or_else(|why| {
            // Only a machine that can start no thread gets here. Its store answers everything with why.
            let shared = Arc::new(Shared::ended(why));
            Store { inner: Arc::new(Inner { shared, queue: None, writer: None }) }
        })
    }

    fn with_backend(
        tables: impl redb::StorageBackend,
        journal: Option<Box<dyn redb::StorageBackend>>,
        options: Options,
    ) -> Result<Store, Error> {
        Store::start(file::open_backend(tables, journal, &options)?, &options)
    }

    fn start(opened: Opened, options: &Options) -> Result<Store, Error> {
        let Opened { revision, compacted, .. } = opened;
        let snapshot = Snapshot::take(&opened.db, revision, compacted).map_err(Error::read)?;
        let shared = Arc::new(Shared::new(snapshot, options.recent_bytes));
        let (queue, commands) = mpsc::channel();
        let retention = Retention::new(options, revision, compacted, Instant::now());
        let writer = Writer::new(opened, commands, shared.clone(), retention);
        let writer = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(|| writer.run())
            .map_err(|error| Error::Failed { reason: error.to_string().into() })?;
        let inner = Inner { shared, queue: Some(queue), writer: Some(writer) };
        Ok(Store { inner: Arc::new(inner) })
    }

    /// The newest committed revision. An empty store is at 1.
    pub fn revision(&self) -> u64 {
        self.inner.shared.revision()
    }

    /// The entry of a key now.
    pub fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        self.inner.shared.snapshot()?.get(key)
    }

    /// The entries with a prefix, now or at a past revision.
    ///
    /// A past revision costs a scan of the log since then, in addition to the page.
    pub fn list(&self, range: List<'_>) -> Result<Page, Error> {
        self.inner.shared.snapshot()?.list(range)
    }

    /// How many keys with a prefix there are now.
    pub fn count(&self, prefix: &str) -> Result<u64, Error> {
        self.inner.shared.snapshot()?.count(prefix)
    }

    /// Makes a change and answers with its revision when it is durable.
    ///
    /// The change may happen although the future was dropped before it was ready.
    pub async fn write(&self, write: Write) -> Result<u64, Error> {
        let size = write.size();
        if size > LARGEST_WRITE {
            return Err(Error::TooLarge { size, limit: LARGEST_WRITE });
        }
        self.ask(|answer| Command::Write { write, answer }).await?
    }

    /// Every event of keys with this prefix after the revision `from`.
    pub fn watch(&self, prefix: &str, from: u64) -> Result<Watch, Error> {
        self.inner.shared.snapshot()?.check(from)?;
        Ok(Watch::new(self.inner.shared.clone(), prefix, from))
    }

    /// Drops history: afterwards no revision below `before` can be read or watched from. What is there
    /// now stays.
    ///
    /// The answer comes when this is durable; the space is swept up after it, between the writes.
    /// It is also done without being asked, as [`Options`] say.
    pub async fn compact(&self, before: u64) -> Result<(), Error> {
        self.ask(|answer| Command::Compact { before, answer }).await?
    }

    /// Carries out what was queued, ends the writer and lets go of the file. Other clones of
    /// the store, and its watches, get [`Error::Closed`] from then on.
    pub async fn close(self) {
        // An error says that it was closed before, which is what was asked for.
        let _ = self.ask(|answer| Command::Close { answer }).await;
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        if let Some(queue) = &self.inner.queue
            && queue.send(command(answer)).is_ok()
            && let Ok(answer) = answered.await
        {
            return Ok(answer);
        }
        Err(self.inner.shared.live().ended().cloned().unwrap_or(Error::Closed))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The writer ends when the queue does. Waiting for it means that the file can be opened again.
        drop(self.queue.take());
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so already.
            let _ = writer.join();
        }
    }
}

impl Write {
    /// The key that is written.
    pub fn key(&self) -> &str {
        match self {
            Write::Create { key, .. } | Write::Update { key, .. } | Write::Delete { key, .. } => key,
        }
    }

    /// The bytes of key and value together, which [`LARGEST_WRITE`] bounds.
    fn size(&self) -> usize {
        let value = match self {
            Write::Create { value, .. } | Write::Update { value, .. } => value.len(),
            Write::Delete { value, .. } => value.as_ref().map_or(0, Bytes::len),
        };
        self.key().len() + value
    }
}

impl Event {
    /// About how much memory the event takes.
    fn size(&self) -> usize {
        const FIXED: usize = 256;
        FIXED + self.key.len() + self.value.len() + self.previous.as_ref().map_or(0, |previous| previous.value.len())
    }
}
