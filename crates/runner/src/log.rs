//! Uploads the run's log to the hub during the run.
//!
//! A chunk is sent when it is large enough or five seconds old, so that a short run needs one request and a long run
//! can be followed. A log that the hub refuses never fails a run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use knoll_api::wire::path;
use reqwest::Method;
use tokio::sync::{Notify, watch};

use crate::hub::{self, Hub};

/// The maximum size of a chunk.
const CHUNK_BYTES: usize = 256 * 1024;
/// How long output may wait before it is sent.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// The run's log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// There are bytes to send.
    something: Notify,
    /// There are enough bytes to send at once, or the log is complete.
    enough: Notify,
    /// The number of bytes that the hub has accepted or refused.
    sent: watch::Sender<u64>,
}

struct Waiting {
    /// The offset of `bytes` in the log.
    start: u64,
    bytes: Vec<u8>,
}

impl Log {
    /// A log that starts at `offset`, after the output of earlier pods.
    pub fn new(offset: u64) -> Self {
        let shared = Shared {
            waiting: Mutex::new(Waiting { start: offset, bytes: Vec::new() }),
            something: Notify::new(),
            enough: Notify::new(),
            sent: watch::Sender::new(offset),
        };
        Log { shared: Arc::new(shared) }
    }

    /// Appends a chunk, which is sent in the background.
    pub fn append(&self, piece: &[u8]) {
        let mut waiting = self.waiting();
        waiting.bytes.extend_from_slice(piece);
        self.shared.something.notify_one();
        if waiting.bytes.len() >= CHUNK_BYTES {
            self.shared.enough.notify_one();
        }
    }

    /// The offset of the next chunk.
    pub fn offset(&self) -> u64 {
        let waiting = self.waiting();
        waiting.start + waiting.bytes.len() as u64
    }

    /// Sends appended bytes until the task is dropped.
    pub async fn deliver(self, hub: Hub) {
        loop {
            if self.waiting().bytes.is_empty() {
                self.shared.something.notified().await;
                let _ = tokio::time::timeout(FLUSH_INTERVAL, self.shared.enough.notified()).await;
            }
            let (start, piece) = self.next_piece();
            if piece.is_empty() {
                continue;
            }
            match send(&hub, start, piece).await {
                Ok(taken) => self.taken(start, taken),
                Err(error) => {
                    tracing::warn!(%error, "the hub refused the log: the rest of it is not stored");
                    self.shared.sent.send_replace(u64::MAX);
                    return;
                }
            }
        }
    }

    /// Returns once the hub has accepted or refused everything appended before.
    pub async fn flush(&self) {
        let end = self.offset();
        self.shared.enough.notify_one();
        // The channel closes only together with this log.
        let _ = self.shared.sent.subscribe().wait_for(|sent| *sent >= end).await;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_piece(&self) -> (u64, Bytes) {
        let waiting = self.waiting();
        let end = waiting.bytes.len().min(CHUNK_BYTES);
        (waiting.start, Bytes::copy_from_slice(&waiting.bytes[..end]))
    }

    fn taken(&self, start: u64, count: usize) {
        let mut waiting = self.waiting();
        waiting.bytes.drain(..count);
        waiting.start = start + count as u64;
        self.shared.sent.send_replace(waiting.start);
    }
}

/// Sends `piece`, and returns how many bytes of it the hub has.
async fn send(hub: &Hub, start: u64, piece: Bytes) -> Result<usize, hub::HubError> {
    let count = piece.len();
    match hub.send("the log", Method::POST, &format!("{}?offset={start}", path::LOG), piece).await {
        Ok(_) => Ok(count),
        // A response was lost: the hub already has these bytes from this runner.
        Err(hub::HubError::Refused { offset: Some(has), .. }) if has > start && has - start <= count as u64 => {
            Ok(usize::try_from(has - start).unwrap_or(count))
        }
        Err(error) => Err(error),
    }
}
