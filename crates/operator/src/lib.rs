//! The controllers of Knoll, one file a kind: each observes, asks `knoll-core`, acts and publishes.
//!
//! *Guarantees.* Each kind is watched once. A status is written only over the object that it was decided on. What
//! creates or deletes can be repeated. A controller that is stopped after any request goes on from there.

mod approval;
mod atom;
mod backup;
pub mod client;
mod context;
mod controller;
mod driver;
mod events;
mod fetches;
pub mod health;
mod index;
pub mod lease;
pub mod metrics;
mod policy;
mod references;
mod run;
mod slots;
mod stack;
mod sweep;
mod watch;
mod workspace;

use std::{sync::Arc, time::Duration};

pub use backup::BackupSettings;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use knoll_api::{
    Approval, Policy, Run, Stack, Workspace,
    names::{annotation, content, finalizer, label},
    run::RunPhase,
};
use knoll_core::{identity::ObjectId, pod::Platform};
use knoll_rules::Evaluator;
use knoll_storage::Storage;
use kube::{
    Api, Client, ResourceExt,
    api::PartialObjectMeta,
    runtime::{reflector, watcher},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    backup::Backups,
    context::{Caches, Context, ContextParts, Writers},
    controller::{boxed, drive},
    events::Recorder,
    health::{Controllers, Health},
    index::Target,
    metrics::Metrics,
    watch::{Decoding, Feed, Requests, Triggers},
};

/// How long events that are not recorded yet may delay the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How the operator works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace it works in; all of them when `None`.
    pub namespace: Option<String>,
    /// What every pod of a run is given.
    pub platform: Platform,
    /// The Lease it holds while it works; without one it must be the only operator.
    pub lease: Option<lease::LeaseSettings>,
    pub metrics: Metrics,
    /// Where it says how far it is.
    pub health: Health,
    /// What fetches of sources may do.
    pub fetch: knoll_storage::FetchSettings,
    /// Where states are copied to.
    pub backup: Option<BackupSettings>,
    pub rules: RuleSettings,
}

/// How the rules of Policies are checked.
#[derive(Clone, Debug, Default)]
pub struct RuleSettings {
    pub evaluator: Evaluator,
    /// The namespace of the operator, whose Secrets have the credentials of packs of rules.
    pub home: String,
}

