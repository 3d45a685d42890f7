//! What the writer publishes and everybody else reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::Event;
use super::error::Error;
use super::live::{Concerned, Live};
use super::snapshot::Snapshot;

pub(super) struct Shared {
    /// The newest commit; `None` after the end.
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    live: Mutex<Live>,
    revision: AtomicU64,
}

impl Shared {
    pub fn new(snapshot: Snapshot, recent_bytes: usize) -> Shared {
        let revision = snapshot.revision;
        Shared {
            snapshot: RwLock::new(Some(Arc::new(snapshot))),
            live: Mutex::new(Live::new(revision, recent_bytes)),
            revision: AtomicU64::new(revision),
        }
    }

    /// One that has ended before it began.
    pub fn ended(why: Error) -> Shared {
        let mut live = Live::new(1, 0);
        live.end(why);
        Shared { snapshot: RwLock::new(None), live: Mutex::new(live), revision: AtomicU64::new(1) }
    }

    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    pub fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        let snapshot = self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone();
        snapshot.ok_or_else(|| self.live().ended().cloned().unwrap_or(Error::Closed))
    }

    /// The lock is held for short steps without I/O only. A panic under it leaves nothing half
    /// done that matters more than going on.
    pub fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a durable commit: first to readers, then to watchers, so that who gets an event can
    /// read what it tells of. Whom it concerns is left to be woken.
    pub fn publish(&self, snapshot: Snapshot, events: Vec<Arc<Event>>) -> Concerned {
        let revision = snapshot.revision;
        let replaced = {
            let mut current = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
            current.replace(Arc::new(snapshot))
        };
        self.revision.store(revision, Ordering::Release);
        let concerned = self.live().publish(events);
        // Letting go of the old snapshot's tables is left until nobody waits for a lock.
        drop(replaced);
        concerned
    }

    /// Ends reads and watches.
    pub fn end(&self, why: Error) {
        self.live().end(why);
        let snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(snapshot);
    }
}
