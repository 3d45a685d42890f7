//! The order in which copies are made.
//!
//! *Guarantees.* States come before objects, but for one turn in [`OF_OBJECTS`], so nothing waits for ever. Namespaces take
//! turns: one that asks for much waits for itself. A copy that the target has just refused comes after the objects, so the
//! next one that is tried is another.

use std::collections::{HashMap, HashSet, VecDeque};

use super::ledger::Work;

/// One of so many copies is not that of a state, while both wait.
const OF_OBJECTS: u8 = 4;

/// The work that waits, each piece once.
#[derive(Debug, Default)]
pub struct Waiting {
    members: HashSet<Work>,
    states: Turns,
    others: Turns,
    taken: u8,
}

/// Work by namespaces, which take turns. Work without a namespace is that of the cluster.
#[derive(Debug, Default)]
struct Turns {
    order: VecDeque<String>,
    by_namespace: HashMap<String, VecDeque<Work>>,
}

impl Turns {
    fn push(&mut self, work: Work) {
        let namespace = work.namespace().unwrap_or_default().to_owned();
        let own = self.by_namespace.entry(namespace.clone()).or_default();
        if own.is_empty() {
            self.order.push_back(namespace);
        }
        own.push_back(work);
    }

    fn pop(&mut self) -> Option<Work> {
        let namespace = self.order.pop_front()?;
        let own = self.by_namespace.get_mut(&namespace)?;
        let work = own.pop_front();
        if own.is_empty() {
            self.by_namespace.remove(&namespace);
        } else {
            self.order.push_back(namespace);
        }
        work
    }
}

impl Waiting {
    /// Puts a piece of work behind that of its namespace.
    pub fn push(&mut self, work: Work) {
        if self.members.insert(work.clone()) {
            match work {
                Work::State { .. } => self.states.push(work),
                Work::Object { .. } => self.others.push(work),
            }
        }
    }

    /// The same for work that the target has just refused.
    pub fn push_refused(&mut self, work: Work) {
        if self.members.insert(work.clone()) {
            self.others.push(work);
        }
    }

    pub fn pop(&mut self) -> Option<Work> {
        self.taken = (self.taken + 1) % OF_OBJECTS;
        let work = match self.taken {
            0 => self.others.pop().or_else(|| self.states.pop()),
            _ => self.states.pop().or_else(|| self.others.pop()),
        }?;
        self.members.remove(&work);
        Some(work)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(namespace: &str, name: usize) -> Work {
        Work::Object { kind: "stack", namespace: Some(namespace.to_owned()), name: name.to_string() }
    }

    fn state(namespace: &str, name: usize) -> Work {
        Work::State { namespace: namespace.to_owned(), workspace: name.to_string() }
    }

    /// Copies were made in the order in which they were asked for.
    #[test]
    fn one_editor_kept_the_copies_of_all_states_waiting() {
        let mut waiting = Waiting::default();
        (0..1000).for_each(|number| waiting.push(object("enemy", number)));
        (0..1000).for_each(|number| waiting.push(state("enemy", number)));
        waiting.push(state("team", 1));
        waiting.push(object("team", 1));
        waiting.push(object("team", 1));
        let order: Vec<Work> = std::iter::from_fn(|| waiting.pop()).collect();
        assert_eq!(order.len(), 2002);
        assert_eq!(order[..4], [state("enemy", 0), state("team", 1), state("enemy", 1), object("enemy", 0)]);
        assert_eq!(order[7], object("team", 1), "one turn of four is for objects");
        assert!(waiting.is_empty() && waiting.order_is_empty());
    }

    #[test]
    fn a_copy_that_was_refused_is_not_the_next_one() {
        let mut waiting = Waiting::default();
        waiting.push(object("a", 1));
        waiting.push_refused(state("a", 1));
        assert_eq!((waiting.pop(), waiting.pop(), waiting.pop()), (Some(object("a", 1)), Some(state("a", 1)), None));
    }

    impl Waiting {
        fn order_is_empty(&self) -> bool {
            [&self.states, &self.others].iter().all(|turns| turns.order.is_empty() && turns.by_namespace.is_empty())
        }
    }
}
