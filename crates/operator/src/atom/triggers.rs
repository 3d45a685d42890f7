//! Which Atoms and AtomVersions are reconciled after a change of an object that they depend on.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::{Atom, AtomVersion, Stack};
use knoll_core::atom::needs;
use kube::{ResourceExt, api::PartialObjectMeta, runtime::reflector::ObjectRef};

use super::desired;
use crate::{context::Context, watch::Triggers};

/// Reconciles an Atom, the Atoms that depend on it, and the Stacks that roll back with it.
pub fn on_atom(context: &Context, ask: &Triggers, atom: &Atom) {
    let (namespace, name) = (atom.namespace().unwrap_or_default(), atom.name_any());
    ask.atom(&namespace, &name);
    let depends_on_it =
        |other: &Atom| other.namespace().as_ref() == Some(&namespace) && needs::atoms(other).contains(name.as_str());
    for other in context.caches.atoms.state_filter(depends_on_it) {
        ask.atom(&namespace, &other.name_any());
    }
    let rolls_back_with_it = |stack: &Stack| {
        stack.namespace().as_ref() == Some(&namespace) && stack.spec.rollback_with.as_ref() == Some(&name)
    };
    for stack in context.caches.stacks.state_filter(rolls_back_with_it) {
        ask.stack(&namespace, &stack.name_any());
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
    let names_it = |atom: &Atom| atom.namespace().as_ref() == Some(&namespace) && atom.spec.version == name;
    for atom in context.caches.atoms.state_filter(names_it) {
        ask.atom(&namespace, &atom.name_any());
    }
    if context.caches.atom_versions.get(&ObjectRef::from_obj(version)).is_none() {
        context.atom_versions.forget(version);
    }
}

/// Reconciles the Atoms that depend on a Stack or use its outputs.
pub fn on_stack(context: &Context, ask: &Triggers, stack: &Stack) {
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    let depends_on_it =
        |atom: &Atom| atom.namespace().as_ref() == Some(&namespace) && needs::stacks(atom).contains(name.as_str());
    for atom in context.caches.atoms.state_filter(depends_on_it) {
        ask.atom(&namespace, &atom.name_any());
    }
}

/// Reconciles the Atoms whose inputs or template come from a Secret.
pub fn on_secret(context: &Context, ask: &Triggers, secret: &PartialObjectMeta<Secret>) {
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    on_input(context, ask, secret.metadata.namespace.as_deref(), |atom| {
        desired::references(context, atom).0.contains(name)
    });
}

/// Reconciles the Atoms whose inputs or template come from a ConfigMap.
pub fn on_config_map(context: &Context, ask: &Triggers, map: &PartialObjectMeta<ConfigMap>) {
    let name = map.metadata.name.as_deref().unwrap_or_default();
    on_input(context, ask, map.metadata.namespace.as_deref(), |atom| {
        desired::references(context, atom).1.contains(name)
    });
}

fn on_input(context: &Context, ask: &Triggers, namespace: Option<&str>, uses: impl Fn(&Atom) -> bool) {
    let concerned = |atom: &Atom| atom.metadata.namespace.as_deref() == namespace && uses(atom);
    for atom in context.caches.atoms.state_filter(concerned) {
        ask.atom(namespace.unwrap_or_default(), &atom.name_any());
    }
}
