//! The controller of Stacks: it keeps what a revision is made of, and starts the Runs that the machine asks for.

mod act;
pub mod inputs;
mod outputs;
mod sources;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::{
    Atom, Run, Stack, Workspace,
    names::{content, label},
    stack::StackPhase,
};
use knoll_core::{
    events,
    stack::{self, Decision, Observed, needs},
    workspace::Head,
};
use kube::{
    Resource, ResourceExt,
    api::PartialObjectMeta,
    runtime::{controller::Action, reflector::ObjectRef},
};

pub use inputs::Memory;
pub use sources::Sources;

use crate::{
    context::Context,
    controller::{Error, Published, requeue_at},
    watch::Triggers,
};
use inputs::{Found, references};

/// How soon to look again when somebody else was faster; the watch usually comes first.
const BEHIND: Duration = Duration::from_secs(1);

/// What Secrets and ConfigMaps of Knoll's own hold that are never an input of a Stack.
pub const NO_INPUTS: [&str; 7] = [
    content::STATE,
    content::STATE_PART,
    content::PLAN,
    content::LOG,
    content::LOCK,
    content::BUNDLE,
    content::JOURNAL,
];

/// Brings one Stack a step further.
pub async fn reconcile(stack: Arc<Stack>, context: Arc<Context>) -> Result<Action, Error> {
    if context.stacks.is_stale(&stack) {
        return Ok(Action::await_change());
    }
    let now = context.now();
    let seen = observe(&context, &stack).await?;
    let decision = seen.decide(&stack, now);
    let Some(status) = act::all(&context, &stack, &seen, &decision).await? else {
        // What was done brings an event of its own.
        return Ok(Action::await_change());
    };
    let at_rest = decision.actions.is_empty() && status.phase == StackPhase::Ready;
    let api = context.api::<Stack>(&stack.namespace().unwrap_or_default());
    match context.stacks.publish(&api, &stack, stack.status.as_ref(), &status).await? {
        Published::Written => {
            for event in events::of_stack(&stack.status.clone().unwrap_or_default(), &status) {
                context.events.tell(event, stack.object_ref(&()));
            }
        }
        Published::Unchanged if at_rest => act::prune(&context, &stack, &status).await?,
        Published::Unchanged => {}
        Published::Overtaken => return Ok(Action::requeue(BEHIND)),
    }
    Ok(requeue_at(decision.requeue_at, now))
}

/// What was read for one decision.
struct Seen {
    found: Found,
    workspace: Option<Arc<Workspace>>,
    runs: Vec<Arc<Run>>,
    last_run_is_gone: bool,
    head: Option<Head>,
    outputs_are_there: bool,
    others: Vec<Arc<Stack>>,
    atom: Option<Arc<Atom>>,
}

impl Seen {
    fn decide(&self, stack: &Stack, now: jiff::Timestamp) -> Decision {
        let runs: Vec<&Run> = self.runs.iter().map(AsRef::as_ref).collect();
        let others: Vec<&Stack> = self.others.iter().map(AsRef::as_ref).collect();
        let state = self.head.as_ref().map(|head| (head.summary.digest.as_str(), head.summary.resources));
        stack::decide(
            &Observed {
                stack,
                inputs: &self.found.inputs,
                workspace: self.workspace.as_deref(),
                runs: &runs,
                last_run_is_gone: self.last_run_is_gone,
                state,
                outputs_are_there: self.outputs_are_there,
                others: &others,
                atom: self.atom.as_deref(),
                elsewhere: self.found.elsewhere.as_ref(),
            },
            now,
        )
    }
}