/// Why the operator stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Lease is another operator's now.
    #[error(transparent)]
    Lease(#[from] lease::Error),
    /// A part of it has ended although nobody told it to.
    #[error("the operator cannot go on: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Runs the controllers until `shutdown`; then what is under way is finished. Who loses the Lease stands by again.
///
/// # Errors
/// When a controller breaks down; the process should start anew.
pub async fn run(client: Client, settings: Settings, shutdown: CancellationToken) -> Result<(), Error> {
    let health = settings.health.clone();
    let result = loop {
        let Some(lease) = &settings.lease else {
            break control(client, settings, shutdown).await;
        };
        health.controllers(Controllers::StandingBy);
        let Some(held) = lease::acquire(&client, lease, &shutdown).await else {
            break Ok(());
        };
        match lead(client.clone(), settings.clone(), held, &shutdown).await {
            Err(Error::Lease(error)) => tracing::warn!(%error, "this process does not lead any more"),
            result => break result,
        }
    };
    health.controllers(Controllers::Stopping);
    result
}

/// Runs the controllers for as long as the Lease is held.
async fn lead(
    client: Client,
    settings: Settings,
    held: lease::Held,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    // The Lease is let go only when the controllers have stopped.
    let stopped = CancellationToken::new();
    let controllers = shutdown.child_token();
    let keep = async {
        let kept = held.keep(stopped.clone()).await;
        controllers.cancel();
        kept
    };
    let work = async {
        let done = control(client, settings, controllers.clone()).await;
        stopped.cancel();
        done
    };
    let (kept, done) = tokio::join!(keep, work);
    kept?;
    done
}

/// The caches, their feeds and the controllers, wired in one place.
async fn control(client: Client, settings: Settings, shutdown: CancellationToken) -> Result<(), Error> {
    let Settings { namespace, platform, lease, metrics, health, fetch, backup, rules } = settings;
    health.controllers(Controllers::Filling);
    let (caches, writers) = Caches::new();
    let (ask, requests) = Triggers::new();
    let (events, recording) = Recorder::start(client.clone(), lease.map(|lease| lease.identity));
    let backups = backup.map(|settings| Arc::new(Backups::new(settings)));
    let parts = ContextParts {
        client,
        platform,
        fetch,
        rules,
        caches,
        ask,
        events,
        metrics: metrics.clone(),
        backups: backups.clone(),
    };
    let context = Arc::new(Context::new(parts));

    // The feeds outlive the controllers, so that the last reconciles see what they wrote.
    let feeding = CancellationToken::new();
    let mut feeds = feeds(&context, writers, namespace.as_ref(), &feeding);
    tokio::select! {
        () = context.caches.ready() => {}
        () = shutdown.cancelled() => {}
    }
    tracing::info!(namespace = namespace.as_deref().unwrap_or("all"), "the controllers start");
    metrics.show(&context.caches, backups.clone());
    health.controllers(Controllers::Working);
    let mut controllers = controllers(context.clone(), requests, &shutdown);
    if let Some(backups) = backups {
        controllers.spawn(backup::until(context.clone(), backups, shutdown.clone()));
    }
    controllers.spawn(sweep::until(context, shutdown.clone()));
    let mut result = Ok(());
    while let Some(ended) = controllers.join_next().await {
        // One that ends early takes the others with it: half an operator is worse than none.
        shutdown.cancel();
        result = result.and(ended.map_err(Error::from));
    }
    metrics.hide();
    feeding.cancel();
    while let Some(ended) = feeds.join_next().await {
        result = result.and(ended.map_err(Error::from));
    }
    let _ = tokio::time::timeout(LAST_EVENTS, recording).await;
    tracing::info!("the controllers have stopped");
    result
}

/// The watches, a row a kind.
fn feeds(
    context: &Arc<Context>,
    writers: Writers,
    namespace: Option<&String>,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut feeds = JoinSet::new();
    let all = watcher::Config::default;
    // No value of an input is fetched before somebody needs it, and content of Knoll's own is no input of a Stack.
    let inputs = all().labels(&format!("{} notin ({})", label::CONTENT, stack::NO_INPUTS.join(",")));
    let of_runs = all().labels(label::RUN);
    let of_states = all().labels(&format!("{}={}", label::CONTENT, content::STATE));
    macro_rules! watch {
        ($($kind:ident: $decoding:ident, $config:expr, $strip:expr, $on_change:expr;)*) => {$(
            let feed = Feed {
                writer: writers.$kind,
                cache: context.caches.$kind.clone(),
                config: $config,
                decoding: Decoding::$decoding,
                strip: $strip,
                on_change: $on_change,
            };
            feeds.spawn(feed.run(context.clone(), namespace.cloned(), stop.clone()));
        )*};
    }
    watch! {
        workspaces: Guarded, all(), |_| {}, on_workspace;
        runs: Guarded, all(), |_| {}, on_run;
        approvals: Guarded, all(), |_| {}, on_approval;
        stacks: Guarded, all(), |_| {}, on_stack;
        atoms: Guarded, all(), |_| {}, atom::on_atom;
        atom_versions: Guarded, all(), |_| {}, atom::on_version;
        pods: Plain, of_runs, |_| {}, on_pod;
        // A state itself has no business in the operator's memory.
        heads: Plain, of_states, |secret| secret.data = None, on_head;
        secrets: Plain, inputs.clone(), strip_metadata, on_secret;
        config_maps: Plain, inputs, strip_metadata, on_config_map;
        policies: Guarded, all(), |_| {}, on_policy;
        namespaces: Plain, all(), policy::only_labels, on_namespace;
    }
    feeds
}

/// The controllers, a row a kind.
fn controllers(context: Arc<Context>, requests: Requests, stop: &CancellationToken) -> JoinSet<()> {
    let mut controllers = JoinSet::new();
    macro_rules! control {
        ($($kind:ident: $reconcile:expr;)*) => {$(
            controllers.spawn(drive(
                context.clone(),
                context.caches.$kind.store().clone(),
                requests.$kind,
                |object, context| boxed($reconcile(object, context)),
                context.metrics.clone(),
                stop.clone(),
            ));
        )*};
    }
    control! {
        workspaces: driver::reconcile::<workspace::Workspaces>;
        runs: driver::reconcile::<run::Runs>;
        approvals: driver::reconcile::<approval::Approvals>;
        stacks: driver::reconcile::<stack::Stacks>;
        atoms: driver::reconcile::<atom::Atoms>;
        atom_versions: driver::reconcile::<atom::AtomVersions>;
        policies: driver::reconcile::<policy::Policies>;
    }
    controllers
}

/// Leaves of an object what tells it from others and says whose it is. There are many of them, and users' labels and
/// annotations can be as large as the object.
fn strip_metadata<K>(object: &mut PartialObjectMeta<K>) {
    let meta = &mut object.metadata;
    for (map, kept) in [(&mut meta.labels, label::STACK), (&mut meta.annotations, annotation::STACK_UID)] {
        let value = map.take().and_then(|mut map| map.remove(kept));
        *map = value.map(|value| [(kept.to_owned(), value)].into());
    }
    (meta.owner_references, meta.finalizers, meta.managed_fields) = (None, None, None);
}

fn on_run(context: &Context, ask: &Triggers, id: &ObjectId, run: &Run) {
    let ObjectId { namespace, name, .. } = id;
    ask.workspace(namespace, &run.spec.workspace);
    ask.run(namespace, name);
    context.started.seen(run);
    // A Stack has the name of its Workspace. The labels of a Run can be changed by users.
    ask.stack(namespace, &run.spec.workspace);
    for approval in context.caches.approvals.index().referrers(Target::Run, namespace, name) {
        ask.approval(namespace, &approval);
    }
    let current = context.caches.runs.get(&reflector::ObjectRef::from_obj(run));
    slots::on_run(context, ask, id, current.as_deref());
    if current.is_none() {
        context.runs.forget(run);
        context.reported.forget(run);
    }
}

fn on_workspace(context: &Context, ask: &Triggers, id: &ObjectId, workspace: &Workspace) {
    let ObjectId { namespace, name, .. } = id;
    ask.workspace(namespace, name);
    ask.stack(namespace, name);
    backup::on_workspace(context, id, workspace);
    let waits = |run: &Run| {
        let phase = run.status.as_ref().map(|status| status.phase).unwrap_or_default();
        matches!(phase, RunPhase::Pending | RunPhase::Queued | RunPhase::Review)
    };
    let runs = context.caches.runs.referring_to(Target::UnfinishedRunsOf, namespace, name);
    for run in runs.iter().filter(|run| waits(run)) {
        ask.run(namespace, &run.name_any());
    }
    if context.caches.workspaces.get(&reflector::ObjectRef::from_obj(workspace)).is_none() {
        context.workspaces.forget(workspace);
    }
}

fn on_pod(context: &Context, ask: &Triggers, id: &ObjectId, pod: &Pod) {
    context.created.seen(pod);
    let labels = pod.labels();
    if let Some(run) = labels.get(label::RUN) {
        ask.run(&id.namespace, run);
    }
    // A run that is gone holds its Workspace until its pod has ended.
    if let Some(workspace) = labels.get(label::WORKSPACE) {
        ask.workspace(&id.namespace, workspace);
    }
}

fn on_head(context: &Context, ask: &Triggers, id: &ObjectId, secret: &Secret) {
    if let Some(workspace) = secret.labels().get(label::WORKSPACE) {
        ask.workspace(&id.namespace, workspace);
        ask.stack(&id.namespace, workspace);
        backup::on_head(context, &id.namespace, workspace);
        let is_held = secret.finalizers().iter().any(|held| held == finalizer::STATE);
        if is_held && secret.metadata.deletion_timestamp.is_some() {
            tokio::spawn(release_state(context.storage.clone(), id.namespace.clone(), workspace.clone()));
        }
    }
}

/// Lets go of a state that somebody deletes if no Stack is responsible for it any more.
async fn release_state(storage: Storage, namespace: String, workspace: String) {
    let stack = Api::<Stack>::namespaced(storage.client().clone(), &namespace).get_metadata_opt(&workspace).await;
    let released = match stack {
        Ok(Some(stack)) if stack.finalizers().iter().any(|held| held == finalizer::STACK) => return,
        Ok(_) => storage.states().release(&namespace, &workspace).await,
        Err(error) => Err(error),
    };
    if let Err(error) = released {
        tracing::warn!(namespace, workspace, %error, "cannot let go of a state; this is tried again at its next change");
    }
}

fn on_stack(context: &Context, ask: &Triggers, id: &ObjectId, stack: &Stack) {
    stack::on_stack(context, ask, id, stack);
    atom::on_stack(context, ask, id);
    backup::on_object(context, id, stack);
}

fn on_policy(context: &Context, ask: &Triggers, id: &ObjectId, policy: &Policy) {
    policy::on_policy(context, ask, id, policy);
    backup::on_object(context, id, policy);
}

fn on_namespace(context: &Context, ask: &Triggers, id: &ObjectId, namespace: &PartialObjectMeta<Namespace>) {
    policy::on_namespace(context, ask, id, namespace);
    backup::on_object(context, id, namespace);
}

fn on_secret(context: &Context, ask: &Triggers, id: &ObjectId, secret: &PartialObjectMeta<Secret>) {
    stack::on_secret(context, ask, id, secret);
    atom::on_input(context, ask, Target::Secret, id);
}

fn on_config_map(context: &Context, ask: &Triggers, id: &ObjectId, _: &PartialObjectMeta<ConfigMap>) {
    policy::on_config_map(context, ask, id);
    stack::on_input(context, ask, Target::ConfigMap, id);
    atom::on_input(context, ask, Target::ConfigMap, id);
}

fn on_approval(context: &Context, ask: &Triggers, id: &ObjectId, approval: &Approval) {
    ask.run(&id.namespace, &approval.spec.run);
    ask.approval(&id.namespace, &id.name);
    if context.caches.approvals.get(&reflector::ObjectRef::from_obj(approval)).is_none() {
        context.approvals.forget(approval);
    }
}
