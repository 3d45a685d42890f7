//! Which Atoms and AtomVersions are reconciled after a change of an object that they refer to.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::{Atom, AtomVersion, Stack};
use kube::{Resource, ResourceExt, api::PartialObjectMeta, runtime::reflector::ObjectRef};

use crate::{context::Context, index::Target, watch::Triggers};

/// Reconciles an Atom, the Atoms that depend on it, and the Stacks that roll back with it.
pub fn on_atom(context: &Context, ask: &Triggers, atom: &Atom) {
    let (namespace, name) = (atom.namespace().unwrap_or_default(), atom.name_any());
    ask.atom(&namespace, &name);
    ask_atoms(context, ask, Target::Atom, &namespace, &name);
    for stack in context.caches.stacks.index().referrers(Target::Atom, &namespace, &name) {
        ask.stack(&namespace, &stack);
    }
    if context.caches.atoms.get(&ObjectRef::from_obj(atom)).is_none() {
        context.atoms.forget(atom);
        context.revisions.forget(atom);
        context.watches.end(atom);
    }
}

/// Reconciles an AtomVersion and the Atoms that name it.
pub fn on_version(context: &Context, ask: &Triggers, version: &AtomVersion) {
    let (namespace, name) = (version.namespace().unwrap_or_default(), version.name_any());
    ask.atom_version(&namespace, &name);
    ask_atoms(context, ask, Target::AtomVersion, &namespace, &name);
    if context.caches.atom_versions.get(&ObjectRef::from_obj(version)).is_none() {
        context.atom_versions.forget(version);
    }
}

/// Reconciles the Atoms that depend on a Stack or use its outputs.
pub fn on_stack(context: &Context, ask: &Triggers, stack: &Stack) {
    ask_atoms(context, ask, Target::Stack, &stack.namespace().unwrap_or_default(), &stack.name_any());
}

pub fn on_secret(context: &Context, ask: &Triggers, secret: &PartialObjectMeta<Secret>) {
    on_input(context, ask, Target::Secret, secret);
}

pub fn on_config_map(context: &Context, ask: &Triggers, map: &PartialObjectMeta<ConfigMap>) {
    on_input(context, ask, Target::ConfigMap, map);
}

/// Reconciles the Atoms whose inputs or template come from an object, and the AtomVersions with that template.
fn on_input<K: Resource>(context: &Context, ask: &Triggers, target: Target, object: &K) {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    ask_atoms(context, ask, target, &namespace, &name);
    for version in context.caches.atom_versions.index().referrers(target, &namespace, &name) {
        ask.atom_version(&namespace, &version);
        ask_atoms(context, ask, Target::AtomVersion, &namespace, &version);
    }
}

fn ask_atoms(context: &Context, ask: &Triggers, target: Target, namespace: &str, name: &str) {
    for atom in context.caches.atoms.index().referrers(target, namespace, name) {
        ask.atom(namespace, &atom);
    }
}