async fn observe(context: &Arc<Context>, stack: &Stack) -> Result<Seen, Error> {
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    let here = |found: Option<&str>| found == Some(namespace.as_str());
    let caches = &context.caches;
    let others = caches.stacks.state_filter(|other| {
        here(other.metadata.namespace.as_deref()) && other.metadata.name.as_deref() != Some(name.as_str())
    });
    let mut runs =
        caches.runs.state_filter(|run| here(run.metadata.namespace.as_deref()) && stack::is_owned(run, stack));
    for run in context.started.of(&namespace, &name) {
        if stack::is_owned(run.as_ref(), stack) && !runs.iter().any(|known| known.metadata.name == run.metadata.name) {
            runs.push(run);
        }
    }
    let mut last_run_is_gone = false;
    let status = stack.status.clone().unwrap_or_default();
    let last = status.last_run.filter(|_| status.settled < status.runs);
    if let Some(last) = last.filter(|last| !runs.iter().any(|run| run.name_any() == *last)) {
        // A Run counts as gone only when the API itself says so.
        let run = context.api::<Run>(&namespace).get_opt(&last).await;
        match run.map_err(Error::api("cannot read a run of a Stack"))?.filter(|run| stack::is_owned(run, stack)) {
            Some(run) => runs.push(Arc::new(run)),
            None => last_run_is_gone = true,
        }
    }
    let head = caches.state(&namespace, &name);
    let neighbours: Vec<&Stack> = others.iter().map(AsRef::as_ref).collect();
    let found = inputs::find(context, stack, &namespace, &neighbours).await?;
    let workspace = caches.workspaces.get(&ObjectRef::new(&name).within(&namespace));
    let outputs = stack.spec.outputs.as_ref().map(|outputs| ObjectRef::new(&outputs.secret_name).within(&namespace));
    let outputs_are_there = outputs.is_some_and(|outputs| caches.secrets.get(&outputs).is_some());
    let atom = stack.spec.rollback_with.as_ref().map(|atom| ObjectRef::new(atom).within(&namespace));
    let atom = atom.and_then(|atom| caches.atoms.get(&atom));
    Ok(Seen { found, workspace, runs, last_run_is_gone, head, outputs_are_there, others, atom })
}

/// A Stack came, changed or went: it is looked at, and so are those that need it and those that it needs.
pub fn on_stack(context: &Context, ask: &Triggers, stack: &Stack) {
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    ask.stack(&namespace, &name);
    let needed: BTreeSet<&str> = needs(stack);
    for needed in &needed {
        ask.stack(&namespace, needed);
    }
    let needs_it =
        |other: &Stack| other.namespace().as_ref() == Some(&namespace) && needs(other).contains(name.as_str());
    for other in context.caches.stacks.state_filter(needs_it) {
        ask.stack(&namespace, &other.name_any());
    }
    if context.caches.stacks.get(&ObjectRef::from_obj(stack)).is_none() {
        context.stacks.forget(stack);
        context.memory.forget(stack);
        context.sources.forget(stack);
    }
}

/// A Secret came, changed or went.
pub fn on_secret(context: &Context, ask: &Triggers, secret: &PartialObjectMeta<Secret>) {
    on_input(context, ask, secret, |stack| references(stack).secrets);
    // The Secret of a Stack's outputs comes back when somebody deletes it.
    if let Some(stack) = secret.labels().get(label::STACK) {
        ask.stack(&secret.namespace().unwrap_or_default(), stack);
    }
}

/// A ConfigMap came, changed or went.
pub fn on_config_map(context: &Context, ask: &Triggers, map: &PartialObjectMeta<ConfigMap>) {
    on_input(context, ask, map, |stack| references(stack).config_maps);
}

fn on_input<K: Resource>(
    context: &Context,
    ask: &Triggers,
    object: &PartialObjectMeta<K>,
    names: fn(&Stack) -> BTreeSet<String>,
) where
    K::DynamicType: Default,
{
    let (namespace, name) = (object.metadata.namespace.clone().unwrap_or_default(), object.metadata.name.clone());
    let Some(name) = name else { return };
    let uses = |stack: &Stack| stack.namespace().as_ref() == Some(&namespace) && names(stack).contains(&name);
    for stack in context.caches.stacks.state_filter(uses) {
        ask.stack(&namespace, &stack.name_any());
    }
}
