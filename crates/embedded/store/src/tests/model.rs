//! The store as a list of states, one a revision: slow, and plain enough to be right.

use std::collections::BTreeMap;

use super::super::{Entry, Error, Event, EventKind, Extent, Store, Write};
use super::{drain, pages};

type State = BTreeMap<String, Entry>;

#[derive(Debug, Clone)]
pub struct Model {
    /// The state at revision 1 and after each event.
    states: Vec<State>,
    /// The event of revision 2, 3, ...
    events: Vec<Event>,
    pub compacted: u64,
}

impl Model {
    pub fn new() -> Model {
        Model { states: vec![State::new()], events: Vec::new(), compacted: 1 }
    }

    pub fn revision(&self) -> u64 {
        self.states.len() as u64
    }

    pub fn current(&self) -> &State {
        self.states.last().unwrap()
    }

    pub fn write(&mut self, write: &Write) -> Result<u64, Error> {
        let revision = self.revision() + 1;
        let mut state = self.current().clone();
        let previous = state.get(write.key()).cloned();
        let current = previous.as_ref().map(|entry| entry.revision);
        let key = write.key().to_owned();
        let event = match write {
            Write::Create { .. } if current.is_some() => return Err(Error::Exists),
            Write::Update { expect, .. } | Write::Delete { expect, .. } if current != Some(*expect) => {
                return Err(Error::Conflict { current });
            }
            Write::Create { value, .. } | Write::Update { value, .. } => {
                let created = previous.as_ref().map_or(revision, |previous| previous.created);
                state.insert(key.clone(), Entry { key: key.clone(), revision, created, value: value.clone() });
                Event { revision, key, kind: EventKind::Put, value: value.clone(), previous }
            }
            Write::Delete { value, .. } => {
                state.remove(&key);
                let value = value.clone().unwrap_or_else(|| previous.as_ref().unwrap().value.clone());
                Event { revision, key, kind: EventKind::Delete, value, previous }
            }
        };
        self.states.push(state);
        self.events.push(event);
        Ok(revision)
    }

    pub fn compact(&mut self, before: u64) -> Result<(), Error> {
        if before > self.revision() {
            return Err(Error::Future { asked: before, newest: self.revision() });
        }
        self.compacted = self.compacted.max(before);
        Ok(())
    }

    /// The model as it was at a revision, for a store that lost what came later.
    pub fn back_to(&self, revision: u64) -> Model {
        Model {
            states: self.states[..revision as usize].to_vec(),
            events: self.events[..revision as usize - 1].to_vec(),
            compacted: self.compacted.min(revision),
        }
    }

    pub fn list(&self, prefix: &str, at: u64) -> Vec<Entry> {
        let state = &self.states[at as usize - 1];
        state.values().filter(|entry| entry.key.starts_with(prefix)).cloned().collect()
    }

    pub fn events(&self, prefix: &str, from: u64) -> Vec<Event> {
        let events = &self.events[from as usize - 1..];
        events.iter().filter(|event| event.key.starts_with(prefix)).cloned().collect()
    }

    /// Compares everything that can be asked of the store.
    pub fn check(&self, store: &Store, prefixes: &[&str]) {
        assert_eq!(store.revision(), self.revision());
        for (key, entry) in self.current() {
            assert_eq!(store.get(key).unwrap().as_ref(), Some(entry));
        }
        for prefix in prefixes {
            assert_eq!(store.count(prefix).unwrap(), self.list(prefix, self.revision()).len() as u64);
            for at in self.compacted..=self.revision() {
                let expected = self.list(prefix, at);
                for extent in [Extent::Page(1), Extent::Page(3), Extent::Piece, Extent::All] {
                    let page = pages(store, prefix, extent, at).unwrap();
                    assert_eq!(page.revision, at);
                    assert_eq!(page.entries, expected, "`{prefix}` at {at} by {extent:?}");
                }
                let mut watch = store.watch(prefix, at).unwrap();
                let seen = drain(&mut watch).unwrap();
                assert_eq!(seen, self.events(prefix, at), "`{prefix}` from {at}");
                assert_eq!(watch.progress(), self.revision());
            }
        }
        for gone in 0..self.compacted {
            assert!(
                matches!(pages(store, "", Extent::Page(1), gone), Err(Error::Compacted { oldest }) if oldest == self.compacted)
            );
            assert!(matches!(store.watch("", gone), Err(Error::Compacted { oldest }) if oldest == self.compacted));
        }
        let future = self.revision() + 1;
        assert!(matches!(pages(store, "", Extent::Page(1), future), Err(Error::Future { .. })));
        assert!(matches!(store.watch("", future), Err(Error::Future { .. })));
    }
}
