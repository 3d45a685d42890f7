//! A cluster with Knoll in it, seen through its API; namespaces of one's own; and the processes of pods, to be killed.
//!
//! It is the cluster that `KNOLL_E2E_KUBECONFIG` names, with Knoll installed, or else an embedded one of the test's own.
//! What only works on an embedded one is in a module `embedded`, which `cargo xtask test` leaves out on the other.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, Secret};
use knoll_api::run::{RunPhase, RunStatus};
use knoll_api::workspace::WorkspaceStatus;
use knoll_api::{Approval, Run, Workspace};
pub use knoll_e2e::processes::{Process, processes};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::{self, watch_object, watcher};
use kube::{Api, Client, Config, Resource};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The timeout of every wait, long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// The namespace of the operator.
const SYSTEM: &str = "knoll-system";

/// A cluster with Knoll.
pub struct World {
    pub folder: TempDir,
    pub client: Client,
    /// An external cluster, instead of an embedded one in `folder`.
    given: Option<PathBuf>,
    /// Distinguishes the namespaces of this test from those of others.
    suffix: String,
    places: Mutex<Vec<String>>,
}

impl World {
    /// The cluster of the environment, or a new embedded one.
    pub async fn start() -> Self {
        let given = std::env::var_os("KNOLL_E2E_KUBECONFIG").map(PathBuf::from);
        let folder = tempfile::tempdir().unwrap();
        if given.is_none() {
            up(&folder);
        }
        World::seen(folder, given).await
    }

    async fn seen(folder: TempDir, given: Option<PathBuf>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = client(&given.clone().unwrap_or_else(|| folder.path().join("data/kubeconfig"))).await;
        let unique = folder.path().file_name().unwrap().to_string_lossy().replace('.', "").to_lowercase();
        let suffix = if given.is_some() { format!("-{unique}") } else { String::new() };
        World { folder, client, given, suffix, places: Mutex::default() }
    }

    /// The cluster of the environment, or a new embedded one that searches this directory for programs first.
    pub async fn with_path(bin: &Path) -> Self {
        let given = std::env::var_os("KNOLL_E2E_KUBECONFIG").map(PathBuf::from);
        let folder = tempfile::tempdir().unwrap();
        if given.is_none() {
            std::os::unix::fs::symlink(bin, folder.path().join("bin")).unwrap();
            up(&folder);
        }
        World::seen(folder, given).await
    }

    /// Whether the cluster is external.
    pub fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// `knoll` with these arguments, on this cluster.
    pub fn command(&self, words: &[&str]) -> Command {
        command(&self.folder, &self.kubeconfig(), words)
    }

    pub fn call(&self, words: &[&str]) -> Output {
        call(&self.folder, &self.kubeconfig(), words)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.given.clone().unwrap_or_else(|| self.folder.path().join("data/kubeconfig"))
    }

    /// Kills all of Knoll except the pods of runs. An embedded cluster is killed as a whole.
    pub async fn kill(&self) {
        if self.given.is_some() {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
            let at_once = DeleteParams::default().grace_period(0);
            drop(pods.delete_collection(&at_once, &ListParams::default()).await.unwrap());
            return;
        }
        let pid = fs::read_to_string(self.folder.path().join("data/knoll.pid")).unwrap();
        kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    }

    /// Starts Knoll again after [`World::kill`].
    pub async fn revive(&mut self) {
        if self.given.is_some() {
            // The Deployment creates a new pod.
            return;
        }
        let free = async {
            // The lock on the directory is released when the kernel has ended the process.
            while self.call(&["status"]).status.success() {
                a_moment().await;
            }
        };
        within("the cluster has ended", free).await;
        up(&self.folder);
        self.client = client(&self.kubeconfig()).await;
    }

    /// Creates a namespace with the Workspace `w`.
    pub async fn place(&self, name: &str) -> Place {
        let name = format!("{name}{}", self.suffix);
        let api: Api<Namespace> = Api::all(self.client.clone());
        let namespace: Namespace = from(json!({"metadata": {"name": name}}));
        api.create(&PostParams::default(), &namespace).await.unwrap();
        self.places.lock().unwrap().push(name.clone());
        let place = Place { client: self.client.clone(), namespace: name };
        place.workspace("w", json!({})).await;
        place
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.given.is_some() {
            let mut kubectl = Command::new("kubectl");
            kubectl.arg("--kubeconfig").arg(self.kubeconfig()).args(["delete", "namespace", "--wait=false"]);
            let _ = kubectl.args(&*self.places.lock().unwrap()).output();
            return;
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("data/knoll.log")).unwrap_or_default();
            let end: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- knoll.log\n{}", end.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        self.call(&["down"]);
    }
}

