//! Which Runs may start where Policies limit how many have a pod at the same time.
//!
//! A *pool* is what one Policy limits: the Runs that it holds for, in each namespace and in the cluster. A Run takes a slot
//! of each of its pools.
//!
//! *Guarantees.* No pool has more Runs than it may have by what starts here. A slot that is free and that a waiting Run may
//! take is never left free. Of the namespaces that wait, the one with the fewest running Runs is next, and of those the one
//! that was served the longest time ago; so a namespace that has none running waits for one slot, however many Runs
//! another one has in line. Within a namespace, the Run with the highest priority is next, and of those the one that asked
//! first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use knoll_api::policy::RunLimits;

/// The name of a Run and its namespace.
pub type RunKey = (String, String);

/// The limits of a pool, by the name of its Policy.
pub type Pools = BTreeMap<String, RunLimits>;

/// The Runs that have a slot and those that wait for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    running: BTreeMap<RunKey, BTreeSet<String>>,
    waiting: BTreeMap<RunKey, Waiting>,
    /// When each namespace was last served, as a number that grows.
    served: BTreeMap<String, u64>,
    clock: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    pools: Pools,
    priority: i32,
    /// The place in the order in which Runs asked.
    ticket: u64,
}

impl Waiting {
    /// Where it stands among those of its namespace.
    fn place(&self) -> (Reverse<i32>, u64) {
        (Reverse(self.priority), self.ticket)
    }
}

/// Why a Run has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// The Policy whose pool has no slot for the Run; none if others go first.
    pub policy: Option<String>,
    /// Whether it is the limit of the namespace.
    pub of_namespace: bool,
    pub limit: u32,
    /// The waiting Runs of the same namespace that go before this one.
    pub behind: Vec<String>,
    /// The number of other namespaces that wait.
    pub namespaces: usize,
}

impl Slots {
    /// Asks for a slot. The Run has it from now on if the answer is `Ok`; otherwise it waits, and has to ask again.
    ///
    /// # Errors
    /// When the Run has to wait.
    pub fn ask(&mut self, run: &RunKey, priority: i32, pools: Pools) -> Result<(), Full> {
        let names = pools.keys().cloned().collect();
        if pools.is_empty() || self.running.contains_key(run) {
            self.take(run, names);
            return Ok(());
        }
        let ticket = self.waiting.get(run).map_or(self.clock, |waiting| waiting.ticket);
        self.clock += 1;
        self.waiting.insert(run.clone(), Waiting { pools, priority, ticket });
        if self.next().contains(run) {
            self.take(run, names);
            return Ok(());
        }
        Err(self.why_not(run))
    }

    /// Notes that a Run has a pod, whoever let it start.
    pub fn runs(&mut self, run: &RunKey, pools: BTreeSet<String>) {
        self.waiting.remove(run);
        self.running.insert(run.clone(), pools);
    }

    /// The pools in which a Run has a slot.
    #[must_use]
    pub fn pools(&self, run: &RunKey) -> BTreeSet<String> {
        self.running.get(run).cloned().unwrap_or_default()
    }

    /// The Runs that have a slot.
    #[must_use]
    pub fn running(&self) -> Vec<RunKey> {
        self.running.keys().cloned().collect()
    }

    /// The Run needs no slot any more, and does not wait for one. Returns whether that changes anything.
    pub fn release(&mut self, run: &RunKey) -> bool {
        let ran = self.running.remove(run).is_some();
        let waited = self.waiting.remove(run).is_some();
        if self.waiting.is_empty() {
            // Nobody has to be compared with anybody any more.
            self.served.retain(|namespace, _| self.running.keys().any(|(of, _)| of == namespace));
        }
        ran || waited
    }

    /// The waiting Runs that get a slot now, in the order in which they do.
    #[must_use]
    pub fn next(&self) -> Vec<RunKey> {
        let mut then = self.clone();
        let mut next = Vec::new();
        while let Some(run) = then.first() {
            let pools = then.waiting.get(&run).map(|waiting| waiting.pools.keys().cloned().collect());
            then.take(&run, pools.unwrap_or_default());
            next.push(run);
        }
        next
    }

    fn take(&mut self, run: &RunKey, pools: BTreeSet<String>) {
        if !self.running.contains_key(run) {
            self.clock += 1;
            self.served.insert(run.0.clone(), self.clock);
        }
        self.runs(run, pools);
    }

