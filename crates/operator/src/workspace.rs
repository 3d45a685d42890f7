//! The controller of Workspaces: it alone says which run holds the lock, and shows what the state holds.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use knoll_api::{Run, Workspace, names::label};
use knoll_core::{
    fate::{self, Fate},
    workspace::{self, Head, Observed},
};
use kube::{ResourceExt, api::ListParams, runtime::controller::Action};

use crate::{
    context::Context,
    controller::{Error, Published},
};

/// How soon to look again when a cache is behind; its watch usually comes first.
const BEHIND: Duration = Duration::from_secs(1);

/// Brings one Workspace a step further.
pub async fn reconcile(workspace: Arc<Workspace>, context: Arc<Context>) -> Result<Action, Error> {
    if context.workspaces.is_stale(&workspace) {
        return Ok(Action::await_change());
    }
    let Some(seen) = observe(&context, &workspace).await? else {
        return Ok(Action::requeue(BEHIND));
    };
    let runs: Vec<&Run> = seen.runs.iter().map(AsRef::as_ref).collect();
    let observed =
        Observed { workspace: &workspace, runs: &runs, lingering: &seen.lingering, head: seen.head.as_ref() };
    let status = workspace::decide(&observed, context.now());

    let api = context.api::<Workspace>(&workspace.namespace().unwrap_or_default());
    match context.workspaces.publish(&api, &workspace, workspace.status.as_ref(), &status).await? {
        Published::Overtaken => Ok(Action::requeue(BEHIND)),
        Published::Written | Published::Unchanged if !seen.lingering.is_empty() => Ok(Action::requeue(BEHIND)),
        Published::Written | Published::Unchanged => Ok(Action::await_change()),
    }
}

/// What was read for one decision.
struct Seen {
    runs: Vec<Arc<Run>>,
    lingering: BTreeSet<String>,
    head: Option<Head>,
}

/// Reads what the decision needs; `None` when the cache of runs is behind the Workspace.
async fn observe(context: &Context, workspace: &Workspace) -> Result<Option<Seen>, Error> {
    let (namespace, name) = (workspace.namespace().unwrap_or_default(), workspace.name_any());
    let runs = context
        .caches
        .runs
        .state_filter(|run| run.spec.workspace == name && run.metadata.namespace.as_deref() == Some(&namespace));
    let head = context.caches.state(&namespace, &name);
    let mut lingering = BTreeSet::new();
    let cached: Vec<&Run> = runs.iter().map(AsRef::as_ref).collect();
    if let Some(active) = workspace::is_missing(workspace, &cached) {
        // The lock changes hands on this: the cache's word is not enough for it.
        let run = context.api::<Run>(&namespace).get_opt(&active).await;
        if run.map_err(Error::api("cannot read the active run"))?.is_some() {
            return Ok(None);
        }
        if has_live_pod(context, &namespace, &active).await? {
            lingering.insert(active);
        }
    }
    Ok(Some(Seen { runs, lingering, head }))
}

/// Whether a pod of a run that is gone may still be at work.
async fn has_live_pod(context: &Context, namespace: &str, run: &str) -> Result<bool, Error> {
    let params = ListParams::default().labels(&format!("{}={run}", label::RUN));
    let pods =
        context.api::<Pod>(namespace).list(&params).await.map_err(Error::api("cannot list the pods of a run"))?;
    let now = context.now();
    Ok(pods.iter().any(|pod| !matches!(fate::of(pod, now), Fate::Ended(_))))
}
