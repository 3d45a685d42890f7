//! The controller of Stacks: it stores the snapshots of revisions, and launches the Runs that the machine decides on.

mod act;
pub mod inputs;
mod outputs;
mod sources;

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::{
    Atom, Run, Stack, StackStatus, Workspace,
    names::{content, label},
    stack::StackPhase,
};
use knoll_core::{
    events::{self, Event},
    identity::{ObjectId, Subject},
    machine::{Decision, Settled},
    policy::Effective,
    stack::{self, IntendedRun, OwnRun, OwnedObject, RemoteSource, StackAction, StackFacts, StackOutcome, needs},
    workspace::Head,
};
use kube::{ResourceExt, api::PartialObjectMeta, runtime::reflector::ObjectRef};

pub use inputs::InputCache;
pub use sources::RemoteSources;

use crate::{
    context::Context,
    controller::{Error, Written},
    driver::{Effect, Observation, Reconciler},
    index::Target,
    policy,
    watch::Triggers,
};
use inputs::StackInputs;

/// The contents of Knoll's own Secrets and ConfigMaps that are never an input of a Stack.
pub const NO_INPUTS: [&str; 8] = [
    content::STATE,
    content::STATE_PART,
    content::PLAN,
    content::PLAN_TEXT,
    content::LOG,
    content::LOCK,
    content::BUNDLE,
    content::JOURNAL,
];

pub struct Stacks;

/// The facts of one decision.
pub struct SeenStack {
    stack: Subject<Stack>,
    inputs: StackInputs,
    workspace: Option<Arc<Workspace>>,
    runs: SeenRuns,
    head: Option<Head>,
    has_outputs_secret: bool,
    secrets: Vec<OwnedObject>,
    related: Vec<Arc<Stack>>,
    atom: Option<Arc<Atom>>,
    remote: Option<RemoteSource>,
    policy: Effective,
}

/// The Runs that the status of a Stack names.
#[derive(Default)]
struct SeenRuns {
    started: Vec<Arc<Run>>,
    last_is_gone: bool,
    /// The Run that has the name in `status.launching`, whoever created it.
    intended: Option<Arc<Run>>,
}

impl SeenStack {
    fn with_facts<T>(&self, decide: impl FnOnce(&StackFacts<'_>) -> T) -> T {
        let status = self.stack.status.as_ref();
        let records = status.map(|status| status.started_runs.as_slice()).unwrap_or_default();
        let runs: Vec<OwnRun<'_>> = records
            .iter()
            .filter_map(|record| self.runs.started.iter().find_map(|run| OwnRun::of(record, run)))
            .collect();
        let intended = match status.and_then(|status| status.launching.as_ref()) {
            Some(intent) => IntendedRun::of(intent, self.runs.intended.as_deref()),
            None => IntendedRun::Absent,
        };
        let related: Vec<&Stack> = self.related.iter().map(AsRef::as_ref).collect();
        decide(&StackFacts {
            stack: &self.stack,
            inputs: &self.inputs.inputs,
            workspace: self.workspace.as_deref(),
            runs: &runs,
            intended,
            last_run_is_gone: self.runs.last_is_gone,
            state: self.head.as_ref().map(|head| &head.summary),
            has_outputs_secret: self.has_outputs_secret,
            secrets: &self.secrets,
            related: &related,
            atom: self.atom.as_deref(),
            remote: self.remote.as_ref(),
            policy: &self.policy,
        })
    }
}

impl Reconciler for Stacks {
    type Object = Stack;
    type Seen = SeenStack;
    type Action = StackAction;
    type Outcome = StackOutcome;

    fn written(context: &Context) -> &Written<Stack> {
        &context.stacks
    }

    async fn observe(context: &Arc<Context>, stack: &Subject<Stack>) -> Result<Observation<SeenStack>, Error> {
        let (namespace, name) = (stack.namespace(), stack.name());
        let caches = &context.caches;
        let related = related(context, stack);
        let runs = runs(context, stack).await?;
        let remote = sources::observe(context, stack);
        let inputs = inputs::resolve(context, stack, remote.as_ref(), &related).await?;
        let outputs =
            stack.spec.outputs.as_ref().and_then(|outputs| caches.secrets.named(namespace, &outputs.secret_name));
        let atom = stack.spec.rollback_with.as_ref().and_then(|atom| caches.atoms.named(namespace, atom));
        let workspace = caches.workspaces.named(namespace, name);
        let policy = policy::demands_on(context, namespace, workspace.as_deref(), Some(stack)).await?;
        Ok(Observation::Complete(SeenStack {
            workspace,
            policy,
            head: caches.state(namespace, name),
            has_outputs_secret: outputs.is_some(),
            secrets: owned_secrets(context, stack),
            atom,
            stack: stack.clone(),
            inputs,
            runs,
            related,
            remote,
        }))
    }

    fn decide(seen: &SeenStack, now: Timestamp) -> Decision<StackStatus, StackAction> {
        seen.with_facts(|facts| stack::decide(facts, now))
    }

