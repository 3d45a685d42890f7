//! The dependencies of an Atom, and its revision.

use std::collections::{BTreeMap, BTreeSet};

use knoll_api::{
    Atom, Stack,
    atom::{AtomRevision, DependencyKind},
    names::{annotation, reason},
};
use kube::ResourceExt;
use serde_json::Value;

use super::{Desired, account, template::InputValues};
use crate::{
    stack::{Waits, digest, wait_for},
    status::Cause,
};

/// The Stacks that have to be Ready before an update: those in `dependsOn`, and those whose outputs are inputs.
#[must_use]
pub fn stacks(atom: &Atom) -> BTreeSet<&str> {
    let named = named(atom, DependencyKind::Stack);
    let used = atom.spec.inputs.iter().filter_map(|input| Some(input.stack_ref.as_ref()?.name.as_str()));
    named.chain(used).collect()
}

/// The Atoms that have to be Ready before an update.
#[must_use]
pub fn atoms(atom: &Atom) -> BTreeSet<&str> {
    named(atom, DependencyKind::Atom).collect()
}

fn named(atom: &Atom, kind: DependencyKind) -> impl Iterator<Item = &str> {
    atom.spec.depends_on.iter().filter(move |other| other.kind == kind).map(|other| other.name.as_str())
}

/// The dependencies that are not Ready, among the Stacks and Atoms of the Atom's namespace; none when all are.
#[must_use]
pub fn waiting(atom: &Atom, all_stacks: &[&Stack], all_atoms: &[&Atom]) -> Option<Desired> {
    if let Some(cycle) = cycle(atom, all_atoms) {
        let cycle = cycle.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" -> ");
        let message = format!("The dependencies of these Atoms form a cycle: {cycle}. Remove one of the references.");
        return Some(Desired::Unresolved { cause: Cause::new(reason::DEPENDENCY_CYCLE, message), stalled: true });
    }
    let of_stacks = stacks(atom).into_iter().filter_map(|name| {
        let other = all_stacks.iter().find(|other| other.metadata.name.as_deref() == Some(name)).copied();
        wait_for(name, other, |other| other.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default())
    });
    let of_atoms = atoms(atom).into_iter().filter_map(|name| {
        let other = all_atoms.iter().find(|other| other.metadata.name.as_deref() == Some(name)).copied();
        wait_for(name, other, |other| other.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default())
    });
    let waits: Vec<Waits> = of_stacks.chain(of_atoms).collect();
    let all: Vec<&str> = waits.iter().map(|wait| wait.why.as_str()).collect();
    (!waits.is_empty()).then(|| Desired::Unresolved {
        cause: Cause::new(reason::WAITING_FOR_DEPENDENCIES, all.join(" ")),
        stalled: waits.iter().any(|wait| wait.is_stuck),
    })
}

/// A path of dependencies from the Atom back to itself.
fn cycle(atom: &Atom, all: &[&Atom]) -> Option<Vec<String>> {
    let start = atom.name_any();
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next: Vec<(&str, &Atom)> = vec![(start.as_str(), atom)];
    while let Some((name, at)) = next.pop() {
        for needed in atoms(at) {
            if needed == start {
                let mut path = vec![start.clone()];
                let mut step = name;
                while step != start {
                    path.push(step.to_owned());
                    step = came_from.get(step)?;
                }
                path.push(start.clone());
                path.reverse();
                return Some(path);
            }
            let other = all.iter().find(|other| other.metadata.name.as_deref() == Some(needed));
            if let (Some(other), false) = (other, came_from.contains_key(needed)) {
                came_from.insert(needed, name);
                next.push((needed, other));
            }
        }
    }
    None
}

/// The revision of an Atom. The UID salts the digest of the inputs, so equal inputs of two Atoms have different digests.
#[must_use]
pub fn revision(atom: &Atom, template: &str, inputs: &InputValues, stacks: BTreeMap<String, String>) -> AtomRevision {
    let short = |whole: String| whole.trim_start_matches("sha256:").chars().take(16).collect();
    let inputs: BTreeMap<&str, &Value> = inputs.values().iter().map(|(name, value)| (name.as_str(), value)).collect();
    AtomRevision {
        template: short(digest(&(
            &atom.spec.version,
            template,
            account::of(atom),
            atom.spec.force,
            atom.annotations().get(annotation::RECONCILE),
        ))),
        inputs: short(digest(&(atom.metadata.uid.as_deref(), inputs))),
        stacks,
    }
}
