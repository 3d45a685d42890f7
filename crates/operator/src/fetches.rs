//! Fetches of sources outside of the cluster: how many go on at a time, and those of commands that are frozen.
//!
//! *Guarantees.* No reconcile waits for a server outside of the cluster. Each namespace has a share of the fetches that go
//! on at a time, so servers that never answer hold up no other namespace.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of fetches at a time: few enough for the memory that the files take.
const AT_ONCE: usize = 8;
/// The number of fetches at a time of one namespace.
const SHARE: usize = 2;

/// How long a result is kept that nobody asks for, because its Run is gone.
const KEPT: Duration = Duration::from_secs(600);

/// The places of all fetches.
pub struct FetchSlots {
    all: Arc<Semaphore>,
    shares: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place of one fetch, until it is dropped.
pub struct FetchSlot {
    _share: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for FetchSlots {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), shares: Mutex::default() }
    }
}

impl FetchSlots {
    /// Waits for a place. The semaphores are never closed, so there always is one in the end.
    pub async fn acquire(&self, namespace: &str) -> Option<FetchSlot> {
        let share = self.share(namespace).acquire_owned().await.ok()?;
        let all = self.all.clone().acquire_owned().await.ok()?;
        Some(FetchSlot { _share: share, _all: all })
    }

    fn share(&self, namespace: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever waits for a share or has one holds it, too.
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        shares.entry(namespace.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(SHARE))).clone()
    }
}

/// The fetches of the sources of commands, by the UID of the Run.
pub struct RunFetches<T> {
    fetches: Mutex<HashMap<String, RunFetch<T>>>,
}

struct RunFetch<T> {
    since: Instant,
    /// Absent while the fetch goes on.
    result: Option<T>,
}

/// What is known of the fetch of a Run.
#[derive(Debug, PartialEq, Eq)]
pub enum FetchStanding<T> {
    /// The caller has to fetch, and to call [`RunFetches::finish`]. Next: `Underway`.
    Due,
    /// Next: `Done`.
    Underway,
    /// The result is handed out once. Next: `Due`.
    Done(T),
}

impl<T> Default for RunFetches<T> {
    fn default() -> Self {
        Self { fetches: Mutex::default() }
    }
}

impl<T> RunFetches<T> {
    pub fn next(&self, run: &str) -> FetchStanding<T> {
        let mut fetches = self.lock();
        fetches.retain(|_, fetch| fetch.result.is_none() || fetch.since.elapsed() < KEPT);
        match fetches.remove(run) {
            Some(RunFetch { result: Some(result), .. }) => FetchStanding::Done(result),
            Some(underway) => {
                fetches.insert(run.to_owned(), underway);
                FetchStanding::Underway
            }
            None => {
                fetches.insert(run.to_owned(), RunFetch { since: Instant::now(), result: None });
                FetchStanding::Due
            }
        }
    }

    /// Keeps the result for the next reconcile of the Run.
    pub fn finish(&self, run: &str, result: T) {
        self.lock().insert(run.to_owned(), RunFetch { since: Instant::now(), result: Some(result) });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RunFetch<T>>> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn servers_of_one_namespace_held_up_the_fetches_of_all_others() {
        let slots = FetchSlots::default();
        let now = |namespace: &str| slots.acquire(namespace).now_or_never().flatten();
        let held: Vec<_> = (0..SHARE).map(|_| now("a")).collect();
        assert!(held.iter().all(Option::is_some) && now("a").is_none());
        assert!(now("b").is_some());
        drop(held);
        assert!(now("a").is_some());
        assert_eq!(slots.shares.lock().map(|shares| shares.len()).ok(), Some(1), "old namespaces are forgotten");
    }

    #[test]
    fn a_run_is_fetched_for_once_at_a_time() {
        let fetches = RunFetches::default();
        assert_eq!(fetches.next("r"), FetchStanding::Due);
        assert_eq!(fetches.next("r"), FetchStanding::Underway);
        assert_eq!(fetches.next("other"), FetchStanding::Due);
        fetches.finish("r", "files");
        assert_eq!(fetches.next("r"), FetchStanding::Done("files"));
        assert_eq!(fetches.next("r"), FetchStanding::Due);
    }
}
