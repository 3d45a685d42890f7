//! A user at a machine: a cluster, a folder with a module, and a terminal.
//!
//! The cluster is the one that `KNOLL_E2E_KUBECONFIG` names, where the user has a namespace of their own, or else an
//! embedded one in the user's home. What only works on an embedded one is in a module `embedded`, which
//! `cargo xtask test` leaves out on the other.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt;
use knoll_api::Run;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

pub mod proxy;
pub mod recording;
pub mod snapshot;
pub mod terminal;

/// The timeout of every wait, long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A module with one resource, whose output is its input.
pub const MODULE: &str = "variable \"word\" { default = \"hello\" }\nresource \"terraform_data\" \"a\" { input = var.word }\noutput \"word\" { value = terraform_data.a.output }\n";

/// A home directory, and the cluster that its commands use.
pub struct Home {
    pub folder: TempDir,
    cluster: Cluster,
}

enum Cluster {
    None,
    /// An embedded cluster in this home.
    Embedded,
    /// An external cluster, with a namespace for this test.
    Given(String),
}

impl Home {
    /// A home with only a module.
    pub fn empty() -> Self {
        let home = Home { folder: tempfile::tempdir().unwrap(), cluster: Cluster::None };
        std::fs::create_dir_all(home.module()).unwrap();
        home.write("main.tf", MODULE);
        home
    }

    /// A home with a cluster and the selected workspace `net`.
    pub fn with_workspace() -> Self {
        let mut home = Home::empty();
        home.start();
        home
    }

