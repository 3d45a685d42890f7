//! What an Atom waits for, and what its objects are made of.

use std::collections::{BTreeMap, BTreeSet};

use knoll_api::{
    Atom, Stack,
    atom::{AtomRevision, DependencyKind},
    names::{annotation, reason},
};
use kube::ResourceExt;
use serde_json::Value;

use super::{Wanted, template::Inputs};
use crate::{
    stack::{Waits, digest, wait_for},
    status::Cause,
};

/// The Stacks that have to be Ready first: those it names, and those whose outputs it uses.
#[must_use]
pub fn stacks(atom: &Atom) -> BTreeSet<&str> {
    let named = named(atom, DependencyKind::Stack);
    let used = atom.spec.inputs.iter().filter_map(|input| Some(input.stack_ref.as_ref()?.name.as_str()));
    named.chain(used).collect()
}

/// The Atoms that have to be Ready first.
#[must_use]
pub fn atoms(atom: &Atom) -> BTreeSet<&str> {
    named(atom, DependencyKind::Atom).collect()
}

fn named(atom: &Atom, kind: DependencyKind) -> impl Iterator<Item = &str> {
    atom.spec.depends_on.iter().filter(move |other| other.kind == kind).map(|other| other.name.as_str())
}

/// What an Atom waits for, if anything: those of the Stacks and Atoms of its namespace that are not Ready.
#[must_use]
pub fn waiting(atom: &Atom, all_stacks: &[&Stack], all_atoms: &[&Atom]) -> Option<Wanted> {
    if let Some(circle) = circle(atom, all_atoms) {
        let circle = circle.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" -> ");
        let message = format!("These Atoms wait for each other: {circle}. Take one of the references out.");
        return Some(Wanted::Unknown { cause: Cause::new(reason::DEPENDENCY_CYCLE, message), stuck: true });
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
    (!waits.is_empty()).then(|| Wanted::Unknown {
        cause: Cause::new(reason::WAITING_FOR_DEPENDENCIES, all.join(" ")),
        stuck: waits.iter().any(|wait| wait.is_stuck),
    })
}

/// A way from the Atom over those that it needs back to itself.
fn circle(atom: &Atom, all: &[&Atom]) -> Option<Vec<String>> {
    let start = atom.name_any();
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next: Vec<(&str, &Atom)> = vec![(start.as_str(), atom)];
    while let Some((name, at)) = next.pop() {
        for needed in atoms(at) {
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
            let other = all.iter().find(|other| other.metadata.name.as_deref() == Some(needed));
            if let (Some(other), false) = (other, came_from.contains_key(needed)) {
                came_from.insert(needed, name);
                next.push((needed, other));
            }
        }
    }
    None
}

/// What the objects of an Atom are made of. The UID makes that equal inputs of two Atoms do not look equal.
#[must_use]
pub fn revision(atom: &Atom, template: &str, inputs: &Inputs, stacks: BTreeMap<String, String>) -> AtomRevision {
    let short = |whole: String| whole.trim_start_matches("sha256:").chars().take(16).collect();
    let inputs: BTreeMap<&str, &Value> = inputs.iter().map(|(name, value)| (name.as_str(), value)).collect();
    AtomRevision {
        template: short(digest(&(
            &atom.spec.version,
            template,
            &atom.spec.service_account_name,
            atom.spec.force,
            atom.annotations().get(annotation::RECONCILE),
        ))),
        inputs: short(digest(&(atom.metadata.uid.as_deref(), inputs))),
        stacks,
    }
}

/// `sha256:` and the hash of a template.
#[must_use]
pub fn template_digest(template: &str) -> String {
    digest(&template)
}
