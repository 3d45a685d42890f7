//! The dependencies between Stacks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::{names::condition, stack::Stack};
use kube::{Resource, ResourceExt};

use crate::conditions::{self, Truth};

/// A dependency that is not Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    pub name: String,
    /// A sentence on what is missing.
    pub why: String,
    /// The dependency gets no further without a person.
    pub is_stuck: bool,
}

/// The names of the Stacks that have to be Ready first: those in `dependsOn`, and those whose outputs are variables.
#[must_use]
pub fn needs(stack: &Stack) -> BTreeSet<&str> {
    let named = stack.spec.depends_on.iter().map(|other| other.name.as_str());
    let used = stack.spec.variables_from.iter().filter_map(|from| Some(from.stack_ref.as_ref()?.name.as_str()));
    named.chain(used).collect()
}

/// The Stacks that this one needs, directly or through others, without itself. `get` finds a Stack by its name.
pub fn dependencies(stack: &Stack, get: impl Fn(&str) -> Option<Arc<Stack>>) -> Vec<Arc<Stack>> {
    let mut visited: BTreeSet<String> = BTreeSet::from([stack.name_any()]);
    let mut found: Vec<Arc<Stack>> = Vec::new();
    let mut next: VecDeque<String> = needs(stack).into_iter().map(str::to_owned).collect();
    while let Some(name) = next.pop_front() {
        if !visited.insert(name.clone()) {
            continue;
        }
        if let Some(dependency) = get(&name) {
            next.extend(needs(&dependency).into_iter().map(str::to_owned));
            found.push(dependency);
        }
    }
    found
}

/// The direct dependencies that are not Ready.
#[must_use]
pub fn unready(stack: &Stack, others: &[&Stack]) -> Vec<Waits> {
    needs(stack).into_iter().filter_map(|name| wait(name, others)).collect()
}

fn wait(name: &str, others: &[&Stack]) -> Option<Waits> {
    let other = others.iter().find(|other| other.name_any() == name).copied();
    wait_for(name, other, |stack| stack.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default())
}

/// Why an object is not Ready in its current generation; `None` if it is.
pub(crate) fn wait_for<'a, K: Resource<DynamicType = ()>>(
    name: &str,
    other: Option<&'a K>,
    conditions_of: fn(&'a K) -> &'a [Condition],
) -> Option<Waits> {
    let waits = |why: String, is_stuck: bool| Some(Waits { name: name.to_owned(), why, is_stuck });
    let kind = K::kind(&());
    let Some(other) = other else {
        return waits(format!("Waiting for {kind} `{name}`, which does not exist."), true);
    };
    if other.meta().deletion_timestamp.is_some() {
        return waits(format!("Waiting for {kind} `{name}`, which is being deleted."), true);
    }
    let conditions = conditions_of(other);
    let current = |kind: &str| {
        conditions::find(conditions, kind).filter(|found| found.observed_generation == other.meta().generation)
    };
    let ready = current(condition::READY);
    if ready.is_some_and(|ready| ready.status == Truth::True.as_str()) {
        return None;
    }
    match current(condition::STALLED).filter(|stalled| stalled.status == Truth::True.as_str()) {
        Some(stalled) => waits(format!("Waiting for {kind} `{name}`, which is stalled: {}", stalled.message), true),
        None => waits(format!("Waiting for {kind} `{name}` to be Ready."), false),
    }
}

/// The names of the Stacks that need this one, and so are deleted before it. In a circle there is no such order: a Stack
/// that is deleted too, and that this one needs, is left out.
#[must_use]
pub fn dependents(stack: &Stack, others: &[&Stack]) -> Vec<String> {
    let name = stack.name_any();
    let is_deleted = |other: &Stack| other.metadata.deletion_timestamp.is_some();
    let mut found: Vec<String> = others
        .iter()
        .filter(|other| needs(other).contains(name.as_str()))
        .filter(|other| !(is_deleted(other) && reaches(stack, &other.name_any(), others)))
        .map(|other| other.name_any())
        .collect();
    found.sort();
    found
}

/// Whether a Stack needs another, directly or through others.
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

/// The names on the shortest way from the Stack through its dependencies back to itself, with itself first and last.
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