    /// A cluster in which terraform is a script: `script`, when it is called with the subcommand `command`.
    pub fn with_tool(command: &str, script: &str) -> Self {
        let home = Home::with_workspace();
        let text = format!(
            "#!/bin/sh\nif test \"$1\" = {command}; then\n{script}\nfi\nPATH=${{PATH#*:}}\nexec terraform \"$@\"\n"
        );
        home.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tool"},
            "data": {"terraform": text}}));
        // The script comes before the terraform of the machine or the image.
        let path = format!("/tool:{}:/usr/local/bin:/bin", std::env::var("PATH").unwrap_or_default());
        let pod = json!({
            "env": [{"name": "PATH", "value": path}],
            "volumes": [{"name": "tool", "configMap": {"name": "tool", "defaultMode": 0o755}}],
            "volumeMounts": [{"name": "tool", "mountPath": "/tool"}],
        });
        home.settings(&json!({"pod": pod}));
        home
    }

    /// Changes the spec of the workspace.
    #[track_caller]
    pub fn settings(&self, spec: &Value) {
        let patch = json!({"spec": spec}).to_string();
        self.kubectl(&["patch", "workspace", "net", "--type", "merge", "--patch", &patch], None);
    }

    fn start(&mut self) {
        match std::env::var_os("KNOLL_E2E_KUBECONFIG") {
            Some(kubeconfig) => self.borrow(Path::new(&kubeconfig)),
            None => {
                self.cluster = Cluster::Embedded;
                self.ok(&["up", "--detach", "--port", "0"]);
            }
        }
        self.ok(&["workspace", "new", "net"]);
    }

    /// Creates a namespace in the external cluster, and a kubeconfig for it.
    fn borrow(&mut self, kubeconfig: &Path) {
        let unique = self.folder.path().file_name().unwrap().to_string_lossy().replace('.', "").to_lowercase();
        let namespace = format!("cli-{unique}");
        std::fs::copy(kubeconfig, self.folder.path().join("kubeconfig")).unwrap();
        self.cluster = Cluster::Given(namespace.clone());
        self.kubectl(&["create", "namespace", &namespace], None);
        self.kubectl(&["config", "set-context", "--current", "--namespace", &namespace], None);
        // Pods need the default service account.
        self.kubectl(&["wait", "--for=create", "serviceaccount/default", "--timeout=60s"], None);
    }

    pub fn namespace(&self) -> &str {
        match &self.cluster {
            Cluster::Given(namespace) => namespace,
            Cluster::None | Cluster::Embedded => "default",
        }
    }

    /// Whether the cluster is external.
    pub fn is_guest(&self) -> bool {
        matches!(self.cluster, Cluster::Given(_))
    }

    /// Gives Atoms without an account of their own the rights of `edit`.
    pub fn grant_to_atoms(&self) {
        let account = "--serviceaccount=default:default";
        self.kubectl(&["create", "rolebinding", "default-edit", "--clusterrole=edit", account], None);
    }

    /// Calls kubectl on the cluster of this home.
    #[track_caller]
    pub fn kubectl(&self, words: &[&str], input: Option<&Value>) -> String {
        let mut command = Command::new("kubectl");
        command.args(words).env_clear().envs(self.environment()).env("KUBECONFIG", self.kubeconfig());
        // A short-lived process needs no garbage collection.
        command.env("GOGC", "400");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        if let Some(input) = input {
            stdin.write_all(input.to_string().as_bytes()).unwrap();
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    pub fn create(&self, object: &Value) {
        self.kubectl(&["create", "-f", "-"], Some(object));
    }

    pub fn kubeconfig(&self) -> PathBuf {
        match self.cluster {
            Cluster::Given(_) => self.folder.path().join("kubeconfig"),
            Cluster::None | Cluster::Embedded => self.folder.path().join("data/kubeconfig"),
        }
    }

    /// Kills the cluster, and waits until its process has ended.
    pub fn kill_cluster(&self) {
        let pid = std::fs::read_to_string(self.folder.path().join("data/knoll.pid")).unwrap();
        let pid = nix::unistd::Pid::from_raw(pid.trim().parse().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while self.call(&["status"]).status.success() {
            assert!(Instant::now() < deadline, "a killed cluster must look like one");
        }
    }

    /// Starts the cluster again on the same port.
    pub fn restart(&self) {
        let kubeconfig = std::fs::read_to_string(self.folder.path().join("data/kubeconfig")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&kubeconfig).unwrap();
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
        let port = server.rsplit(':').next().unwrap();
        self.ok(&["up", "--detach", "--port", port]);
    }

    pub fn module(&self) -> PathBuf {
        self.folder.path().join("net")
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.module().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The environment of every command, without the machine's own clusters and settings.
    pub fn environment(&self) -> Vec<(String, String)> {
        let data = self.folder.path().join("data").display().to_string();
        let home = self.folder.path().display().to_string();
        // The programs of the test come before those of the machine.
        let path = format!("{home}/bin:{}", std::env::var("PATH").unwrap_or_default());
        let given = self.is_guest().then(|| ("KUBECONFIG", self.kubeconfig().display().to_string()));
        [
            ("KNOLL_DATA_DIR", data),
            ("HOME", home),
            ("PATH", path),
            ("TERM", "xterm-256color".into()),
            ("TZ", "UTC".into()),
        ]
        .into_iter()
        .chain(given)
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        self.command_in(&self.module(), words)
    }

    pub fn command_in(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_knoll"));
        command.args(words).env_clear().envs(self.environment()).current_dir(folder).stdin(Stdio::null());
        command
    }

    pub fn call(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    #[track_caller]
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.call(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "knoll {words:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The standard error of a command that must fail.
    #[track_caller]
    pub fn fails(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(!output.status.success(), "knoll {words:?} must fail");
        String::from_utf8(output.stderr).unwrap()
    }

    pub fn newest_run(&self) -> serde_json::Value {
        let list: serde_json::Value = serde_json::from_str(&self.ok(&["runs", "-o", "json"])).unwrap();
        list["items"].as_array().unwrap().last().cloned().unwrap_or_default()
    }

    pub fn runs(&self) -> Vec<String> {
        let names = self.ok(&["runs", "-o", "name"]);
        names.lines().map(|line| line.trim_start_matches("run.knoll.dev/").to_owned()).collect()
    }

    /// Waits until the newest run satisfies the condition.
    #[track_caller]
    pub fn until_run(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until::<Run>(what, || self.newest_run(), wanted)
    }

    /// Re-reads after every event of that kind, until the condition holds.
    #[track_caller]
    pub fn until<K>(&self, what: &str, look: impl Fn() -> Value, wanted: impl Fn(&Value) -> bool) -> Value
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        K: Send + 'static,
    {
        let seen = std::cell::RefCell::new(Value::Null);
        let waiting = async {
            let config = Kubeconfig::read_from(self.kubeconfig()).unwrap();
            let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
            let api: Api<K> = Api::namespaced(Client::try_from(config).unwrap(), self.namespace());
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                if matches!(event, Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_))) {
                    let now = look();
                    let is_so = wanted(&now);
                    seen.replace(now);
                    if is_so {
                        return;
                    }
                }
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(async { tokio::time::timeout(PATIENCE, waiting).await });
        assert!(ended.is_ok(), "{what}: {:#}", seen.borrow());
        seen.into_inner()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        match &self.cluster {
            Cluster::None => {}
            Cluster::Embedded => drop(self.call(&["down"])),
            Cluster::Given(namespace) => {
                // No Run can start in a terminating namespace, so Stacks are orphaned first.
                let orphan = ["annotate", "stacks", "--all", "knoll.dev/force-orphan=yes", "--namespace", namespace];
                for words in [&orphan[..], &["delete", "namespace", namespace, "--wait=false"]] {
                    let mut kubectl = Command::new("kubectl");
                    kubectl.args(words).env_clear().envs(self.environment());
                    // A failed cleanup must not hide why a test failed.
                    let _ = kubectl.output();
                }
            }
        }
    }
}

/// A gate in a module's apply, which opens wherever the pod runs.
pub struct Gate {
    file: String,
}

impl Gate {
    /// Replaces the module by one that waits at a gate during its apply.
    pub fn in_module(home: &Home) -> Self {
        let unique = home.folder.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let gate = Gate { file: format!("/tmp/knoll-gate-{unique}") };
        let wait = format!("echo begun; until test -e {}; do sleep 0.05; done; echo passed", gate.file);
        let provisioner = format!("provisioner \"local-exec\" {{ command = \"{wait}\" }}");
        home.write("main.tf", &format!("resource \"terraform_data\" \"slow\" {{\n  {provisioner}\n}}\n"));
        gate
    }

    /// Releases the newest run.
    pub fn open(&self, home: &Home) {
        let pod = home.newest_run()["status"]["podName"].as_str().unwrap().to_owned();
        self.open_of(home, &pod);
    }

    /// Releases the run of this pod.
    pub fn open_of(&self, home: &Home, pod: &str) {
        home.kubectl(&["exec", pod, "-c", "runner", "--", "touch", &self.file], None);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // The file is on the machine on which the pods run.
        let _ = std::fs::remove_file(&self.file);
    }
}
