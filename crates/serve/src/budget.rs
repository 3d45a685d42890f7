//! What all clients of a server together may hold, and what one of them may: a namespace, a user, or a pod.
//!
//! *Guarantees.* The amounts that are held never exceed the budget, and those of one owner never its share: an owner at its
//! bound leaves room for others. What is held is given back when it is dropped, however the request ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// How long a request waits for others to end. A client that is sent away tries again.
const PATIENCE: Duration = Duration::from_secs(10);

/// An amount of something, such as bytes.
pub struct Budget {
    all: u64,
    share: u64,
    held: Mutex<Amounts>,
    freed: Notify,
}

#[derive(Default)]
struct Amounts {
    all: u64,
    by_owner: HashMap<String, u64>,
}

/// An amount that is held until this is dropped.
pub struct Held {
    budget: Arc<Budget>,
    owner: String,
    amount: u64,
}

impl Budget {
    /// A budget of `all`, of which an owner may hold `share`.
    #[must_use]
    pub fn new(all: u64, share: u64) -> Arc<Self> {
        Arc::new(Self { all, share, held: Mutex::default(), freed: Notify::new() })
    }

    /// Takes an amount as soon as there is room for it; none when there is none for a short time.
    pub async fn take(self: &Arc<Self>, owner: &str, amount: u64) -> Option<Held> {
        let waiting = async {
            loop {
                // Registered before it looks, so that what is freed in between is not missed.
                let mut freed = std::pin::pin!(self.freed.notified());
                freed.as_mut().enable();
                if let Some(held) = self.try_take(owner, amount) {
                    return held;
                }
                freed.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.ok()
    }

    /// Takes an amount if there is room for it now.
    pub fn try_take(self: &Arc<Self>, owner: &str, amount: u64) -> Option<Held> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.by_owner.get(owner).copied().unwrap_or_default();
        let fits = |held: u64, limit: u64| held.checked_add(amount).is_some_and(|sum| sum <= limit);
        if !fits(held.all, self.all) || !fits(own, self.share) {
            return None;
        }
        held.all += amount;
        held.by_owner.insert(owner.to_owned(), own + amount);
        Some(Held { budget: Arc::clone(self), owner: owner.to_owned(), amount })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.budget.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.all -= self.amount;
        if let Some(own) = held.by_owner.get_mut(&self.owner) {
            *own -= self.amount;
            if *own == 0 {
                held.by_owner.remove(&self.owner);
            }
        }
        drop(held);
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_owner_at_its_share_leaves_room_for_others() {
        let budget = Budget::new(10, 6);
        let first = budget.try_take("a", 4).unwrap();
        let _second = budget.try_take("a", 2).unwrap();
        assert!(budget.try_take("a", 1).is_none(), "its share is used up");
        let _third = budget.try_take("b", 4).unwrap();
        assert!(budget.try_take("c", 1).is_none(), "all is used up");
        drop(first);
        assert!(budget.try_take("c", 4).is_some());
        assert!(budget.try_take("c", u64::MAX).is_none());
    }

    #[tokio::test]
    async fn a_request_waits_for_another_to_end() {
        let budget = Budget::new(1, 1);
        let first = budget.take("a", 1).await.unwrap();
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.take("b", 1).await.is_some() }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.unwrap());
        assert!(budget.held.lock().unwrap().by_owner.is_empty());
    }
}
