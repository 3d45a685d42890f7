//! The shape that all machines share: `observe -> decide(&facts, now) -> status or action -> outcome -> settle`.
//!
//! `decide` and `settle` are pure functions of this crate. The operator's driver calls them, carries out the action in
//! between, and publishes the status.
//!
//! *Guarantee.* A decision is either a status to publish or one action to carry out, never both. A machine that must
//! record an intention before it acts on it publishes the intention first, and acts in its next decision.

use jiff::Timestamp;

/// The result of `decide`.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<S, A> {
    pub next: Next<S, A>,
    /// The time of the next decision, even if nothing changes until then.
    pub requeue_at: Option<Timestamp>,
}

/// The next step of a machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<S, A> {
    /// Publish this status, if it differs from the object's.
    Status(S),
    /// Carry out this action, then publish the status that `settle` makes of its outcome.
    Act(A),
}

impl<S, A> Decision<S, A> {
    /// A decision to publish `status`.
    pub fn status(status: S) -> Self {
        Self { next: Next::Status(status), requeue_at: None }
    }

    /// A decision to carry out `action`.
    pub fn act(action: A) -> Self {
        Self { next: Next::Act(action), requeue_at: None }
    }

    /// The same decision, taken again at `time` at the latest.
    #[must_use]
    pub fn at(mut self, time: Option<Timestamp>) -> Self {
        self.requeue_at = time;
        self
    }

    /// The same decision, taken again at `time` if not earlier.
    #[must_use]
    pub fn at_the_latest(mut self, time: Option<Timestamp>) -> Self {
        self.requeue_at = [self.requeue_at, time].into_iter().flatten().min();
        self
    }
}

/// The result of `settle`: the status after an action.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled<S> {
    pub status: S,
    /// The time of the next decision; the earlier of this and the decision's own counts.
    pub requeue_at: Option<Timestamp>,
}

impl<S> From<S> for Settled<S> {
    fn from(status: S) -> Self {
        Self { status, requeue_at: None }
    }
}

impl<S> Settled<S> {
    /// The same status, with the next decision at `time` at the latest.
    #[must_use]
    pub fn at(mut self, time: Option<Timestamp>) -> Self {
        self.requeue_at = time;
        self
    }
}
