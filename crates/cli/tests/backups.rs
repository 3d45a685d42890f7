//! The cluster is gone: its states, Workspaces, Stacks and Policies come back from a bucket by one command.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use knoll_e2e::Bucket;
use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(240);

/// A cluster in a data directory, and a client of it that knows the bucket.
struct Knoll {
    folder: TempDir,
    environment: BTreeMap<String, String>,
}

impl Knoll {
    /// Starts a cluster that copies its states to the bucket.
    fn up(bucket: &Bucket) -> Self {
        let mut environment = bucket.environment();
        environment.insert("KNOLL_BACKUP_URL".to_owned(), bucket.url("drill"));
        let knoll = Self { folder: tempfile::tempdir().unwrap(), environment };
        knoll.ok(&["up", "--detach", "--port", "0"]);
        knoll
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn call(&self, words: &[&str]) -> Output {
        let module = self.folder.path().join("module");
        std::fs::create_dir_all(&module).unwrap();
        Command::new(env!("CARGO_BIN_EXE_knoll"))
            .args(words)
            .current_dir(module)
            .envs(&self.environment)
            .env("KNOLL_DATA_DIR", self.data())
            .env("KUBECONFIG", self.data().join("kubeconfig"))
            .env_remove("KNOLL_PORT")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.call(words);
        let (text, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "knoll {words:?}: {text}{error}");
        text
    }

    /// What a command prints, and what it says aside.
    #[track_caller]
    fn both(&self, words: &[&str]) -> (String, String) {
        let output = self.call(words);
        let (text, aside) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "knoll {words:?}: {text}{aside}");
        (text, aside)
    }

    #[track_caller]
    fn fails(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(!output.status.success(), "knoll {words:?} must fail");
        String::from_utf8(output.stderr).unwrap()
    }

