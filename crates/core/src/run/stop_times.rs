//! The times after which a lost runner has stopped by itself, and after which its Run is given up: one set of numbers.
//!
//! ```text
//! the last answer of the hub          terraform is asked to stop      it is killed at the latest
//! |----------- silence ---------------|---- interrupt, terminate -----|
//! the operator asks the runner to stop                                              the Run is given up
//! |------------------------------------ patience -----------------------------------|
//! ```
//!
//! *Guarantee.* A runner that hears the hub after the operator asked it to stop is told so. A runner that does not hear
//! the hub has stopped terraform before the operator gives the Run up, so no other Run of the Workspace begins earlier.

use std::time::Duration;

use knoll_api::wire::StopTimes;

/// From SIGINT to SIGTERM: terraform finishes the resources in progress and writes its state.
const INTERRUPT: Duration = Duration::from_secs(240);

/// From SIGTERM to SIGKILL.
const TERMINATE: Duration = Duration::from_secs(20);

/// How long terraform takes to stop at the longest.
pub const STOP: Duration = INTERRUPT.saturating_add(TERMINATE);

/// The termination grace period of a Run's pod: terraform stops, and its state is uploaded.
pub const POD_GRACE: Duration = Duration::from_secs(300);

/// How long the operator waits for a runner that it asked to stop, before it gives the Run up.
pub const PATIENCE: Duration = Duration::from_secs(360);

/// For clocks that do not run alike, and for a process that takes a moment to end.
const MARGIN: Duration = Duration::from_secs(10);

/// How long the hub keeps a question for a cancellation open. Its answers are what a runner hears of it.
pub const POLL: Duration = Duration::from_secs(15);

/// How long a runner waits for the answer to such a question. A connection that broke without a word costs that much.
const ANSWER: Duration = Duration::from_secs(25);

/// How long a runner that has stopped terraform tries to deliver the last state and its report.
const DELIVER: Duration = Duration::from_secs(3600);

/// How long a runner goes on without an answer of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence(Duration);

/// A silence that is too short to survive one broken connection, or too long for the operator's patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a time from {}s to {}s", Silence::MIN.as_secs(), Silence::MAX.as_secs())]
pub struct SilenceError;

impl Silence {
    /// A broken connection is noticed and another question answered.
    pub const MIN: Duration = ANSWER.saturating_add(POLL);
    /// The runner has stopped terraform within the operator's patience.
    pub const MAX: Duration = PATIENCE.saturating_sub(STOP).saturating_sub(MARGIN);

    /// # Errors
    /// When the time is not between [`Silence::MIN`] and [`Silence::MAX`].
    pub fn new(silence: Duration) -> Result<Self, SilenceError> {
        if (Self::MIN..=Self::MAX).contains(&silence) { Ok(Self(silence)) } else { Err(SilenceError) }
    }

    /// The times of a runner.
    #[must_use]
    pub fn times(self) -> StopTimes {
        StopTimes { silence: self.0, answer: ANSWER, interrupt: INTERRUPT, terminate: TERMINATE, deliver: DELIVER }
    }
}

impl Default for Silence {
    /// A rolling update of the operator takes less.
    fn default() -> Self {
        Self(Duration::from_secs(80))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_has_stopped_before_its_run_is_given_up() {
        let Silence(default) = Silence::default();
        for silence in [Silence::MIN, default, Silence::MAX] {
            assert!(Silence::new(silence).is_ok(), "{silence:?}");
            assert!(silence + STOP < PATIENCE, "{silence:?}");
            assert!(ANSWER + POLL <= silence, "one broken connection does not stop terraform");
        }
        assert!(STOP < POD_GRACE, "the state is uploaded before the kubelet kills the runner");
        assert!(POD_GRACE < PATIENCE, "a pod that ends in time is not given up");
        assert!(POLL < ANSWER);
    }

    #[test]
    fn a_silence_that_would_break_the_promise_is_refused() {
        for silence in
            [Duration::ZERO, Silence::MIN - Duration::from_millis(1), Silence::MAX + Duration::from_millis(1)]
        {
            assert_eq!(Silence::new(silence), Err(SilenceError));
        }
        assert_eq!(SilenceError.to_string(), "write a time from 40s to 90s");
    }
}
