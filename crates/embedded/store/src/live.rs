//! The newest events in memory, and who waits for them.
//!
//! Everything here happens under one lock and without I/O. Each watcher has one number, the first
//! revision that may concern it; the writer sets it when an event with the watcher's prefix comes, so
//! a watcher whose prefix nobody writes is not woken and never falls behind.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use super::Event;
use super::error::Error;

/// How many events a watcher takes at once.
const BATCH_EVENTS: usize = 512;

pub(super) struct Live {
    /// The newest events, without a gap, ending with `newest`.
    recent: VecDeque<Arc<Event>>,
    recent_bytes: usize,
    recent_limit: usize,
    newest: u64,
    watchers: HashMap<u64, Watcher>,
    next_id: u64,
    ended: Option<Error>,
}

struct Watcher {
    prefix: Arc<str>,
    /// The first revision that this watcher may still have to see; `None` when there is none.
    pending: Option<u64>,
    /// How many watchers the last commit concerned that concerned this one.
    company: usize,
    wake: Arc<Notify>,
}

/// Watchers that have something to see and sleep until they are woken.
#[must_use]
#[derive(Default)]
pub(super) struct Concerned(Vec<Arc<Notify>>);

impl Concerned {
    pub fn wake(self) {
        self.0.iter().for_each(|watcher| watcher.notify_one());
    }
}

/// What a watcher should do next.
pub(super) enum Step {
    /// Hand these on; they count as seen.
    Deliver(Vec<Arc<Event>>),
    /// Read the file for events after `from`, up to `upto`, and report with [`Live::advance`].
    ReadHistory {
        from: u64,
        upto: u64,
    },
    Wait,
    /// No event will ever come.
    End(Error),
}

impl Live {
    pub fn new(newest: u64, recent_limit: usize) -> Live {
        Live {
            recent: VecDeque::new(),
            recent_bytes: 0,
            recent_limit,
            newest,
            watchers: HashMap::new(),
            next_id: 0,
            ended: None,
        }
    }

    /// Takes the events of a durable commit, and tells whom they concern.
    pub fn publish(&mut self, events: Vec<Arc<Event>>) -> Concerned {
        let mut concerned = Vec::new();
        let sees = |watcher: &mut Watcher| events.iter().find(|event| event.key.starts_with(&*watcher.prefix)).cloned();
        let crowd: Vec<_> = self.watchers.values_mut().filter_map(|watcher| Some((sees(watcher)?, watcher))).collect();
        let company = crowd.len();
        for (event, watcher) in crowd {
            watcher.company = company;
            if watcher.pending.is_none() {
                watcher.pending = Some(event.revision);
                concerned.push(watcher.wake.clone());
            }
        }
        for event in events {
            self.newest = event.revision;
            self.recent_bytes += event.size();
            self.recent.push_back(event);
        }
        while self.recent_bytes > self.recent_limit
            && let Some(event) = self.recent.pop_front()
        {
            self.recent_bytes -= event.size();
        }
        Concerned(concerned)
    }

    /// Ends every watch after the events it still has to see.
    pub fn end(&mut self, why: Error) {
        self.ended.get_or_insert(why);
        for watcher in self.watchers.values() {
            watcher.wake.notify_one();
        }
    }

    pub fn ended(&self) -> Option<&Error> {
        self.ended.as_ref()
    }

    /// Adds a watcher that has seen everything up to `from`.
    pub fn join(&mut self, prefix: Arc<str>, from: u64) -> (u64, Arc<Notify>) {
        let id = self.next_id;
        self.next_id += 1;
        let wake = Arc::new(Notify::new());
        self.watchers.insert(id, Watcher { prefix, pending: None, company: 0, wake: wake.clone() });
        self.advance(id, from);
        (id, wake)
    }

    pub fn leave(&mut self, id: u64) {
        self.watchers.remove(&id);
    }

    pub fn step(&mut self, id: u64) -> Step {
        let Some(watcher) = self.watchers.get(&id) else {
            return Step::End(Error::Closed);
        };
        let Some(pending) = watcher.pending else {
            return match &self.ended {
                Some(why) => Step::End(why.clone()),
                None => Step::Wait,
            };
        };
        let Some(skip) = pending.checked_sub(self.first_recent()) else {
            return Step::ReadHistory { from: pending - 1, upto: self.newest };
        };
        let events: Vec<_> = self
            .recent
            .range(skip as usize..)
            .filter(|event| event.key.starts_with(&*watcher.prefix))
            .take(BATCH_EVENTS)
            .cloned()
            .collect();
        let seen = events.last().map_or(self.newest, |event| event.revision);
        self.advance(id, seen);
        if events.is_empty() { self.step(id) } else { Step::Deliver(events) }
    }

    /// Takes note that a watcher has seen everything up to `seen`, and finds what is next for it.
    pub fn advance(&mut self, id: u64, seen: u64) {
        let first_recent = self.first_recent();
        let Some(watcher) = self.watchers.get_mut(&id) else {
            return;
        };
        watcher.pending = match (seen + 1).checked_sub(first_recent) {
            // Between what it has seen and what is in memory nobody has looked yet.
            None => Some(seen + 1),
            Some(skip) if skip as usize >= self.recent.len() => None,
            Some(skip) => self
                .recent
                .range(skip as usize..)
                .find(|event| event.key.starts_with(&*watcher.prefix))
                .map(|event| event.revision),
        };
    }

    /// The revision up to which a watcher has seen everything.
    pub fn progress(&self, id: u64) -> u64 {
        match self.watchers.get(&id).and_then(|watcher| watcher.pending) {
            Some(pending) => pending - 1,
            None => self.newest,
        }
    }

    /// How many watchers see what this one sees, itself among them.
    pub fn company(&self, id: u64) -> usize {
        self.watchers.get(&id).map_or(0, |watcher| watcher.company)
    }

    /// The oldest revision in memory, or the next one to come when there is none.
    fn first_recent(&self) -> u64 {
        self.newest + 1 - self.recent.len() as u64
    }
}
