//! The controller of Workspaces: the only writer of a Workspace's lock and queue. It also shows what the state holds.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::{
    Run, Stack, Workspace, WorkspaceStatus,
    names::{finalizer, label},
};
use knoll_core::{
    backup::StateBackup,
    identity::Subject,
    machine::{Decision, Settled},
    pod,
    pod_outcome::{self, PodOutcome},
    policy::Effective,
    workspace::{self, Head, WorkspaceAction, WorkspaceFacts, retention},
};
use kube::api::{DeleteParams, ListParams, Preconditions};

use crate::{
    context::Context,
    controller::{Error, Written, code},
    driver::{Effect, Observation, Reconciler, set_finalizer},
    index::Target,
    policy,
};

pub struct Workspaces;

/// The facts of one decision.
pub struct SeenWorkspace {
    workspace: Subject<Workspace>,
    runs: Vec<Arc<Run>>,
    lingering: BTreeSet<String>,
    head: Option<Head>,
    stack: Option<Arc<Stack>>,
    policy: Effective,
    image: String,
    backup: Option<StateBackup>,
}

impl SeenWorkspace {
    fn with_facts<T>(&self, then: impl FnOnce(&WorkspaceFacts<'_>) -> T) -> T {
        let Self { workspace, runs, lingering, head, stack, policy, image, backup } = self;
        let runs: Vec<&Run> = runs.iter().map(AsRef::as_ref).collect();
        then(&WorkspaceFacts {
            workspace,
            runs: &runs,
            lingering,
            head: head.as_ref(),
            stack: stack.as_deref(),
            policy,
            image,
            backup: backup.as_ref(),
        })
    }
}

impl Reconciler for Workspaces {
    type Object = Workspace;
    type Seen = SeenWorkspace;
    type Action = WorkspaceAction;
    type Outcome = Infallible;

    fn written(context: &Context) -> &Written<Workspace> {
        &context.workspaces
    }

    /// The cache of Runs is behind if it misses the active Run and the API still has it.
    async fn observe(
        context: &Arc<Context>,
        workspace: &Subject<Workspace>,
    ) -> Result<Observation<SeenWorkspace>, Error> {
        let (namespace, name) = (workspace.namespace(), workspace.name());
        let runs = context.caches.runs.referring_to(Target::Workspace, namespace, name);
        let head = context.caches.state(namespace, name);
        let mut lingering = BTreeSet::new();
        let cached: Vec<&Run> = runs.iter().map(AsRef::as_ref).collect();
        if let Some(active) = workspace::is_missing(workspace, &cached) {
            // The lock changes hands on this: the cache's word is not enough for it.
            let run = context.api::<Run>(namespace).get_opt(&active).await;
            if run.map_err(Error::api("cannot read the active run"))?.is_some() {
                return Ok(Observation::Behind);
            }
            if has_live_pod(context, namespace, &active).await? {
                lingering.insert(active);
            }
        }
        let stack = context.caches.stacks.named(namespace, name);
        let policy = policy::demands_on(context, namespace, Some(workspace), stack.as_deref()).await?;
        let backup = context.backups.as_ref().map(|backups| backups.state(namespace, name));
        let image = pod::image(&workspace.spec, &context.platform);
        let workspace = workspace.clone();
        Ok(Observation::Complete(SeenWorkspace { workspace, runs, lingering, head, stack, policy, image, backup }))
    }

    fn decide(seen: &SeenWorkspace, now: Timestamp) -> Decision<WorkspaceStatus, WorkspaceAction> {
        seen.with_facts(|facts| workspace::decide(facts, now))
    }

    async fn act(
        context: &Arc<Context>,
        seen: &SeenWorkspace,
        action: WorkspaceAction,
    ) -> Result<Effect<Infallible>, Error> {
        let held = match action {
            WorkspaceAction::AddFinalizer => true,
            WorkspaceAction::RemoveFinalizer => false,
        };
        set_finalizer::<Self>(context, &seen.workspace, finalizer::WORKSPACE, held).await
    }

    fn settle(_: &SeenWorkspace, outcome: Infallible, _: Timestamp) -> Settled<WorkspaceStatus> {
        match outcome {}
    }

    /// Deletes the finished Runs that are not kept any longer. Their logs, plans and pods are owned by them. Each deletion
    /// asks for another reconcile, so that the rest follows.
    async fn at_rest(context: &Arc<Context>, seen: &SeenWorkspace) -> Result<(), Error> {
        let expired = seen.with_facts(|facts| retention::expired(facts, context.now()));
        let api = context.api::<Run>(seen.workspace.namespace());
        for run in expired.runs {
            let preconditions = Preconditions { uid: run.uid, resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            match api.delete(&run.name, &params).await {
                Err(error) if matches!(code(&error), Some(404 | 409)) => {}
                result => result.map(drop).map_err(Error::api("cannot delete a run that is not kept any longer"))?,
            }
        }
        Ok(())
    }
}

/// Whether a pod of a Run that is gone may still be at work.
async fn has_live_pod(context: &Context, namespace: &str, run: &str) -> Result<bool, Error> {
    let params = ListParams::default().labels(&format!("{}={run}", label::RUN));
    let pods =
        context.api::<Pod>(namespace).list(&params).await.map_err(Error::api("cannot list the pods of a run"))?;
    let now = context.now();
    Ok(pods.iter().any(|pod| !matches!(pod_outcome::of(pod, now), PodOutcome::Ended(_))))
}
