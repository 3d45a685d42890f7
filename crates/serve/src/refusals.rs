//! How often each address has shown a token that nobody accepts. Pure: time is an argument.
//!
//! *Guarantee.* An address at its limit costs no review until its window has passed, and what is remembered is bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Addresses that are remembered at the same time. With more than that, a new one waits for the window to pass.
const MOST: usize = 16 * 1024;

/// Reviews by address since the beginning of its window, without those that accepted the token.
pub struct Refusals {
    most: u32,
    window: SignedDuration,
    by_address: HashMap<IpAddr, (Timestamp, u32)>,
    swept: Timestamp,
}

impl Refusals {
    /// An address may show `most` tokens that are refused within `window`.
    #[must_use]
    pub fn new(most: u32, window: Duration) -> Self {
        let window = SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX);
        Self { most, window, by_address: HashMap::new(), swept: Timestamp::UNIX_EPOCH }
    }

    /// Whether the next review of this address would be too many.
    #[must_use]
    pub fn is_flooded(&self, peer: IpAddr, now: Timestamp) -> bool {
        self.current(peer, now).is_some_and(|count| count >= self.most)
    }

    /// Counts a review; false if the address has had too many.
    pub fn begin(&mut self, peer: IpAddr, now: Timestamp) -> bool {
        // The sweep looks at all addresses, so it is not made for each request.
        if now.duration_since(self.swept) >= SignedDuration::from_secs(1) {
            let window = self.window;
            self.by_address.retain(|_, (since, _)| now.duration_since(*since) < window);
            self.swept = now;
        }
        let count = self.current(peer, now).unwrap_or_default();
        if count >= self.most || (self.by_address.len() >= MOST && !self.by_address.contains_key(&peer)) {
            return false;
        }
        let since = self.by_address.get(&peer).map(|(since, _)| *since).filter(|_| count > 0).unwrap_or(now);
        self.by_address.insert(peer, (since, count + 1));
        true
    }

    /// Forgets a review that accepted the token.
    pub fn accepted(&mut self, peer: IpAddr) {
        if let Some((_, count)) = self.by_address.get_mut(&peer) {
            *count = count.saturating_sub(1);
        }
    }

    fn current(&self, peer: IpAddr, now: Timestamp) -> Option<u32> {
        let (since, count) = self.by_address.get(&peer)?;
        (now.duration_since(*since) < self.window).then_some(*count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_shows_bad_tokens_is_not_reviewed_for_a_while() {
        let (bad, good) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut refusals = Refusals::new(30, Duration::from_secs(10));
        let at = |second: i64| Timestamp::from_second(second).unwrap_or_default();
        for _ in 0..30 {
            assert!(refusals.begin(bad, at(100)));
        }
        assert!(!refusals.begin(bad, at(109)) && refusals.is_flooded(bad, at(109)));
        // Another address is not concerned, and one that is accepted is never too much.
        for _ in 0..60 {
            assert!(refusals.begin(good, at(101)));
            refusals.accepted(good);
        }
        assert!(refusals.begin(bad, at(110)), "its window has passed");
        assert!(refusals.begin(bad, at(200)));
        assert_eq!(refusals.by_address.len(), 1, "old addresses are forgotten");
    }

    #[test]
    fn addresses_without_end_are_not_remembered() {
        let mut refusals = Refusals::new(1, Duration::from_secs(10));
        let accepted =
            (0..100_000_u32).filter(|n| refusals.begin(IpAddr::from(n.to_be_bytes()), Timestamp::UNIX_EPOCH));
        assert_eq!(accepted.count(), MOST);
        assert_eq!(refusals.by_address.len(), MOST);
    }
}