    /// The waiting Run that is next, among those for which there is a slot.
    fn first(&self) -> Option<RunKey> {
        let counts = Counts::of(&self.running);
        let free = self.waiting.iter().filter(|(run, waiting)| counts.lacking(run, &waiting.pools).is_none());
        let rank = |namespace: &str, waiting: &Waiting| {
            let running = counts.namespaces.get(namespace).copied().unwrap_or_default();
            (running, self.served.get(namespace).copied(), waiting.place())
        };
        free.min_by_key(|(run, waiting)| rank(&run.0, waiting)).map(|(run, _)| run.clone())
    }

    fn why_not(&self, run: &RunKey) -> Full {
        let Some(own) = self.waiting.get(run) else {
            return Full { policy: None, of_namespace: false, limit: 0, behind: Vec::new(), namespaces: 0 };
        };
        let counts = Counts::of(&self.running);
        let lacking = counts.lacking(run, &own.pools);
        let mut behind: Vec<_> = self
            .waiting
            .iter()
            .filter(|((namespace, _), other)| *namespace == run.0 && other.place() < own.place())
            .map(|((_, name), other)| (other.place(), name))
            .collect();
        behind.sort();
        let others: BTreeSet<&String> = self.waiting.keys().map(|(namespace, _)| namespace).collect();
        Full {
            policy: lacking.map(|(policy, _, _)| policy.to_owned()),
            of_namespace: lacking.is_some_and(|(_, of_namespace, _)| of_namespace),
            limit: lacking.map(|(_, _, limit)| limit).unwrap_or_default(),
            behind: behind.into_iter().map(|(_, name)| name.clone()).collect(),
            namespaces: others.len().saturating_sub(1),
        }
    }
}

/// How many Runs have a slot.
#[derive(Debug, Default)]
struct Counts<'a> {
    namespaces: BTreeMap<&'a str, u32>,
    /// Those of each pool, in all namespaces.
    pools: BTreeMap<&'a str, u32>,
    /// Those of each pool in each namespace.
    places: BTreeMap<(&'a str, &'a str), u32>,
}

impl<'a> Counts<'a> {
    fn of(running: &'a BTreeMap<RunKey, BTreeSet<String>>) -> Self {
        let mut counts = Self::default();
        for ((namespace, _), pools) in running {
            *counts.namespaces.entry(namespace).or_default() += 1;
            for pool in pools {
                *counts.pools.entry(pool).or_default() += 1;
                *counts.places.entry((pool, namespace)).or_default() += 1;
            }
        }
        counts
    }

    /// The first pool that has no slot for a Run, whether it is the limit of the namespace, and that limit.
    fn lacking<'p>(&self, run: &RunKey, pools: &'p Pools) -> Option<(&'p str, bool, u32)> {
        pools.iter().find_map(|(policy, limits)| {
            let here = self.places.get(&(policy.as_str(), run.0.as_str())).copied().unwrap_or_default();
            let all = self.pools.get(policy.as_str()).copied().unwrap_or_default();
            let of_namespace = limits.namespace.filter(|limit| here >= *limit).map(|limit| (true, limit));
            let of_cluster = limits.cluster.filter(|limit| all >= *limit).map(|limit| (false, limit));
            of_namespace.or(of_cluster).map(|(of_namespace, limit)| (policy.as_str(), of_namespace, limit))
        })
    }
}

impl Full {
    /// A sentence for the conditions of the Run. It names no Run of another namespace.
    #[must_use]
    pub fn message(&self) -> String {
        /// The number of Runs that are named.
        const NAMED: usize = 3;
        let place = if self.of_namespace { "this namespace" } else { "the cluster" };
        let field = if self.of_namespace { "namespace" } else { "cluster" };
        let mut message = match &self.policy {
            Some(policy) => format!(
                "It waits for a slot: Policy `{policy}` allows {} at once in {place} (spec.limits.runs.{field}).",
                runs(self.limit)
            ),
            None => "It waits for a slot that others get first.".to_owned(),
        };
        let named: Vec<String> = self.behind.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
        let more = match self.behind.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if !named.is_empty() {
            message.push_str(&format!(" Before it: {}{more}.", named.join(", ")));
        }
        message
    }
}

fn runs(count: u32) -> String {
    if count == 1 { "1 Run".to_owned() } else { format!("{count} Runs") }
}

#[cfg(test)]
mod tests;