    #[track_caller]
    fn kubectl(&self, words: &[&str], input: &Value) -> String {
        let file = self.folder.path().join("input.json");
        std::fs::write(&file, input.to_string()).unwrap();
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.data().join("kubeconfig"));
        command.arg("--cache-dir").arg(self.folder.path().join("kube-cache")).args(words);
        let output = command.stdin(std::fs::File::open(file).unwrap()).output().expect("kubectl must be on the PATH");
        assert!(output.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn get(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let words = ["get", kind, name, "--namespace", namespace, "--output", "json", "--ignore-not-found"];
        serde_json::from_str(&self.kubectl(&words, &Value::Null)).unwrap_or_default()
    }

    /// Waits until an object is as it should be.
    #[track_caller]
    fn until(&self, kind: &str, namespace: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.get(kind, namespace, name);
            if is_so(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{kind} {name}: {:#}", found["status"]);
        }
    }

    fn write(&self, text: &str) {
        std::fs::create_dir_all(self.folder.path().join("module")).unwrap();
        std::fs::write(self.folder.path().join("module/main.tf"), text).unwrap();
    }

    /// Waits until the current state is copied.
    fn is_copied(&self, namespace: &str, name: &str) {
        self.until("workspace", namespace, name, |workspace| {
            let status = &workspace["status"];
            let is_current = status["backup"]["digest"] == status["state"]["digest"] && status["phase"] == "Idle";
            is_current && condition(workspace, "BackedUp")["status"] == "True"
        });
    }
}

impl Drop for Knoll {
    fn drop(&mut self) {
        self.call(&["down"]);
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|known| known["type"] == kind)).unwrap_or(&Value::Null)
}

fn module(size: u32) -> String {
    format!(
        "resource \"terraform_data\" \"net\" {{\n  count = {size}\n  input = \"subnet ${{count.index}}\"\n}}\noutput \"size\" {{\n  value = {size}\n}}\n"
    )
}

const EVERYTHING: [&str; 2] = ["restore", "--all-namespaces"];

#[test]
fn the_cluster_is_gone_and_everything_comes_back_by_one_command() {
    let bucket = Bucket::start();
    let first = Knoll::up(&bucket);
    let team =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"env": "test"}}});
    first.kubectl(&["create", "-f", "-"], &team);
    let policy = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": "limits"},
        "spec": {"namespaceSelector": {"matchLabels": {"env": "none"}}, "review": {"floor": "Manual"}}});
    first.kubectl(&["create", "-f", "-"], &policy);
    let stack = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "net", "namespace": "team"},
        "spec": {"source": {"inline": {"main.tf": module(2)}}, "variablesFrom": [{"secretRef": {"name": "sizes", "optional": true}}]}});
    first.kubectl(&["create", "-f", "-"], &stack);
    first.write(&module(3));
    first.ok(&["workspace", "new", "app", "-n", "default"]);
    first.ok(&["apply", "-auto-approve", "-w", "app", "-n", "default"]);
    first.write(&module(4));
    first.ok(&["apply", "-auto-approve", "-w", "app", "-n", "default"]);
    first.until("stack", "team", "net", |stack| condition(stack, "Ready")["status"] == "True");
    let places = [("default", "app"), ("team", "net")];
    let pull =
        |knoll: &Knoll, (namespace, name): (&str, &str)| knoll.ok(&["state", "pull", "-w", name, "-n", namespace]);
    for (namespace, name) in places {
        first.is_copied(namespace, name);
    }
    let states: Vec<String> = places.map(|place| pull(&first, place)).into();
    // Terraform writes several versions in a run; at least the last one of each run is copied.
    let listed = first.ok(&["state", "backups", "-w", "app", "-n", "default", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let versions = listed["versions"].as_array().unwrap();
    let runs: BTreeSet<&str> = versions.iter().map(|version| version["run"].as_str().unwrap()).collect();
    assert_eq!(runs.len(), 2, "{versions:?}");
    let oldest_run = &versions.last().unwrap()["run"];
    let oldest = versions.iter().find(|version| version["run"] == *oldest_run).unwrap();
    assert_eq!((&oldest["resources"], oldest["requestedBy"].is_string()), (&json!(3), true), "{oldest}");
    let oldest = oldest["serial"].to_string();
    first.ok(&["down"]);
    drop(first);

    // Another machine, where nothing is left of the first one. What is missing is offered.
    let second = Knoll::up(&bucket);
    let app = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "app", "namespace": "default"}, "spec": {}});
    second.kubectl(&["create", "-f", "-"], &app);
    let offered =
        second.until("workspace", "default", "app", |app| condition(app, "BackedUp")["reason"] == "BackupFound");
    let message = condition(&offered, "BackedUp")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("knoll restore -w app"), "{message}");
    let planned = second.ok(&["restore", "--all-namespaces", "--dry-run"]);
    assert!(
        planned.contains("Would restore") && second.get("secret", "default", "knoll-state-app").is_null(),
        "{planned}"
    );

    // A Secret is not in the backups, and a Stack that is there already stays.
    let (restored, aside) = second.both(&EVERYTHING);
    assert!(aside.contains("Left as they are, because the cluster has them: workspace `app`"), "{aside}");
    assert!(
        aside.contains("stack `net` in namespace `team` refers to secret `sizes`, which the cluster does not have"),
        "{aside}"
    );
    assert!(aside.contains("`knoll stack plan net -n team`, then `knoll stack resume net -n team`"), "{aside}");
    for what in ["policy `limits`", "namespace `team`", "stack `net` in namespace `team`, suspended", "workspace `app`"]
    {
        assert!(restored.contains(what), "{what} in\n{restored}");
    }
    for (place, state) in places.into_iter().zip(&states) {
        assert_eq!(pull(&second, place), *state, "every byte of {place:?}");
    }
    assert_eq!(second.get("namespace", "default", "team")["metadata"]["labels"]["env"], "test");
    assert_eq!(second.get("stack", "team", "net")["spec"]["suspend"], true);
    second.write(&module(4));
    second.ok(&["plan", "-detailed-exitcode", "-w", "app", "-n", "default"]);
    second.ok(&["stack", "resume", "net", "-n", "team"]);
    second.until("stack", "team", "net", |stack| condition(stack, "Ready")["status"] == "True");
    let net: Value = serde_json::from_str(&pull(&second, ("team", "net"))).unwrap();
    let before: Value = serde_json::from_str(&states[1]).unwrap();
    assert_eq!(
        (&net["lineage"], &net["resources"]),
        (&before["lineage"], &before["resources"]),
        "nothing was created again"
    );
    let (again, aside) = second.both(&EVERYTHING);
    assert!(!again.contains("Restored"), "{again}");
    assert!(aside.contains("stack `net` in namespace `team` is in the cluster and not suspended"), "{aside}");

    // A newer state stays, unless the user says otherwise.
    second.write(&module(5));
    second.ok(&["apply", "-auto-approve", "-w", "app", "-n", "default"]);
    let older = ["restore", "-w", "app", "-n", "default", "--serial", &oldest];
    let refused = second.fails(&older);
    assert!(refused.contains("--force"), "{refused}");
    second.ok(&[&older[..], &["--force"]].concat());
    let state: Value = serde_json::from_str(&pull(&second, ("default", "app"))).unwrap();
    assert_eq!(state["serial"].to_string(), oldest);
    assert_eq!(state["outputs"]["size"]["value"], 3);
}

#[test]
fn a_target_that_is_none_is_refused_with_an_example() {
    let knoll = Command::new(env!("CARGO_BIN_EXE_knoll"))
        .args(["up", "--detach", "--port", "0", "--backup-url", "https://example.com/bucket?token=hidden"])
        .env("KNOLL_DATA_DIR", tempfile::tempdir().unwrap().path().join("data"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(knoll.stderr).unwrap();
    assert!(
        !knoll.status.success() && text.contains("cannot be used for backups") && !text.contains("hidden"),
        "{text}"
    );
}