fn call(folder: &TempDir, kubeconfig: &Path, words: &[&str]) -> Output {
    command(folder, kubeconfig, words).output().unwrap()
}

fn command(folder: &TempDir, kubeconfig: &Path, words: &[&str]) -> Command {
    // The programs of the test come before those of the machine.
    let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_knoll"));
    command
        .args(words)
        .env("KNOLL_DATA_DIR", folder.path().join("data"))
        .env("KUBECONFIG", kubeconfig)
        .env("PATH", path)
        .env_remove("KNOLL_PORT")
        .stdin(Stdio::null());
    command
}

fn up(folder: &TempDir) {
    let kubeconfig = folder.path().join("data/kubeconfig");
    let output = call(folder, &kubeconfig, &["up", "--detach", "--port", "0"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[derive(Clone)]
pub struct Place {
    pub client: Client,
    pub namespace: String,
}

impl Place {
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The same namespace after the cluster was restarted.
    pub fn at(&self, world: &World) -> Place {
        Place { client: world.client.clone(), namespace: self.namespace.clone() }
    }

    pub async fn workspace(&self, name: &str, spec: Value) {
        let workspace: Workspace = from(json!({"metadata": {"name": name}, "spec": spec}));
        self.api().create(&PostParams::default(), &workspace).await.unwrap();
    }

    /// Creates a Run in the Workspace `w`. The fields of `spec` override the defaults.
    pub async fn run(&self, name: &str, spec: Value) -> Run {
        let mut whole = json!({"workspace": "w", "operation": "apply"});
        json_patch_merge(&mut whole, &spec);
        let run: Run = from(json!({"metadata": {"name": name}, "spec": whole}));
        self.api().create(&PostParams::default(), &run).await.unwrap()
    }

    /// Creates a Run that applies this module.
    pub async fn apply(&self, name: &str, module: &str) -> Run {
        self.run(name, inline(module)).await
    }

    /// Waits until the run satisfies the condition.
    pub async fn until(&self, name: &str, what: &str, wanted: impl Fn(&RunStatus) -> bool) -> RunStatus {
        let is = |run: Option<&Run>| run.and_then(|run| run.status.as_ref()).is_some_and(&wanted);
        let waited = tokio::time::timeout(PATIENCE, await_condition(self.api::<Run>(), name, is)).await;
        match waited {
            Ok(run) => run.unwrap().unwrap().status.unwrap(),
            Err(_) => {
                let status = self.api::<Run>().get_opt(name).await.map(|run| json!(run.and_then(|run| run.status)));
                panic!("{}/{name}: {what}, and is {}", self.namespace, status.unwrap_or_default())
            }
        }
    }

    pub async fn ended(&self, name: &str) -> RunStatus {
        self.until(name, "it must end", |status| status.phase.is_finished()).await
    }

    /// Waits for the end of a run, which must succeed.
    pub async fn succeeded(&self, name: &str) -> RunStatus {
        let status = self.ended(name).await;
        assert_eq!(status.phase, RunPhase::Succeeded, "{}/{name}: {:?}", self.namespace, reason(&status));
        status
    }

    pub async fn status(&self, workspace: &str) -> WorkspaceStatus {
        self.api::<Workspace>().get(workspace).await.unwrap().status.unwrap_or_default()
    }

    /// Waits until the Workspace is idle and shows the state.
    pub async fn idle(&self, workspace: &str) -> WorkspaceStatus {
        let is = |found: Option<&Workspace>| {
            found
                .and_then(|found| found.status.as_ref())
                .is_some_and(|status| status.active.is_none() && status.queue.is_empty())
        };
        let waited = tokio::time::timeout(PATIENCE, await_condition(self.api::<Workspace>(), workspace, is)).await;
        waited.expect("the lock must be let go").unwrap().unwrap().status.unwrap()
    }

    /// The addresses of the resources in the state, read with kubectl.
    pub async fn resources(&self, workspace: &str) -> Vec<String> {
        let state =
            knoll_storage::Storage::new(self.client.clone()).states().read(&self.namespace, workspace).await.unwrap();
        let state: Value = state.map(|state| serde_json::from_slice(&state).unwrap()).unwrap_or_default();
        let resources = state["resources"].as_array().cloned().unwrap_or_default();
        resources.iter().map(|resource| format!("{}.{}", resource["type"], resource["name"]).replace('"', "")).collect()
    }

    /// Waits until terraform runs the provisioner of this resource.
    pub async fn provisioning(&self, world: &World, run: &str, resource: &str) {
        let line = format!("terraform_data.{resource}: Provisioning");
        let log = || String::from_utf8(world.call(&["logs", "-n", &self.namespace, run]).stdout).unwrap();
        let begun = async {
            while !log().contains(&line) {
                a_moment().await;
            }
        };
        within(&format!("`{resource}` is being made"), begun).await;
    }

    /// Waits until the state has a resource of this name.
    pub async fn recorded(&self, workspace: &str, name: &str) {
        let recorded = async {
            let secret = knoll_api::names::state_secret(workspace);
            let mut changes = std::pin::pin!(watch_object(self.api::<Secret>(), &secret).default_backoff());
            // Any event means that the state may have changed.
            while changes.next().await.is_some() {
                if self.resources(workspace).await.iter().any(|resource| resource.ends_with(&format!(".{name}"))) {
                    return;
                }
            }
        };
        within(&format!("{name} is in the state"), recorded).await;
    }

    /// Releases a run whose script is in [`WAIT`], wherever its pod is.
    pub async fn release(&self, run: &str) {
        let released = async {
            let pod = self.pod(run).await;
            loop {
                let sleeps: Vec<Process> = processes(&pod).into_iter().filter(Process::is_sleep).collect();
                sleeps.iter().for_each(Process::kill);
                if !sleeps.is_empty() {
                    break;
                }
                a_moment().await;
            }
        };
        within(&format!("{run} waits and is released"), released).await;
    }

    /// Approves the review of a run as the user of the test.
    pub async fn approve(&self, run: &str, digest: &str) {
        let params = PostParams::default();
        let me = Api::all(self.client.clone()).create(&params, &SelfSubjectReview::default()).await.unwrap();
        let by = me.status.and_then(|status| status.user_info?.username).unwrap_or_default();
        let spec = json!({"run": run, "digest": digest, "decision": "Approve", "by": by});
        let approval: Approval = from(json!({"metadata": {"name": format!("{run}-yes")}, "spec": spec}));
        self.api::<Approval>().create(&params, &approval).await.unwrap();
    }

    pub async fn pod(&self, name: &str) -> Pod {
        self.api::<Pod>().get(name).await.unwrap()
    }

    /// Waits for an event of this reason on an object.
    pub async fn told(&self, name: &str, reason: &str) {
        let is = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
        };
        let told = async {
            let events = watcher(self.api::<Event>(), watcher::Config::default()).default_backoff().applied_objects();
            let mut told = std::pin::pin!(events.filter(|event| std::future::ready(event.as_ref().is_ok_and(is))));
            told.next().await
        };
        within(&format!("the event {reason} of {name}"), told).await;
    }
}

/// How often something is repeated: a few times, or as often as a release needs (`cargo xtask test --thorough`).
pub fn often(enough: usize, thorough: usize) -> usize {
    if std::env::var_os("KNOLL_TEST_THOROUGH").is_some() { thorough } else { enough }
}

/// A script that waits until it is [released](Place::release).
pub const WAIT: &str = "sleep 3600 || true";

/// The reason and the message of a run's Ready condition.
pub fn reason(status: &RunStatus) -> (String, String) {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map(|ready| (ready.reason.clone(), ready.message.clone())).unwrap_or_default()
}

pub fn inline(module: &str) -> Value {
    json!({"source": {"inline": {"main.tf": module}}})
}

/// `spec` with this module.
pub fn with_module(module: &str, spec: Value) -> Value {
    let mut whole = inline(module);
    json_patch_merge(&mut whole, &spec);
    whole
}

fn json_patch_merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_patch_merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The pause between two polls of something without events.
pub async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

pub async fn within<T: Debug>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not in time"),
    }
}
