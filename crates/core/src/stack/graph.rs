//! Which Stacks wait for which.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::{names::condition, stack::Stack};
use kube::{Resource, ResourceExt};

use crate::conditions::{self, Truth};

/// A Stack that has to be Ready first, and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Its name.
    pub name: String,
    /// A sentence on what is missing.
    pub why: String,
    /// Whether it gets nowhere without a person.
    pub is_stuck: bool,
}

/// The Stacks that have to be Ready first: those it names, and those whose outputs it uses.
#[must_use]
pub fn needs(stack: &Stack) -> BTreeSet<&str> {
    let named = stack.spec.depends_on.iter().map(|other| other.name.as_str());
    let used = stack.spec.variables_from.iter().filter_map(|from| Some(from.stack_ref.as_ref()?.name.as_str()));
    named.chain(used).collect()
}

/// Those of them that are not Ready.
#[must_use]
pub fn unready(stack: &Stack, others: &[&Stack]) -> Vec<Waits> {
    needs(stack).into_iter().filter_map(|name| wait(name, others)).collect()
}

fn wait(name: &str, others: &[&Stack]) -> Option<Waits> {
    let other = others.iter().find(|other| other.name_any() == name).copied();
    wait_for(name, other, |stack| stack.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default())
}

/// What keeps an object from being Ready in its current generation, if anything does.
pub(crate) fn wait_for<'a, K: Resource<DynamicType = ()>>(
    name: &str,
    other: Option<&'a K>,
    conditions_of: fn(&'a K) -> &'a [Condition],
) -> Option<Waits> {
    let waits = |why: String, is_stuck: bool| Some(Waits { name: name.to_owned(), why, is_stuck });
    let kind = K::kind(&());
    let Some(other) = other else {
        return waits(format!("It waits for {kind} `{name}`, which is not there."), true);
    };
    if other.meta().deletion_timestamp.is_some() {
        return waits(format!("It waits for {kind} `{name}`, which is being deleted."), true);
    }
    let said = conditions_of(other);
    let current =
        |kind: &str| conditions::find(said, kind).filter(|found| found.observed_generation == other.meta().generation);
    let ready = current(condition::READY);
    if ready.is_some_and(|ready| ready.status == Truth::True.as_str()) {
        return None;
    }
    match current(condition::STALLED).filter(|stalled| stalled.status == Truth::True.as_str()) {
        Some(stalled) => waits(format!("It waits for {kind} `{name}`, which cannot go on: {}", stalled.message), true),
        None => waits(format!("It waits for {kind} `{name}` to be Ready."), false),
    }
}

/// The Stacks that need this one, and so have to go before it. Those that go with it although each waits for the other
/// are not among them: there is no order in a circle.
#[must_use]
pub fn dependants(stack: &Stack, others: &[&Stack]) -> Vec<String> {
    let name = stack.name_any();
    let goes = |other: &Stack| other.metadata.deletion_timestamp.is_some();
    let mut found: Vec<String> = others
        .iter()
        .filter(|other| needs(other).contains(name.as_str()))
        .filter(|other| !(goes(other) && reaches(stack, &other.name_any(), others)))
        .map(|other| other.name_any())
        .collect();
    found.sort();
    found
}

/// Whether a Stack needs another, perhaps over others.
fn reaches(stack: &Stack, name: &str, others: &[&Stack]) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![stack];
    while let Some(at) = next.pop() {
        for needed in needs(at) {
            if needed == name {
                return true;
            }
            if seen.insert(needed) {
                next.extend(others.iter().find(|other| other.metadata.name.as_deref() == Some(needed)));
            }
        }
    }
    false
}

/// The shortest way from the Stack over those that it needs back to itself, by name, with itself first and last.
#[must_use]
pub fn cycle(stack: &Stack, others: &[&Stack]) -> Option<Vec<String>> {
    let start = stack.name_any();
    let by_name: BTreeMap<&str, &Stack> =
        others.iter().filter_map(|other| Some((other.metadata.name.as_deref()?, *other))).collect();
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next: VecDeque<(&str, &Stack)> = VecDeque::from([(start.as_str(), stack)]);
    while let Some((name, at)) = next.pop_front() {
        for needed in needs(at) {
            if needed == start {
                let mut way = vec![start.clone()];
                let mut step = name;
                while step != start {
                    way.push(step.to_owned());
                    step = came_from.get(step)?;
                }
                way.push(start.clone());
                way.reverse();
                return Some(way);
            }
            if let (Some(other), false) = (by_name.get(needed), came_from.contains_key(needed)) {
                came_from.insert(needed, name);
                next.push_back((needed, other));
            }
        }
    }
    None
}
