//! An embedded cluster with the operator in it. The test plays the kubelet's part and the hub's.
#![allow(clippy::unwrap_used, dead_code, reason = "tests; each test file uses a part of it")]

pub mod atoms;

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Method, Request};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Pod, Secret},
        rbac::v1::RoleBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use knoll_api::{
    Approval, Digest, Run, Workspace,
    approval::{ApprovalSpec, Decision},
    names::{content, label},
    run::{Operation, PlanSummary, RunPhase, RunSpec},
    source::Source,
    wire::{Exit, Progress},
    workspace::WorkspaceSpec,
};
use knoll_core::pod::{Platform, Runner, ToolImage};
use knoll_embedded::Cluster;
use knoll_operator::{BackupSettings, Settings, metrics::Metrics};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
    runtime::wait::{await_condition, conditions},
};
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// Long enough for a busy machine, short enough to notice a hang.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Made once: it takes long.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(knoll_api::crds);

/// A namespace of a cluster in memory with Knoll's kinds in it.
pub struct World {
    pub client: Client,
    cluster: Arc<Cluster>,
}

/// An operator that works in a [`World`].
pub struct Operator {
    stop: CancellationToken,
    /// It ends with the value, as a process does.
    task: AbortOnDropHandle<Result<(), knoll_operator::Error>>,
}

impl World {
    pub async fn start() -> Self {
        let cluster = Cluster::memory().await.unwrap();
        let client = cluster.client();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in &*CRDS {
            crds.create(&PostParams::default(), crd).await.unwrap();
            let name = crd.name_any();
            let established = await_condition(crds.clone(), &name, conditions::is_crd_established());
            tokio::time::timeout(DEADLINE, established).await.unwrap().unwrap();
        }
        let world = Self { client, cluster: Arc::new(cluster) };
        world.grant("default", "cluster-admin").await;
        world
    }

    /// A namespace beside, in the same cluster. Its service accounts have no rights.
    pub async fn beside(&self, name: &str) -> Self {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        Self { client: self.cluster.server.client(name), cluster: self.cluster.clone() }
    }