    async fn act(context: &Arc<Context>, seen: &SeenStack, action: StackAction) -> Result<Effect<StackOutcome>, Error> {
        act::act(context, seen, action).await
    }

    fn settle(seen: &SeenStack, outcome: StackOutcome, now: Timestamp) -> Settled<StackStatus> {
        seen.with_facts(|facts| stack::settle(facts, outcome, now))
    }

    fn events(_: &Context, stack: &Subject<Stack>, status: &StackStatus) -> Vec<Event> {
        events::of_stack(&stack.status.clone().unwrap_or_default(), status)
    }
}

/// The Stacks that the machine looks at: all that this one needs, and, when it is deleted, those that need it.
fn related(context: &Context, stack: &Subject<Stack>) -> Vec<Arc<Stack>> {
    let (stacks, namespace, name) = (&context.caches.stacks, stack.namespace(), stack.name());
    let mut related = stack::dependencies(stack, |name| stacks.named(namespace, name));
    if stack.metadata.deletion_timestamp.is_some() {
        let known: BTreeSet<String> = related.iter().map(|other| other.name_any()).collect();
        let dependents = stacks.referring_to(Target::Stack, namespace, name);
        related.extend(dependents.into_iter().filter(|other| !known.contains(&other.name_any())));
    }
    related
}

/// The Runs that the Stack's status names. A Run counts as gone, or as not created, only when the API says so.
async fn runs(context: &Context, stack: &Subject<Stack>) -> Result<SeenRuns, Error> {
    let mut seen = SeenRuns::default();
    let Some(status) = &stack.status else { return Ok(seen) };
    let namespace = stack.namespace();
    let read = async |name: &str| {
        let found = context.api::<Run>(namespace).get_opt(name).await;
        found.map(|run| run.map(Arc::new)).map_err(Error::api("cannot read a run of a Stack"))
    };
    for (index, record) in status.started_runs.iter().enumerate() {
        let is_it = |run: &Arc<Run>| OwnRun::of(record, run).is_some();
        let cached = context.caches.runs.named(namespace, &record.name).filter(is_it);
        let mut run = cached.or_else(|| context.started.get(namespace, &record.name).filter(is_it));
        let is_last = index + 1 == status.started_runs.len();
        if run.is_none() && is_last && status.settled < record.number {
            run = read(&record.name).await?.filter(is_it);
            seen.last_is_gone = run.is_none();
        }
        seen.started.extend(run);
    }
    if let Some(intent) = &status.launching
        && !context.nonces.has(stack.uid(), &intent.commitment)
    {
        seen.intended = read(&intent.name).await?;
    }
    Ok(seen)
}

/// The Secrets of a Stack at rest. Those of any other are not needed.
fn owned_secrets(context: &Context, stack: &Subject<Stack>) -> Vec<OwnedObject> {
    if stack.status.as_ref().is_none_or(|status| status.phase != StackPhase::Ready) {
        return Vec::new();
    }
    let secrets = context.caches.secrets.referring_to(Target::Stack, stack.namespace(), stack.name());
    let owned = secrets.iter().filter(|secret| stack::is_owned(secret.as_ref(), stack));
    owned.map(|secret| OwnedObject::of(secret.as_ref())).collect()
}

/// Asks for the reconciles that follow the event of a Stack: its own, and those of its dependencies and dependents.
pub fn on_stack(context: &Context, ask: &Triggers, ObjectId { namespace, name, .. }: &ObjectId, stack: &Stack) {
    ask.stack(namespace, name);
    // The newest Run starts once the status names it.
    if let Some(newest) = stack.status.as_ref().and_then(|status| status.started_runs.last()) {
        ask.run(namespace, &newest.name);
    }
    for dependency in needs(stack) {
        ask.stack(namespace, dependency);
    }
    for dependent in context.caches.stacks.index().referrers(Target::Stack, namespace, name) {
        ask.stack(namespace, &dependent);
    }
    if context.caches.stacks.get(&ObjectRef::from_obj(stack)).is_none() {
        context.stacks.forget(stack);
        context.stack_inputs.forget(stack);
        context.sources.forget(stack);
    }
}

/// Asks for the reconciles that follow the event of a Secret.
pub fn on_secret(context: &Context, ask: &Triggers, id: &ObjectId, secret: &PartialObjectMeta<Secret>) {
    on_input(context, ask, Target::Secret, id);
    // The Secret of a Stack's outputs is written again when somebody deletes it.
    if let Some(stack) = secret.labels().get(label::STACK) {
        ask.stack(&id.namespace, stack);
    }
}

/// Asks for the reconciles of the Stacks that refer to a Secret or ConfigMap.
pub fn on_input(context: &Context, ask: &Triggers, target: Target, ObjectId { namespace, name, .. }: &ObjectId) {
    for stack in context.caches.stacks.index().referrers(target, namespace, name) {
        ask.stack(namespace, &stack);
    }
}
