//! Brings the run's log to the hub, while the run goes on.
//!
//! Pieces are sent when there is enough of them or when five seconds have passed, so that a short run needs one request and a
//! long one can be followed. A log that the hub does not take never fails a run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use knoll_api::wire::path;
use reqwest::Method;
use tokio::sync::{Notify, watch};

use crate::hub::{self, Hub};

/// What is sent at once, at most.
const PIECE: usize = 256 * 1024;
/// How long printed text may wait for more.
const PATIENCE: Duration = Duration::from_secs(5);

/// The run's log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// There is something to send.
    something: Notify,
    /// There is enough to send it at once, or nothing follows.
    enough: Notify,
    /// How many bytes the hub has, or has refused.
    sent: watch::Sender<u64>,
}

struct Waiting {
    /// Where in the log `bytes` begin.
    start: u64,
    bytes: Vec<u8>,
}

impl Log {
    /// A log that goes on at `offset`, behind what earlier pods of the run printed.
    pub fn new(offset: u64) -> Self {
        let shared = Shared {
            waiting: Mutex::new(Waiting { start: offset, bytes: Vec::new() }),
            something: Notify::new(),
            enough: Notify::new(),
            sent: watch::Sender::new(offset),
        };
        Log { shared: Arc::new(shared) }
    }

    /// Takes the next piece; it is sent in the background.
    pub fn append(&self, piece: &[u8]) {
        let mut waiting = self.waiting();
        waiting.bytes.extend_from_slice(piece);
        self.shared.something.notify_one();
        if waiting.bytes.len() >= PIECE {
            self.shared.enough.notify_one();
        }
    }

    /// Where the next piece will begin.
    pub fn offset(&self) -> u64 {
        let waiting = self.waiting();
        waiting.start + waiting.bytes.len() as u64
    }

    /// Sends what is appended, until the task is dropped.
    pub async fn deliver(self, hub: Hub) {
        loop {
            if self.waiting().bytes.is_empty() {
                self.shared.something.notified().await;
                let _ = tokio::time::timeout(PATIENCE, self.shared.enough.notified()).await;
            }
            let (start, piece) = self.next_piece();
            if piece.is_empty() {
                continue;
            }
            match send(&hub, start, piece).await {
                Ok(taken) => self.taken(start, taken),
                Err(error) => {
                    tracing::warn!(%error, "the log is not kept from here on");
                    self.shared.sent.send_replace(u64::MAX);
                    return;
                }
            }
        }
    }

    /// Returns when the hub has everything that was appended before, or does not take the log.
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
        let end = waiting.bytes.len().min(PIECE);
        (waiting.start, Bytes::copy_from_slice(&waiting.bytes[..end]))
    }

    fn taken(&self, start: u64, count: usize) {
        let mut waiting = self.waiting();
        waiting.bytes.drain(..count);
        waiting.start = start + count as u64;
        self.shared.sent.send_replace(waiting.start);
    }
}

/// Sends `piece` and returns how many bytes of it the hub has.
async fn send(hub: &Hub, start: u64, piece: Bytes) -> Result<usize, hub::Error> {
    let count = piece.len();
    match hub.send("the log", Method::POST, &format!("{}?offset={start}", path::LOG), piece).await {
        Ok(_) => Ok(count),
        // An answer got lost, so the hub has more than we know; it has it from us.
        Err(hub::Error::Refused { offset: Some(has), .. }) if has > start && has - start <= count as u64 => {
            Ok(usize::try_from(has - start).unwrap_or(count))
        }
        Err(error) => Err(error),
    }
}
