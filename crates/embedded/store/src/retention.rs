//! Decides up to which revision history may be dropped.
//!
//! Marks are set along the way: "at this time, with this much written, the newest revision was this".
//! A mark that is too old by any bound says how far to compact. Marks are a 32nd of a bound apart, so
//! their number stays small and the bounds are kept within 3 %.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::options::Options;

const MARKS: u32 = 32;

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    revision: u64,
    written: u64,
}

#[derive(Debug)]
pub(super) struct Retention {
    keep_for: Duration,
    keep_revisions: u64,
    keep_bytes: u64,
    marks: VecDeque<Mark>,
    /// The newest mark, also when it is no longer among the `marks`.
    last: Mark,
    newest: u64,
    written: u64,
}

impl Retention {
    /// A store that was just opened at `newest`. What it holds from before counts from now on.
    pub fn new(options: &Options, newest: u64, compacted: u64, now: Instant) -> Retention {
        let last = Mark { at: now, revision: newest, written: 0 };
        let mut marks = VecDeque::new();
        if newest > compacted {
            marks.push_back(last);
        }
        Retention {
            keep_for: options.keep_for,
            keep_revisions: options.keep_revisions.max(1),
            keep_bytes: options.keep_bytes.max(1),
            marks,
            last,
            newest,
            written: 0,
        }
    }

    /// Takes note of a commit.
    pub fn wrote(&mut self, newest: u64, bytes: u64) {
        self.newest = newest;
        self.written += bytes;
    }

    /// The revision to compact to now, if there is one.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        if self.newest > self.last.revision && self.far_enough(now) {
            self.last = Mark { at: now, revision: self.newest, written: self.written };
            self.marks.push_back(self.last);
        }
        let mut target = None;
        while let Some(mark) = self.marks.front() {
            let expired = now.saturating_duration_since(mark.at) >= self.keep_for
                || self.newest - mark.revision >= self.keep_revisions
                || self.written - mark.written >= self.keep_bytes;
            if !expired {
                break;
            }
            target = Some(mark.revision);
            self.marks.pop_front();
        }
        target
    }

    /// When to ask [`Retention::due`] again although nothing is written until then.
    pub fn wake(&self) -> Option<Instant> {
        // A time too far away to be told means never.
        let expiry = self.marks.front().and_then(|mark| mark.at.checked_add(self.keep_for));
        let mark = match self.newest > self.last.revision {
            true => self.last.at.checked_add(self.keep_for / MARKS),
            false => None,
        };
        match (expiry, mark) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn far_enough(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last.at) >= self.keep_for / MARKS
            || self.newest - self.last.revision >= (self.keep_revisions / u64::from(MARKS)).max(1)
            || self.written - self.last.written >= (self.keep_bytes / u64::from(MARKS)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn options() -> Options {
        Options { keep_for: 320 * SECOND, keep_revisions: 3200, keep_bytes: 32_000, ..Options::default() }
    }

    #[test]
    fn time_drops_what_was_current_before() {
        let start = Instant::now();
        let mut retention = Retention::new(&options(), 1, 1, start);
        assert_eq!(retention.wake(), None, "an untouched store never wakes");
        retention.wrote(5, 10);
        assert_eq!(retention.due(start), None);
        assert_eq!(retention.wake(), Some(start + 10 * SECOND));
        assert_eq!(retention.due(start + 10 * SECOND), None);
        assert_eq!(retention.wake(), Some(start + 330 * SECOND));
        assert_eq!(retention.due(start + 329 * SECOND), None);
        assert_eq!(retention.due(start + 330 * SECOND), Some(5));
        assert_eq!(retention.wake(), None, "nothing is left to drop");
    }

    #[test]
    fn an_opened_store_drops_its_history_after_the_same_time() {
        let start = Instant::now();
        let mut retention = Retention::new(&options(), 90, 40, start);
        assert_eq!(retention.wake(), Some(start + 320 * SECOND));
        assert_eq!(retention.due(start + 320 * SECOND), Some(90));
    }

    #[test]
    fn many_revisions_drop_the_oldest() {
        let start = Instant::now();
        let mut retention = Retention::new(&options(), 1, 1, start);
        let mut compacted = 1;
        for newest in 2..10_000 {
            retention.wrote(newest, 1);
            compacted = retention.due(start).unwrap_or(compacted);
            assert!(newest - compacted < 3200 + 100, "{newest} with {compacted}");
        }
        assert!(compacted > 6700);
    }

    #[test]
    fn no_bound_in_time_is_never_reached() {
        let start = Instant::now();
        let keep_for = Duration::MAX;
        let options = Options { keep_for, ..options() };
        let mut retention = Retention::new(&options, 5, 1, start);
        retention.wrote(6, 1);
        assert_eq!(retention.due(start), None);
        let years = start + Duration::from_secs(1 << 40);
        assert!(retention.wake().is_none_or(|wake| wake > years));
    }

    #[test]
    fn many_bytes_drop_the_oldest() {
        let start = Instant::now();
        let mut retention = Retention::new(&options(), 1, 1, start);
        let mut compacted = 1;
        for newest in 2..100 {
            retention.wrote(newest, 1000);
            compacted = retention.due(start).unwrap_or(compacted);
            assert!(newest - compacted <= 32 + 1, "{newest} with {compacted}");
        }
        assert!(compacted > 60);
    }
}
