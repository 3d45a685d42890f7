//! The limits of a fetch.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::Error;

/// The maximum number of bytes to fetch, and to unpack: far more than any module, and little enough for a temporary
/// directory.
pub(crate) const LARGEST: u64 = 512 << 20;
/// The maximum number of files and directories to unpack. A few shared trees of git make billions of them.
pub(crate) const MOST_FILES: u64 = 100_000;
/// The largest object of a git repository, which is held in memory as a whole.
pub(crate) const LARGEST_OBJECT: u64 = 64 << 20;
/// The maximum duration of a fetch.
pub(crate) const LONGEST: Duration = Duration::from_secs(120);

/// The remaining time and bytes of one fetch. The readers and writers of its connections check it, so none of them
/// blocks forever.
#[derive(Debug)]
pub struct Limits {
    until: Instant,
    left: AtomicU64,
    files: AtomicU64,
    trouble: Mutex<Option<Error>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(LONGEST, LARGEST)
    }
}

impl Limits {
    /// Limits that start now.
    #[must_use]
    pub fn new(longest: Duration, largest: u64) -> Self {
        Self {
            until: Instant::now() + longest,
            left: AtomicU64::new(largest),
            files: AtomicU64::new(MOST_FILES),
            trouble: Mutex::default(),
        }
    }

    #[must_use]
    pub fn time(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(crate) fn take(&self, url: &str, bytes: usize) -> io::Result<()> {
        let taken = |left: u64| left.checked_sub(bytes as u64);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_err() {
            return Err(self.fail(Error::TooLarge(url.to_owned())));
        }
        Ok(())
    }

    /// Subtracts one file or directory.
    pub(crate) fn take_file(&self, url: &str) -> io::Result<()> {
        let taken = |left: u64| left.checked_sub(1);
        if self.files.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_err() {
            return Err(self.fail(Error::TooMany(url.to_owned())));
        }
        Ok(())
    }

    /// Records the first error, because the libraries in between lose its type.
    pub(crate) fn fail(&self, error: Error) -> io::Error {
        let text = error.to_string();
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        io::Error::other(text)
    }

    /// The first recorded error, or else `otherwise`.
    pub(crate) fn trouble(&self, otherwise: impl FnOnce() -> Error) -> Error {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_else(otherwise)
    }
}
