//! What a fetch may take.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::Error;

/// How many bytes are fetched at most, and how many are unpacked from them.
pub(crate) const LARGEST: u64 = 512 << 20;
/// How long a fetch takes at most.
pub(crate) const LONGEST: Duration = Duration::from_secs(120);

/// What one fetch may still take. The readers and writers of its connections ask it, so none of them waits for ever.
#[derive(Debug)]
pub struct Limits {
    until: Instant,
    left: AtomicU64,
    trouble: Mutex<Option<Error>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(LONGEST, LARGEST)
    }
}

impl Limits {
    /// Limits that begin now.
    #[must_use]
    pub fn new(longest: Duration, largest: u64) -> Self {
        Self { until: Instant::now() + longest, left: AtomicU64::new(largest), trouble: Mutex::default() }
    }

    /// How much time is left.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Takes note of bytes that have come.
    pub(crate) fn take(&self, url: &str, bytes: usize) -> io::Result<()> {
        let taken = |left: u64| left.checked_sub(bytes as u64);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_err() {
            return Err(self.fail(Error::TooLarge(url.to_owned())));
        }
        Ok(())
    }

    /// Keeps the first trouble, because libraries in between only pass on that there was one.
    pub(crate) fn fail(&self, error: Error) -> io::Error {
        let text = error.to_string();
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        io::Error::other(text)
    }

    /// What went wrong first: what was kept, or else `otherwise`.
    pub(crate) fn trouble(&self, otherwise: impl FnOnce() -> Error) -> Error {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_else(otherwise)
    }
}
