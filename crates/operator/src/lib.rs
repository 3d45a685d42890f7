//! The controllers of Knoll, one file a kind: each observes, asks `knoll-core`, acts and publishes.
//!
//! *Guarantees.* Each kind is watched once. A status is written only over the object that it was decided on. What
//! creates or deletes can be repeated. A controller that is stopped after any request goes on from there.

mod approval;
mod atom;
pub mod client;
mod context;
mod controller;
mod driver;
mod events;
pub mod health;
pub mod lease;
pub mod metrics;
mod run;
mod stack;
mod watch;
mod workspace;

use std::{sync::Arc, time::Duration};

use futures::channel::mpsc;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Pod, Secret},
};
use knoll_api::{
    Approval, Atom, AtomVersion, Run, Stack, Workspace,
    names::{annotation, content, label},
    run::RunPhase,
};
use knoll_core::pod::Platform;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::PartialObjectMeta,
    runtime::{reflector, watcher},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    context::{Caches, Context, Created, Started, Told},
    controller::{Written, boxed, drive},
    events::Recorder,
    health::{Controllers, Health},
    metrics::Metrics,
    stack::{Memory, Sources},
    watch::{Triggers, feed},
};

/// How long events that wait to be told may hold up the end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How the operator works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace it works in; all of them when `None`.
    pub namespace: Option<String>,
    /// What every pod of a run is given.
    pub platform: Platform,
    /// The Lease it holds while it works; without one it must be the only operator.
    pub lease: Option<lease::Settings>,
    /// Where it counts.
    pub metrics: Metrics,
    /// Where it says how far it is.
    pub health: Health,
    /// What fetches of sources may do.
    pub fetch: knoll_storage::FetchSettings,
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
    let Settings { namespace, platform, lease, metrics, health, fetch } = settings;
    health.controllers(Controllers::Filling);
    let (run_store, run_writer) = reflector::store();
    let (workspace_store, workspace_writer) = reflector::store();
    let (approval_store, approval_writer) = reflector::store();
    let (pod_store, pod_writer) = reflector::store();
    let (head_store, head_writer) = reflector::store();
    let (stack_store, stack_writer) = reflector::store();
    let (secret_store, secret_writer) = reflector::store();
    let (config_map_store, config_map_writer) = reflector::store();
    let (atom_store, atom_writer) = reflector::store();
    let (atom_version_store, atom_version_writer) = reflector::store();
    let (runs, runs_asked) = mpsc::unbounded();
    let (workspaces, workspaces_asked) = mpsc::unbounded();
    let (approvals, approvals_asked) = mpsc::unbounded();
    let (stacks, stacks_asked) = mpsc::unbounded();
    let (atoms, atoms_asked) = mpsc::unbounded();
    let (atom_versions, atom_versions_asked) = mpsc::unbounded();
    let watches = atom::Watches::new(atoms.clone());
    let ask = Triggers { workspaces, runs, approvals, stacks, atoms, atom_versions };
    let (recorder, telling) = Recorder::start(client.clone(), lease.map(|lease| lease.identity));
    let context = Arc::new(Context {
        client: client.clone(),
        platform,
        caches: Caches {
            workspaces: workspace_store,
            runs: run_store,
            approvals: approval_store,
            pods: pod_store,
            heads: head_store,
            stacks: stack_store,
            secrets: secret_store,
            config_maps: config_map_store,
            atoms: atom_store,
            atom_versions: atom_version_store,
        },
        runs: Written::default(),
        workspaces: Written::default(),
        approvals: Written::default(),
        stacks: Written::default(),
        atoms: Written::default(),
        atom_versions: Written::default(),
        revisions: atom::RevisionCache::default(),
        kinds: atom::Kinds::default(),
        watches,
        started: Started::default(),
        memory: Memory::default(),
        sources: Sources::new(knoll_storage::Sources::new(client.clone(), fetch)),
        ask: ask.clone(),
        created: Created::default(),
        told: Told::default(),
        events: recorder,
        metrics: metrics.clone(),
    });

    // The feeds outlive the controllers, so that the last reconciles see what they wrote.
    let feeding = CancellationToken::new();
    let mut feeds = JoinSet::new();
    let all = watcher::Config::default();
    let of_runs = all.clone().labels(label::RUN);
    let of_states = all.clone().labels(&format!("{}={}", label::CONTENT, content::STATE));
    let (seen, asked) = (context.clone(), ask.clone());
    let on_run = move |run: &Run| on_run(&seen, &asked, run);
    feeds.spawn(feed(api(&client, &namespace), all.clone(), run_writer, |_| {}, on_run, feeding.clone()));
    let (seen, asked) = (context.clone(), ask.clone());
    let on_workspace = move |workspace: &Workspace| on_workspace(&seen, &asked, workspace);
    feeds.spawn(feed(api(&client, &namespace), all.clone(), workspace_writer, |_| {}, on_workspace, feeding.clone()));
    let (seen, asked) = (context.clone(), ask.clone());
    let on_pod = move |pod: &Pod| on_pod(&seen, &asked, pod);
    feeds.spawn(feed(api(&client, &namespace), of_runs, pod_writer, |_| {}, on_pod, feeding.clone()));
    let asked = ask.clone();
    let on_head = move |secret: &Secret| on_head(&asked, secret);
    // A state itself has no business in the operator's memory.
    let empty = |secret: &mut Secret| secret.data = None;
    feeds.spawn(feed(api(&client, &namespace), of_states, head_writer, empty, on_head, feeding.clone()));
    let (seen, asked) = (context.clone(), ask.clone());
    let on_stack = move |stack: &Stack| {
        stack::on_stack(&seen, &asked, stack);
        atom::on_stack(&seen, &asked, stack);
    };
    feeds.spawn(feed(api(&client, &namespace), all.clone(), stack_writer, |_| {}, on_stack, feeding.clone()));
    // Only that something has changed is watched, no value is fetched before somebody needs it; and what Knoll fills
    // with content of its own is no input of a Stack.
    let inputs = all.clone().labels(&format!("{} notin ({})", label::CONTENT, stack::NO_INPUTS.join(",")));
    let (seen, asked) = (context.clone(), ask.clone());
    let on_secret = move |secret: &PartialObjectMeta<Secret>| {
        stack::on_secret(&seen, &asked, secret);
        atom::on_secret(&seen, &asked, secret);
    };
    feeds.spawn(feed(api(&client, &namespace), inputs.clone(), secret_writer, bare, on_secret, feeding.clone()));
    let (seen, asked) = (context.clone(), ask.clone());
    let on_map = move |map: &PartialObjectMeta<ConfigMap>| {
        stack::on_config_map(&seen, &asked, map);
        atom::on_config_map(&seen, &asked, map);
    };
    feeds.spawn(feed(api(&client, &namespace), inputs, config_map_writer, bare, on_map, feeding.clone()));
    let (seen, asked) = (context.clone(), ask.clone());
    let on_atom = move |atom: &Atom| atom::on_atom(&seen, &asked, atom);
    feeds.spawn(feed(api(&client, &namespace), all.clone(), atom_writer, |_| {}, on_atom, feeding.clone()));
    let (seen, asked) = (context.clone(), ask.clone());
    let on_version = move |version: &AtomVersion| atom::on_version(&seen, &asked, version);
    feeds.spawn(feed(api(&client, &namespace), all.clone(), atom_version_writer, |_| {}, on_version, feeding.clone()));
    let (seen, asked) = (context.clone(), ask);
    let on_approval = move |approval: &Approval| on_approval(&seen, &asked, approval);
    feeds.spawn(feed(api(&client, &namespace), all, approval_writer, |_| {}, on_approval, feeding.clone()));

    tokio::select! {
        () = ready(&context.caches) => {}
        () = shutdown.cancelled() => {}
    }
    tracing::info!(namespace = namespace.as_deref().unwrap_or("all"), "the controllers start");
    metrics.show(&context.caches);
    health.controllers(Controllers::Working);
    let caches = context.caches.clone();
    let mut controllers = JoinSet::new();
    let stop = shutdown.clone();
    controllers.spawn(drive(
        context.clone(),
        caches.workspaces,
        workspaces_asked,
        |workspace, context| boxed(driver::reconcile::<workspace::Workspaces>(workspace, context)),
        metrics.clone(),
        stop.clone(),
    ));
    controllers.spawn(drive(
        context.clone(),
        caches.runs,
        runs_asked,
        |run, context| boxed(run::reconcile(run, context)),
        metrics.clone(),
        stop.clone(),
    ));
    controllers.spawn(drive(
        context.clone(),
        caches.stacks,
        stacks_asked,
        |stack, context| boxed(stack::reconcile(stack, context)),
        metrics.clone(),
        stop.clone(),
    ));
    controllers.spawn(drive(
        context.clone(),
        caches.atoms,
        atoms_asked,
        |atom, context| boxed(driver::reconcile::<atom::Atoms>(atom, context)),
        metrics.clone(),
        stop.clone(),
    ));
    controllers.spawn(drive(
        context.clone(),
        caches.atom_versions,
        atom_versions_asked,
        |version, context| boxed(driver::reconcile::<atom::AtomVersions>(version, context)),
        metrics.clone(),
        stop.clone(),
    ));
    controllers.spawn(drive(
        context,
        caches.approvals,
        approvals_asked,
        |approval, context| boxed(driver::reconcile::<approval::Approvals>(approval, context)),
        metrics.clone(),
        stop,
    ));
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
    let _ = tokio::time::timeout(LAST_WORDS, telling).await;
    tracing::info!("the controllers have stopped");
    result
}

