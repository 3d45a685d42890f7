//! What can go wrong in the store.

use std::path::PathBuf;
use std::sync::Arc;

/// Why the store refused or failed.
///
/// It is `Clone` because one failed commit answers every write that shared it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A `Create` found the key in use.
    #[error("the key exists already")]
    Exists,
    /// An `Update` or a `Delete` expected another revision of the key.
    #[error("the key was changed meanwhile: {}", match .current {
        Some(revision) => format!("it is at revision {revision} now; read it again and repeat the change"),
        None => "it does not exist any more".to_owned(),
    })]
    Conflict {
        /// The key's revision now, or `None` when there is no such key.
        current: Option<u64>,
    },
    /// The revision that was asked for is older than what the store keeps.
    #[error("that revision is gone: the oldest one kept is {oldest}; list again and go on from there")]
    Compacted {
        /// The oldest revision that can still be read and watched from.
        oldest: u64,
    },
    /// The revision that was asked for does not exist yet.
    #[error("revision {asked} does not exist yet: the newest one is {newest}")]
    Future {
        /// The revision that was asked for.
        asked: u64,
        /// The newest committed revision.
        newest: u64,
    },
    /// Key and value together are larger than what etcd would take.
    #[error(
        "key and value are {size} bytes together, more than the limit of {limit} bytes; split the object into smaller ones"
    )]
    TooLarge {
        /// The size of key and value together.
        size: usize,
        /// The largest size that is taken.
        limit: usize,
    },
    /// The file was written by another version of the program.
    #[error(
        "the store's file has format {found}, and this program reads format {known}; use the program that wrote it, or start in an empty folder"
    )]
    Format {
        /// The format version in the file.
        found: u64,
        /// The format version that this program reads.
        known: u64,
    },
    /// Another process has the file open.
    #[error("another process is using the store's file; stop that process first")]
    Locked,
    /// The file could not be opened or created.
    #[error("could not open the store's file `{}`: {source}", .path.display())]
    Open {
        path: PathBuf,
        /// What the file system or the database said.
        source: Arc<redb::Error>,
    },
    /// The file could not be read.
    #[error("could not read the store: {0}")]
    Read(Arc<redb::Error>),
    /// What the file holds under a key is not what this program writes there.
    #[error("the store's file is damaged: {0}; restore it from a copy")]
    Damaged(String),
    /// The journal lacks something that was in it, which may be a write that was answered.
    #[error(
        "the store's journal `{}` is damaged at byte {offset}: {what}; restore the store's files from a copy, or move the journal away to go on at revision {revision} without the writes after it", .path.display()
    )]
    DamagedJournal {
        path: PathBuf,
        /// Where the sector begins that shows it.
        offset: u64,
        what: &'static str,
        /// The newest revision that the tables have.
        revision: u64,
    },
    /// A commit failed, now or earlier. The writes of that commit may or may not be in the file
    /// after it is opened again; nothing was shown of them. No further write is taken, because
    /// after a failed fsync nobody knows what the disk holds.
    #[error("the store could not be written and takes no more writes: {reason}; check the disk, then restart")]
    Failed {
        /// What the failing commit reported.
        reason: Arc<str>,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// Wraps an error of a read.
    pub(super) fn read(error: impl Into<redb::Error>) -> Error {
        match error.into() {
            redb::Error::DatabaseClosed => Error::Closed,
            other => Error::Read(Arc::new(other)),
        }
    }
}
