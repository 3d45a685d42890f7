//! A cluster with a node, for one test.
#![allow(clippy::unwrap_used, dead_code, reason = "tests; each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use knoll_embedded::{NODE, Options};
use knoll_kube_node::shim_files::{self as files, Started};
use knoll_kube_node::{Config, Node};
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use kube::runtime::wait::await_condition;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::cluster::TestCluster;

/// Long enough for a busy machine, short enough to notice a hang.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A cluster and its node.
pub struct TestNode {
    node: Mutex<Option<(Arc<Node>, CancellationToken)>>,
    pub cluster: TestCluster,
}

impl TestNode {
    pub fn start() -> Self {
        let cluster = TestCluster::with(Options { place_pods: true, ..Options::default() });
        let test = Self { cluster, node: Mutex::default() };
        test.cluster.block_on(test.up());
        test.cluster.cluster().server.set_runtime(test.node.lock().unwrap().as_ref().unwrap().0.clone());
        test
    }

    /// Runs a scenario, at most until the deadline.
    pub fn run<F: Future<Output = ()>>(scenario: impl FnOnce(Arc<Self>) -> F) {
        let test = Arc::new(Self::start());
        let scenario = scenario(test.clone());
        test.cluster.block_on(async { tokio::time::timeout(DEADLINE, scenario).await.expect("the scenario hangs") });
    }

    pub fn dir(&self) -> PathBuf {
        self.cluster.folder().join("pods")
    }

    /// Starts the node (again).
    pub async fn up(&self) {
        let shutdown = CancellationToken::new();
        let config = Config {
            name: NODE.to_owned(),
            dir: self.dir(),
            path: vec![],
            shim: env!("CARGO_BIN_EXE_knoll-shim").into(),
            shim_args: vec![],
        };
        let node = Node::start(self.cluster.cluster().client(), config, shutdown.clone()).await.unwrap();
        *self.node.lock().unwrap() = Some((node, shutdown));
    }

    /// Stops the node; its containers do not notice.
    pub async fn down(&self) {
        let (node, shutdown) = self.node.lock().unwrap().take().unwrap();
        shutdown.cancel();
        node.stopped().await;
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.cluster.cluster().client())
    }

    /// Creates a pod that runs a script with `sh`, changed by `with`.
    pub async fn create(&self, name: &str, script: &str, with: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "none", "command": ["sh", "-c", script]}],
            },
        });
        with(&mut pod);
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Waits until the pod is as wanted.
    pub async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let there = |pod: Option<&Pod>| pod.is_some_and(&wanted);
        await_condition(self.pods(), name, there).await.unwrap().unwrap()
    }

    /// Waits until the pod is over.
    pub async fn end(&self, name: &str) -> Pod {
        self.until(name, |pod| matches!(phase(pod), "Succeeded" | "Failed")).await
    }

    /// Waits until the pod is gone.
    pub async fn gone(&self, name: &str) {
        await_condition(self.pods(), name, |pod: Option<&Pod>| pod.is_none()).await.unwrap();
    }

    /// Waits until a pod's folder is gone.
    pub async fn folder_gone(&self, pod: &Pod) {
        let folder = self.dir().join(pod.metadata.uid.as_ref().unwrap());
        while folder.exists() {
            tokio::task::yield_now().await;
        }
    }

    pub async fn logs(&self, name: &str) -> String {
        self.pods().logs(name, &kube::api::LogParams::default()).await.unwrap()
    }

    /// The phases of every version of a pod that there was, from its creation on.
    pub async fn history(&self, name: &str, from: &str) -> Vec<String> {
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = self.pods().watch(&params, from).await.unwrap().boxed();
        let mut phases = Vec::new();
        while let Some(event) = events.next().await {
            if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event.unwrap() {
                phases.push(phase(&pod).to_owned());
                if matches!(phase(&pod), "Succeeded" | "Failed") {
                    break;
                }
            }
        }
        phases
    }
}

impl Drop for TestNode {
    /// Containers outlive their node, but not the test.
    fn drop(&mut self) {
        let folders = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        let names = folders(&self.dir()).flat_map(|pod| folders(&pod.join("containers")).collect::<Vec<_>>());
        for instance in names.flat_map(|name| folders(&name).collect::<Vec<_>>()) {
            if let (Ok(Some(started)), false) =
                (files::read::<Started>(&instance, files::STARTED), instance.join(files::EXIT).exists())
            {
                let _ = kill(Pid::from_raw(started.pid), Signal::SIGKILL);
            }
        }
    }
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// How a container of the pod ended.
pub fn terminated(pod: &Pod, container: &str) -> ContainerStateTerminated {
    let status = pod.status.as_ref().unwrap();
    let all = status.container_statuses.iter().chain(status.init_container_statuses.iter()).flatten();
    let found = all.into_iter().find(|status| status.name == container).unwrap();
    found.state.as_ref().unwrap().terminated.clone().unwrap_or_else(|| panic!("{found:?}"))
}

/// Why a container of the pod waits: its reason and its message.
pub fn waiting(pod: &Pod, container: &str) -> Option<(String, String)> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(status.init_container_statuses.iter()).flatten();
    let waiting = all.into_iter().find(|status| status.name == container)?.state.as_ref()?.waiting.clone()?;
    Some((waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default()))
}

/// Waits until a process is gone, or waits only for its parent to take note.
pub async fn process_gone(pid: i32) {
    while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::task::yield_now().await;
    }
}