/// Leaves of an object what tells it from others and says whose it is. There are many of them, and users' labels and
/// annotations can be as large as the object.
fn bare<K>(object: &mut PartialObjectMeta<K>) {
    let meta = &mut object.metadata;
    for (map, kept) in [(&mut meta.labels, label::STACK), (&mut meta.annotations, annotation::STACK_UID)] {
        let value = map.take().and_then(|mut map| map.remove(kept));
        *map = value.map(|value| [(kept.to_owned(), value)].into());
    }
    (meta.owner_references, meta.finalizers, meta.managed_fields) = (None, None, None);
}

/// The objects of a kind that the operator is responsible for.
fn api<K>(client: &Client, namespace: &Option<String>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Returns when every cache has its first list: a decision on half of the facts would be a wrong one.
async fn ready(caches: &Caches) {
    let Caches { workspaces, runs, approvals, pods, heads, stacks, secrets, config_maps, atoms, atom_versions } =
        caches;
    // Each fails only when its feed has ended, and then the operator ends as well.
    let _ = tokio::join!(
        workspaces.wait_until_ready(),
        runs.wait_until_ready(),
        approvals.wait_until_ready(),
        pods.wait_until_ready(),
        heads.wait_until_ready(),
        stacks.wait_until_ready(),
        secrets.wait_until_ready(),
        config_maps.wait_until_ready(),
        atoms.wait_until_ready(),
        atom_versions.wait_until_ready(),
    );
}

fn on_run(context: &Context, ask: &Triggers, run: &Run) {
    let (namespace, name) = (run.namespace().unwrap_or_default(), run.name_any());
    ask.workspace(&namespace, &run.spec.workspace);
    ask.run(&namespace, &name);
    context.started.seen(run);
    if let Some(stack) = run.labels().get(label::STACK) {
        ask.stack(&namespace, stack);
    }
    let about_it = |approval: &Approval| approval.spec.run == name && approval.namespace().as_ref() == Some(&namespace);
    for approval in context.caches.approvals.state_filter(about_it) {
        ask.approval(&namespace, &approval.name_any());
    }
    if context.caches.runs.get(&reflector::ObjectRef::from_obj(run)).is_none() {
        context.runs.forget(run);
        context.told.forget(run);
    }
}

fn on_workspace(context: &Context, ask: &Triggers, workspace: &Workspace) {
    let (namespace, name) = (workspace.namespace().unwrap_or_default(), workspace.name_any());
    ask.workspace(&namespace, &name);
    ask.stack(&namespace, &name);
    let waits = |run: &Run| {
        let phase = run.status.as_ref().map(|status| status.phase).unwrap_or_default();
        matches!(phase, RunPhase::Pending | RunPhase::Queued)
    };
    let concerned =
        |run: &Run| run.spec.workspace == name && waits(run) && run.namespace().as_ref() == Some(&namespace);
    for run in context.caches.runs.state_filter(concerned) {
        ask.run(&namespace, &run.name_any());
    }
    if context.caches.workspaces.get(&reflector::ObjectRef::from_obj(workspace)).is_none() {
        context.workspaces.forget(workspace);
    }
}

fn on_pod(context: &Context, ask: &Triggers, pod: &Pod) {
    context.created.seen(pod);
    let namespace = pod.namespace().unwrap_or_default();
    let labels = pod.labels();
    if let Some(run) = labels.get(label::RUN) {
        ask.run(&namespace, run);
    }
    // A run that is gone holds its Workspace until its pod has ended.
    if let Some(workspace) = labels.get(label::WORKSPACE) {
        ask.workspace(&namespace, workspace);
    }
}

fn on_head(ask: &Triggers, secret: &Secret) {
    if let Some(workspace) = secret.labels().get(label::WORKSPACE) {
        let namespace = secret.namespace().unwrap_or_default();
        ask.workspace(&namespace, workspace);
        ask.stack(&namespace, workspace);
    }
}

fn on_approval(context: &Context, ask: &Triggers, approval: &Approval) {
    let namespace = approval.namespace().unwrap_or_default();
    ask.run(&namespace, &approval.spec.run);
    ask.approval(&namespace, &approval.name_any());
    if context.caches.approvals.get(&reflector::ObjectRef::from_obj(approval)).is_none() {
        context.approvals.forget(approval);
    }
}
