//! The wait between two attempts.

use std::time::Duration;

use jiff::Timestamp;
use knoll_api::stack::{FailureStatus, StackSpec};

/// The longest wait between two Runs of one revision: long enough to spare a provider that is down, short enough that a
/// person need not step in when it is back.
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// The wait after this many failures in a row: `first`, doubled for each further one up to `longest`.
pub(super) fn doubled(first: Duration, longest: Duration, failures: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(longest)
}

/// The time at which a failed Run may be followed by another.
pub(super) fn retry_at(spec: &StackSpec, failure: &FailureStatus) -> Option<Timestamp> {
    let first = spec.retry_backoff.as_ref().map_or(StackSpec::DEFAULT_RETRY_BACKOFF, |backoff| backoff.get());
    failure.at.as_ref()?.0.checked_add(doubled(first, LONGEST_RETRY, failure.count)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_longest() {
        let second = Duration::from_secs;
        let rows = [(0, 5), (1, 5), (2, 10), (3, 20), (7, 300), (4000, 300)];
        for (failures, expect) in rows {
            assert_eq!(doubled(second(5), second(300), failures), second(expect), "{failures}");
        }
    }
}
