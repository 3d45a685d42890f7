//! Following the changes under a prefix.

use std::sync::Arc;

use tokio::sync::Notify;

use super::live::Step;
use super::shared::Shared;
use super::{Event, error::Error};

/// One or more events, in order of their revisions.
pub type Batch = Vec<Arc<Event>>;

/// Every change of the keys with one prefix, in order, none left out and none twice.
///
/// *Guarantees*: an event is seen only when it is durable, and after a read would see it. A watcher
/// may be as slow as it likes: it holds no memory, and reads from the file what is no longer in memory.
///
/// *Caveats*: a watcher that is slower than compaction gets [`Error::Compacted`] and must list again.
pub struct Watch {
    shared: Arc<Shared>,
    id: u64,
    prefix: Arc<str>,
    wake: Arc<Notify>,
}

/// What one step of a watch came to.
enum Progress {
    Events(Batch),
    /// A piece of history with nothing for this watch.
    Passed,
    /// The end of what there is.
    End,
}

impl Watch {
    pub(super) fn new(shared: Arc<Shared>, prefix: &str, from: u64) -> Watch {
        let prefix: Arc<str> = prefix.into();
        let (id, wake) = shared.live().join(prefix.clone(), from);
        Watch { shared, id, prefix, wake }
    }

    /// Waits for the next events; there is at least one in the answer.
    ///
    /// It is safe to drop the future before it is ready (in a `select!`): no event is lost.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            match self.advance()? {
                Progress::Events(events) => return Ok(events),
                Progress::Passed => tokio::task::yield_now().await,
                Progress::End => self.wake.notified().await,
            }
        }
    }

    /// The next events that are there already, or `None` when this watch has seen everything: then
    /// [`Watch::progress`] is the store's revision.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            match self.advance()? {
                Progress::Events(events) => return Ok(Some(events)),
                Progress::Passed => {}
                Progress::End => return Ok(None),
            }
        }
    }

    /// Takes one step. Whatever it finds counts as handed on, so nothing may be awaited after it
    /// before the events are returned.
    fn advance(&mut self) -> Result<Progress, Error> {
        let step = self.shared.live().step(self.id);
        match step {
            Step::Deliver(events) => Ok(Progress::Events(events)),
            Step::Wait => Ok(Progress::End),
            Step::End(why) => Err(why),
            Step::ReadHistory { from, upto } => {
                let history = self.shared.snapshot()?.history(&self.prefix, from, upto)?;
                self.shared.live().advance(self.id, history.reached);
                match history.events.is_empty() {
                    true => Ok(Progress::Passed),
                    false => Ok(Progress::Events(history.events)),
                }
            }
        }
    }

    /// The revision up to which this watch has handed on everything there was: what a bookmark may say.
    pub fn progress(&self) -> u64 {
        self.shared.live().progress(self.id)
    }

    /// How many watches see what this one sees, itself among them: what one more change sets going.
    pub fn company(&self) -> usize {
        self.shared.live().company(self.id)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.live().leave(self.id);
    }
}
