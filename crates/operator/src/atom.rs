//! The controller of Atoms: it writes what the machine asks for, a stage at a time, and says what came of it.

mod kept;
mod look;
mod objects;
mod prepare;
mod restore;
mod versions;
mod wanted;
mod watches;
mod write;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::{Atom, AtomVersion, Stack, names::finalizer};
use knoll_core::{
    atom::{self, Action as Step, Observed, Outcome, needs},
    events,
};
use kube::{
    Resource, ResourceExt,
    api::PartialObjectMeta,
    runtime::{controller::Action, reflector::ObjectRef},
};

pub use objects::Kinds;
pub use versions::reconcile as reconcile_version;
pub use wanted::Memory;
pub use watches::Watches;

use crate::{
    context::Context,
    controller::{Error, Published, requeue_at},
    watch::Triggers,
};
use objects::{Halt, Objects, SOON};

/// How soon to look again when somebody else was faster; the watch usually comes first.
const BEHIND: Duration = Duration::from_secs(1);

/// How soon what could not be done is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often the pods of objects that are not ready are looked at: nothing else tells that an image cannot be pulled.
const PODS: Duration = Duration::from_secs(2);

/// Brings one Atom a step further.
pub async fn reconcile(atom: Arc<Atom>, context: Arc<Context>) -> Result<Action, Error> {
    if context.atoms.is_stale(&atom) {
        return Ok(Action::await_change());
    }
    let wanted = wanted::find(&context, &atom).await?;
    let decision = atom::decide(&Observed { atom: &atom, wanted: &wanted }, context.now());
    let before = atom.status.clone().unwrap_or_default();
    if decision.status != before {
        // What comes next is written before it is done.
        return publish(&context, &atom, &decision.status, decision.requeue_at, None).await;
    }
    let Some(step) = decision.action else {
        context.watches.end(&atom);
        return Ok(requeue_at(decision.requeue_at, context.now()));
    };
    let Some(outcome) = act(&context, &atom, step).await? else {
        // What was done brings an event of its own.
        return Ok(Action::await_change());
    };
    let soon = match (&outcome, step) {
        (Outcome::Later(_), _) => Some(AGAIN),
        (_, Step::Look) => Some(PODS),
        (_, Step::Restore | Step::Delete) => Some(SOON),
        _ => None,
    };
    let status = atom::settle(&atom, outcome, context.now());
    publish(&context, &atom, &status, decision.requeue_at, soon).await
}

/// Writes a status and tells of it; then it is looked at again after `soon`, and never later than `due`.
async fn publish(
    context: &Context,
    atom: &Atom,
    status: &knoll_api::AtomStatus,
    due: Option<jiff::Timestamp>,
    soon: Option<Duration>,
) -> Result<Action, Error> {
    let api = context.api::<Atom>(&atom.namespace().unwrap_or_default());
    match context.atoms.publish(&api, atom, atom.status.as_ref(), status).await? {
        Published::Written => {
            if let Some(event) = events::of_atom(&atom.status.clone().unwrap_or_default(), status) {
                context.events.tell(event, atom.object_ref(&()));
            }
            // The watch brings it back.
            return Ok(Action::await_change());
        }
        Published::Unchanged => {}
        Published::Overtaken => return Ok(Action::requeue(BEHIND)),
    }
    let now = context.now();
    let soon = soon.and_then(|soon| now.checked_add(soon).ok());
    Ok(requeue_at([due, soon].into_iter().flatten().min(), now))
}

/// Carries out a step. `None` when the Atom itself was changed.
async fn act(context: &Context, atom: &Atom, step: Step) -> Result<Option<Outcome>, Error> {
    if let Step::AddFinalizer | Step::RemoveFinalizer = step {
        let api = context.api(&atom.namespace().unwrap_or_default());
        context.atoms.hold(&api, atom, finalizer::ATOM, step == Step::AddFinalizer).await?;
        return Ok(None);
    }
    let done = match Objects::of(atom, &context.client, &context.kinds) {
        Ok(objects) => carry_out(context, atom, &objects, step).await?,
        Err(halt) => Err(halt),
    };
    Ok(Some(done.unwrap_or_else(|halt| match halt {
        Halt::Refused(cause) => Outcome::Refused(cause),
        Halt::Later(message) => Outcome::Later(message),
    })))
}

