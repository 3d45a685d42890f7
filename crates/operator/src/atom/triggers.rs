//! Which Atoms and AtomVersions are reconciled after a change of an object that they refer to.

use knoll_api::{Atom, AtomVersion};
use knoll_core::identity::ObjectId;
use kube::runtime::reflector::ObjectRef;

use crate::{context::Context, index::Target, watch::Triggers};

/// Reconciles an Atom, the Atoms that depend on it, and the Stacks that roll back with it.
pub fn on_atom(context: &Context, ask: &Triggers, id: &ObjectId, atom: &Atom) {
    let ObjectId { namespace, name, .. } = id;
    ask.atom(namespace, name);
    ask_atoms(context, ask, Target::Atom, namespace, name);
    for stack in context.caches.stacks.index().referrers(Target::Atom, namespace, name) {
        ask.stack(namespace, &stack);
    }
    if context.caches.atoms.get(&ObjectRef::from_obj(atom)).is_none() {
        context.atoms.forget(atom);
        context.revisions.forget(atom);
        context.watches.end(atom);
    }
}

/// Reconciles an AtomVersion and the Atoms that name it.
pub fn on_version(context: &Context, ask: &Triggers, id: &ObjectId, version: &AtomVersion) {
    ask.atom_version(&id.namespace, &id.name);
    ask_atoms(context, ask, Target::AtomVersion, &id.namespace, &id.name);
    if context.caches.atom_versions.get(&ObjectRef::from_obj(version)).is_none() {
        context.atom_versions.forget(version);
    }
}

/// Reconciles the Atoms that depend on a Stack or use its outputs.
pub fn on_stack(context: &Context, ask: &Triggers, id: &ObjectId) {
    ask_atoms(context, ask, Target::Stack, &id.namespace, &id.name);
}

/// Reconciles the Atoms whose inputs or template come from a Secret or ConfigMap, and the AtomVersions with that template.
pub fn on_input(context: &Context, ask: &Triggers, target: Target, ObjectId { namespace, name, .. }: &ObjectId) {
    ask_atoms(context, ask, target, namespace, name);
    for version in context.caches.atom_versions.index().referrers(target, namespace, name) {
        ask.atom_version(namespace, &version);
        ask_atoms(context, ask, Target::AtomVersion, namespace, &version);
    }
}

fn ask_atoms(context: &Context, ask: &Triggers, target: Target, namespace: &str, name: &str) {
    for atom in context.caches.atoms.index().referrers(target, namespace, name) {
        ask.atom(namespace, &atom);
    }
}