    /// Grants a service account the rights of a role in the namespace.
    pub async fn grant(&self, account: &str, role: &str) {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": format!("{account}-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": self.client.default_namespace()}],
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &binding).await.unwrap();
    }

    pub fn operator(&self) -> Operator {
        Operator::start(self.client.clone())
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn workspace(&self, name: &str) -> Workspace {
        let workspace = Workspace::new(name, WorkspaceSpec::default());
        self.api().create(&PostParams::default(), &workspace).await.unwrap()
    }

    pub async fn run(&self, name: &str, spec: RunSpec) -> Run {
        let run = Run::new(name, spec);
        self.api().create(&PostParams::default(), &run).await.unwrap()
    }

    /// Waits until a run is as it should be, and shows how it was when it never is.
    pub async fn run_until(&self, name: &str, what: &str, is_so: impl Fn(&Run) -> bool + Send) -> Run {
        let api: Api<Run> = self.api();
        let wanted = |run: Option<&Run>| run.is_some_and(&is_so);
        match tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, wanted)).await {
            Ok(run) => run.unwrap().unwrap(),
            Err(_) => panic!("`{name}` never {what}: {:#?}", api.get_opt(name).await.unwrap().map(|run| run.status)),
        }
    }

    pub async fn phase(&self, name: &str, phase: RunPhase) -> Run {
        self.run_until(name, phase.as_str(), |run| run.status.as_ref().is_some_and(|status| status.phase == phase))
            .await
    }

    pub async fn workspace_until(&self, name: &str, is_so: impl Fn(&Workspace) -> bool + Send) -> Workspace {
        let api: Api<Workspace> = self.api();
        let wanted = |workspace: Option<&Workspace>| workspace.is_some_and(&is_so);
        match tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, wanted)).await {
            Ok(workspace) => workspace.unwrap().unwrap(),
            Err(_) => panic!("`{name}`: {:#?}", api.get_opt(name).await.unwrap().map(|workspace| workspace.status)),
        }
    }

    pub async fn pods(&self) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default()).await.unwrap().items
    }

    /// The Secrets of frozen jobs: the jobs and their copies.
    pub async fn frozen(&self) -> Vec<Secret> {
        let jobs = format!("{}={}", label::CONTENT, content::JOB);
        self.api().list(&ListParams::default().labels(&jobs)).await.unwrap().items
    }

    /// What the hub does when a runner reports.
    pub async fn report(&self, name: &str, progress: &Progress) -> Run {
        let api: Api<Run> = self.api();
        loop {
            let run = api.get(name).await.unwrap();
            let status = knoll_core::progress::merge(&run, progress, Timestamp::now());
            let version = run.resource_version();
            let patch = knoll_core::patch::status(version.as_deref(), run.status.as_ref(), &status).unwrap();
            let Some(patch) = patch else { return run };
            match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(run) => return run,
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What a kubelet writes about a pod.
    pub async fn pod_status(&self, name: &str, status: serde_json::Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

impl Operator {
    pub fn start(client: Client) -> Self {
        Self::with(client, None)
    }

    /// One that works in the namespace of its client only, so that several can work in one cluster.
    pub fn within(client: Client) -> Self {
        let namespace = client.default_namespace().to_owned();
        Self::new(client, None, Some(namespace))
    }

    pub fn with(client: Client, lease: Option<knoll_operator::lease::LeaseSettings>) -> Self {
        Self::new(client, lease, None)
    }

    /// One that copies states to this target.
    pub fn backing_up(client: Client, backup: BackupSettings, metrics: Metrics) -> Self {
        Self::measured(client, None, None, Some(backup), metrics)
    }

    fn new(client: Client, lease: Option<knoll_operator::lease::LeaseSettings>, namespace: Option<String>) -> Self {
        Self::measured(client, lease, namespace, None, Metrics::default())
    }

    fn measured(
        client: Client,
        lease: Option<knoll_operator::lease::LeaseSettings>,
        namespace: Option<String>,
        backup: Option<BackupSettings>,
        metrics: Metrics,
    ) -> Self {
        let stop = CancellationToken::new();
        let image = |repository: &str| ToolImage { repository: repository.to_owned(), version: "1".to_owned() };
        let settings = Settings {
            fetch: knoll_storage::FetchSettings {
                local: true,
                // The git servers of tests.
                addresses: knoll_storage::Addresses::new(&[knoll_storage::parse_range("127.0.0.1").unwrap()]),
                ..Default::default()
            },
            namespace,
            platform: Platform {
                knoll_image: "knoll".to_owned(),
                runner: Runner::Container("knoll"),
                terraform: image("terraform"),
                tofu: image("tofu"),
                hub_url: "https://hub".to_owned(),
                hub_ca: String::new(),
                plugin_cache: None,
                pulls_images: true,
            },
            lease,
            metrics,
            backup,
            rules: knoll_operator::RuleSettings::default(),
            health: knoll_operator::health::Health::default(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(knoll_operator::run(client, settings, stop.clone())));
        Self { stop, task }
    }

    /// Stops it as a shutdown does.
    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap().unwrap();
    }

    /// Stops it as `kill -9` does.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

pub fn apply(workspace: &str) -> RunSpec {
    let files = [("main.tf".to_owned(), String::new())].into();
    RunSpec {
        workspace: workspace.to_owned(),
        operation: Operation::Apply,
        source: Some(Source::inline(files)),
        ..RunSpec::default()
    }
}

pub fn ends(code: i32) -> Progress {
    Progress { sequence: 2, exit: Some(Exit { code, ..Exit::default() }), ..Progress::default() }
}

/// A digest as the API takes it.
pub fn digest(digit: char) -> String {
    format!("sha256:{}", String::from(digit).repeat(64))
}

/// A plan that waits for a decision on `digest`, and the end of the pod that made it.
pub fn plans(digest: String) -> Progress {
    let text_digest = Some(Digest::of("text").to_string());
    let plan = PlanSummary { digest: Some(digest), text_digest, changes: true, add: 1, ..PlanSummary::default() };
    Progress { plan: Some(plan), bundle: Some(Digest::of("files")), ..ends(0) }
}

/// The digest that a run waits for a decision on.
pub fn waits_for(run: &Run) -> String {
    run.status.as_ref().and_then(|status| status.review_digest.clone()).unwrap_or_default()
}

/// A decision to apply `digest`.
pub fn approval(name: &str, run: &str, digest: String) -> Approval {
    let (run, by) = (run.to_owned(), "alice".to_owned());
    Approval::new(name, ApprovalSpec { run, digest, decision: Decision::Approve, by, ..ApprovalSpec::default() })
}

/// A client whose process dies with the answer to its write number `last`: the write is done, the answer is lost.
///
/// Events are not counted: they are told beside the way. Neither are dry runs: they write nothing.
pub fn dies_after(client: Client, last: usize, died: CancellationToken) -> Client {
    let (count, namespace) = (Arc::new(AtomicUsize::new(0)), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, died, count) = (client.clone(), died.clone(), count.clone());
        async move {
            let dry = request.uri().query().is_some_and(|query| query.contains("dryRun"));
            let counts = request.method() != Method::GET && !dry && !request.uri().path().contains("/events");
            let number = if counts { count.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
            if number > last {
                std::future::pending::<()>().await;
            }
            let answer = client.send(request).await;
            if number == last {
                died.cancel();
                std::future::pending::<()>().await;
            }
            answer
        }
    });
    Client::new(service, namespace)
}