async fn carry_out(
    context: &Context,
    atom: &Atom,
    objects: &Objects<'_>,
    step: Step,
) -> Result<Result<Outcome, Halt>, Error> {
    Ok(match step {
        // These are done without the objects.
        Step::AddFinalizer | Step::RemoveFinalizer => Err(Halt::Later("The Atom itself is written.".to_owned())),
        Step::Prepare => prepare::run(context, atom, objects).await,
        Step::Write => write::run(context, atom, objects).await,
        Step::Look => look::run(context, atom, objects).await,
        Step::Prune => write::prune(context, atom, objects).await,
        Step::Restore => restore::run(context, atom, objects).await,
        Step::Delete => restore::delete(context, atom, objects).await,
        Step::Forget => {
            versions::keep(context, atom).await?;
            kept::forget(context, atom).await?;
            context.watches.end(atom);
            Ok(Outcome::Forgotten)
        }
    })
}

/// An Atom came, changed or went: it is looked at, and so are those that need it and the Stacks that go back with it.
pub fn on_atom(context: &Context, ask: &Triggers, atom: &Atom) {
    let (namespace, name) = (atom.namespace().unwrap_or_default(), atom.name_any());
    ask.atom(&namespace, &name);
    let needs_it =
        |other: &Atom| other.namespace().as_ref() == Some(&namespace) && needs::atoms(other).contains(name.as_str());
    for other in context.caches.atoms.state_filter(needs_it) {
        ask.atom(&namespace, &other.name_any());
    }
    let goes_back_with_it = |stack: &Stack| {
        stack.namespace().as_ref() == Some(&namespace) && stack.spec.rollback_with.as_ref() == Some(&name)
    };
    for stack in context.caches.stacks.state_filter(goes_back_with_it) {
        ask.stack(&namespace, &stack.name_any());
    }
    if context.caches.atoms.get(&ObjectRef::from_obj(atom)).is_none() {
        context.atoms.forget(atom);
        context.wanted.forget(atom);
        context.watches.end(atom);
    }
}

/// A version came, changed or went.
pub fn on_version(context: &Context, ask: &Triggers, version: &AtomVersion) {
    let (namespace, name) = (version.namespace().unwrap_or_default(), version.name_any());
    ask.atom_version(&namespace, &name);
    let wants = |atom: &Atom| atom.namespace().as_ref() == Some(&namespace) && atom.spec.version == name;
    for atom in context.caches.atoms.state_filter(wants) {
        ask.atom(&namespace, &atom.name_any());
    }
    if context.caches.atom_versions.get(&ObjectRef::from_obj(version)).is_none() {
        context.atom_versions.forget(version);
    }
}

/// A Stack came, changed or went.
pub fn on_stack(context: &Context, ask: &Triggers, stack: &Stack) {
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    let needs_it =
        |atom: &Atom| atom.namespace().as_ref() == Some(&namespace) && needs::stacks(atom).contains(name.as_str());
    for atom in context.caches.atoms.state_filter(needs_it) {
        ask.atom(&namespace, &atom.name_any());
    }
}

/// A Secret came, changed or went.
pub fn on_secret(context: &Context, ask: &Triggers, secret: &PartialObjectMeta<Secret>) {
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    on_input(context, ask, secret.metadata.namespace.as_deref(), |atom| {
        wanted::references(context, atom).0.contains(name)
    });
}

/// A ConfigMap came, changed or went.
pub fn on_config_map(context: &Context, ask: &Triggers, map: &PartialObjectMeta<ConfigMap>) {
    let name = map.metadata.name.as_deref().unwrap_or_default();
    on_input(context, ask, map.metadata.namespace.as_deref(), |atom| {
        wanted::references(context, atom).1.contains(name)
    });
}

fn on_input(context: &Context, ask: &Triggers, namespace: Option<&str>, uses: impl Fn(&Atom) -> bool) {
    let concerned = |atom: &Atom| atom.metadata.namespace.as_deref() == namespace && uses(atom);
    for atom in context.caches.atoms.state_filter(concerned) {
        ask.atom(namespace.unwrap_or_default(), &atom.name_any());
    }
}
