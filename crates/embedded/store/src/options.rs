//! How much the store keeps, on disk and in memory.

use std::time::Duration;

/// The largest key and value together that a write may carry: etcd's default limit, so that what
/// works here works on a cluster.
pub const LARGEST_WRITE: usize = 1_572_864;

/// The settings of a store. The defaults fit a laptop.
///
/// History is dropped when any one of the three `keep_*` bounds is passed. Current values are never
/// dropped.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much memory the database may use as its page cache.
    pub cache_bytes: usize,
    /// The length of the journal: how much is written until the tables become durable. After a crash it is read.
    pub journal_bytes: usize,
    /// How much memory the newest events may use; a watcher that falls further behind reads the file.
    pub recent_bytes: usize,
    /// How long a past revision can be read and watched from.
    pub keep_for: Duration,
    /// How many past revisions are kept at most.
    pub keep_revisions: u64,
    /// How many bytes the events of past revisions may hold at most, each with the value before and the
    /// value after, so that a few large objects that change often do not fill the disk within `keep_for`.
    pub keep_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_bytes: 8 << 20,
            journal_bytes: 1 << 20,
            recent_bytes: 4 << 20,
            keep_for: Duration::from_secs(5 * 60),
            keep_revisions: 100_000,
            keep_bytes: 256 << 20,
        }
    }
}
