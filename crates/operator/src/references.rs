//! The references of each kind, as the indexes of the caches hold them.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use knoll_api::{Approval, Atom, AtomVersion, Run, Stack, Workspace, names::label};
use knoll_core::{atom::needs, stack};
use kube::{Resource, ResourceExt, api::PartialObjectMeta};

use crate::index::{References, Target};

/// A Run refers to its Workspace, twice while it is unfinished. Its Stack knows it by name.
pub fn of_run(run: &Run) -> References {
    let unfinished = run.status.as_ref().is_none_or(|status| !status.phase.is_finished());
    let unfinished = unfinished.then(|| (Target::UnfinishedRunsOf, run.spec.workspace.clone()));
    [(Target::Workspace, run.spec.workspace.clone())].into_iter().chain(unfinished).collect()
}

/// A Workspace refers to its namespace, whose labels decide on the Policies that match.
pub fn of_workspace(workspace: &Workspace) -> References {
    workspace.namespace().map(|name| (Target::Namespace, name)).into_iter().collect()
}

pub fn of_approval(approval: &Approval) -> References {
    [(Target::Run, approval.spec.run.clone())].into()
}

pub fn of_pod(pod: &Pod) -> References {
    labelled(pod, label::RUN, Target::Run)
}

/// A Stack refers to the Stacks that it needs, the Atom that it rolls back with, all of its inputs, and its namespace.
pub fn of_stack(stack: &Stack) -> References {
    let inputs = stack::References::of(stack);
    let stacks = stack::needs(stack).into_iter().map(|name| (Target::Stack, name.to_owned()));
    let atom = stack.spec.rollback_with.iter().map(|name| (Target::Atom, name.clone()));
    let secrets = inputs.secrets.into_iter().map(|name| (Target::Secret, name));
    let config_maps = inputs.config_maps.into_iter().map(|name| (Target::ConfigMap, name));
    let namespace = stack.namespace().map(|name| (Target::Namespace, name));
    stacks.chain(atom).chain(secrets).chain(config_maps).chain(namespace).collect()
}

/// An Atom refers to its version, the Stacks and Atoms that it needs, its inputs, and its namespace.
pub fn of_atom(atom: &Atom) -> References {
    let mut found: References = [(Target::AtomVersion, atom.spec.version.clone())].into();
    found.extend(atom.namespace().map(|name| (Target::Namespace, name)));
    found.extend(needs::stacks(atom).into_iter().map(|name| (Target::Stack, name.to_owned())));
    found.extend(needs::atoms(atom).into_iter().map(|name| (Target::Atom, name.to_owned())));
    for input in &atom.spec.inputs {
        found.extend(input.secret_key_ref.iter().map(|key| (Target::Secret, key.name.clone())));
        found.extend(input.config_map_key_ref.iter().map(|key| (Target::ConfigMap, key.name.clone())));
    }
    found
}

/// An AtomVersion refers to the Atom that it belongs to, and to the object that holds its template.
pub fn of_atom_version(version: &AtomVersion) -> References {
    let mut found = labelled(version, label::ATOM, Target::Atom);
    if let Some(from) = &version.spec.template_from {
        found.extend(from.secret_key_ref.iter().map(|key| (Target::Secret, key.name.clone())));
        found.extend(from.config_map_key_ref.iter().map(|key| (Target::ConfigMap, key.name.clone())));
    }
    found
}

/// A Secret of a Stack's own refers to that Stack.
pub fn of_secret(secret: &PartialObjectMeta<Secret>) -> References {
    labelled(secret, label::STACK, Target::Stack)
}

pub fn of_config_map(map: &PartialObjectMeta<ConfigMap>) -> References {
    labelled(map, label::STACK, Target::Stack)
}

/// Objects that are looked up by name only.
pub fn none<K>(_: &K) -> References {
    References::new()
}

fn labelled<K: Resource>(object: &K, label: &str, target: Target) -> References {
    object.labels().get(label).map(|name| (target, name.clone())).into_iter().collect()
}
