//! A cluster with Knoll. Creates Runs, waits for them, and counts the requests.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use knoll_api::run::RunPhase;
use knoll_api::workspace::Workspace;
use knoll_api::{Run, run::RunStatus};
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::requests::{Meter, Requests};

const PATIENCE: Duration = Duration::from_secs(180);
/// No more requests follow from a run after this time without any.
const QUIET: Duration = Duration::from_secs(2);

/// The finished Runs, with the time and the status of their end.
type Ends = HashMap<String, (Instant, RunStatus)>;

/// A cluster, and the namespace of the benchmark.
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    meter: Meter,
    count: AtomicU32,
    ends: watch::Receiver<Ends>,
    watching: JoinHandle<()>,
}

impl Cluster {
    /// Connects with a kubeconfig. Requests are counted in the audit log, if there is one.
    pub async fn connect(kubeconfig: &Path, audit: Option<PathBuf>) -> anyhow::Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let namespace = format!("bench-{}", std::process::id());
        let object: Namespace = from(json!({"metadata": {"name": namespace}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &object).await.context("cannot make a namespace")?;
        // Pods need the default service account.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
        let there = await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some());
        tokio::time::timeout(PATIENCE, there).await.context("the namespace has no account")??;
        let (told, ends) = watch::channel(Ends::new());
        let watching = tokio::spawn(note_ends(Api::namespaced(client.clone(), &namespace), told));
        let meter = Meter::new(&client, audit).await?;
        Ok(Self { client, namespace, meter, count: AtomicU32::new(0), ends, watching })
    }

    pub async fn remove(&self) {
        self.watching.abort();
        let all: Api<Namespace> = Api::all(self.client.clone());
        if let Err(error) = all.delete(&self.namespace, &DeleteParams::default()).await {
            eprintln!("the namespace `{}` is left behind: {error}", self.namespace);
        }
    }

    /// Applies the module in a new Workspace. Returns the duration in seconds, and the name of the Run.
    pub async fn once(&self, module: &str) -> anyhow::Result<(f64, String)> {
        let names = self.workspaces(1).await?;
        let took = self.apply(module, &names).await?;
        self.idle(&names).await?;
        Ok((took, names.concat()))
    }

    /// Applies the module in `count` new Workspaces concurrently. Returns the duration and the requests.
    pub async fn crowd(&self, module: &str, count: usize) -> anyhow::Result<(f64, Requests)> {
        let names = self.workspaces(count).await?;
        let before = self.at_rest().await?;
        let took = self.apply(module, &names).await?;
        self.idle(&names).await?;
        let after = self.at_rest().await?;
        self.clear(&names).await?;
        Ok((took, after.since(&before).and_created(&self.meter, count)))
    }

    /// Deletes Runs, and waits until their pods are gone. The kubelet spends time on every container it remembers, and
    /// every measurement should start equally.
    async fn clear(&self, names: &[String]) -> anyhow::Result<()> {
        let runs: Api<Run> = Api::namespaced(self.client.clone(), &self.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = DeleteParams::default();
        try_join_all(names.iter().map(|name| runs.delete(name, &params))).await?;
        let gone = names.iter().map(|name| await_condition(pods.clone(), name, |pod: Option<&Pod>| pod.is_none()));
        tokio::time::timeout(PATIENCE, try_join_all(gone)).await.context("the pods of ended runs stay")??;
        self.at_rest().await.map(drop)
    }

    /// Creates Runs named after their Workspaces. Returns the time until the last one has succeeded.
    async fn apply(&self, module: &str, names: &[String]) -> anyhow::Result<f64> {
        let api: Api<Run> = Api::namespaced(self.client.clone(), &self.namespace);
        let runs = names
            .iter()
            .map(|name| {
                let spec = json!({"workspace": name, "operation": "apply", "source": {"inline": {"main.tf": module}}});
                let mut run: Run = from(json!({"metadata": {"name": name}, "spec": spec}))?;
                // The CLI and the Stacks set the finalizers in the same way.
                run.metadata.finalizers = knoll_core::run::finalizers(&run.spec);
                Ok(run)
            })
            .collect::<anyhow::Result<Vec<Run>>>()?;
        let begun = Instant::now();
        let params = PostParams::default();
        try_join_all(runs.iter().map(|run| api.create(&params, run))).await?;
        let mut ends = self.ends.clone();
        let all = ends.wait_for(|ends| names.iter().all(|name| ends.contains_key(name)));
        let ends = tokio::time::timeout(PATIENCE, all).await.context("the runs do not end")??.clone();
        let mut last = begun;
        for name in names {
            let Some((at, status)) = ends.get(name) else { continue };
            if status.phase != RunPhase::Succeeded {
                bail!("the run `{name}` ended {}: {:?}", status.phase.as_str(), status.conditions);
            }
            last = last.max(*at);
        }
        Ok(last.duration_since(begun).as_secs_f64())
    }

    async fn workspaces(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let api: Api<Workspace> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut names = Vec::new();
        for _ in 0..count {
            let name = format!("b{}", self.count.fetch_add(1, Ordering::Relaxed));
            let mut workspace: Workspace = from(json!({"metadata": {"name": name}, "spec": {}}))?;
            // The CLI and the Stacks set the finalizers in the same way.
            workspace.metadata.finalizers = knoll_core::workspace::finalizers();
            api.create(&PostParams::default(), &workspace).await?;
            names.push(name);
        }
        self.idle(&names).await?;
        Ok(names)
    }

    /// Waits until these Workspaces are idle.
    async fn idle(&self, names: &[String]) -> anyhow::Result<()> {
        let api: Api<Workspace> = Api::namespaced(self.client.clone(), &self.namespace);
        let is_idle = |workspace: Option<&Workspace>| {
            workspace.and_then(|workspace| workspace.status.as_ref()).is_some_and(|status| status.active.is_none())
        };
        let all = try_join_all(names.iter().map(|name| await_condition(api.clone(), name, is_idle)));
        tokio::time::timeout(PATIENCE, all).await.context("the Workspaces do not become idle")??;
        Ok(())
    }

    /// The number of requests, once no more follow.
    async fn at_rest(&self) -> anyhow::Result<Requests> {
        let mut last = self.meter.read().await?;
        let begun = Instant::now();
        loop {
            tokio::time::sleep(QUIET).await;
            let now = self.meter.read().await?;
            if now.knoll == last.knoll || begun.elapsed() > PATIENCE {
                return Ok(now);
            }
            last = now;
        }
    }
}

/// Records when Runs finish, with one watch for all.
async fn note_ends(api: Api<Run>, told: watch::Sender<Ends>) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while let Some(event) = events.next().await {
        let at = Instant::now();
        let Ok(run) = event else { continue };
        let name = run.name_any();
        if let Some(status) = run.status.filter(|status| status.phase.is_finished()) {
            told.send_modify(|ends| {
                ends.entry(name).or_insert((at, status));
            });
        }
    }
}

pub fn from<K: DeserializeOwned>(value: Value) -> anyhow::Result<K> {
    Ok(serde_json::from_value(value)?)
}
