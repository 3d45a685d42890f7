//! `knoll up | status | down`, and how Runs survive the end of the cluster.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// A data directory, and the cluster in it.
struct Knoll {
    folder: TempDir,
}

impl Knoll {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn call(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_knoll"))
            .args(words)
            .env("KNOLL_DATA_DIR", self.data())
            .env_remove("KNOLL_PORT")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(output.status.success(), "knoll {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(!output.status.success(), "knoll {words:?} must fail");
        String::from_utf8(output.stderr).unwrap()
    }

    fn up(&self) -> String {
        self.ok(&["up", "--detach", "--port", "0"])
    }

    fn pid(&self) -> i32 {
        std::fs::read_to_string(self.data().join("knoll.pid")).unwrap().trim().parse().unwrap()
    }

    #[track_caller]
    fn kubectl(&self, words: &str, input: &str) -> String {
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.data().join("kubeconfig"))
            .arg("--cache-dir")
            .arg(self.folder.path().join("kube-cache"))
            .args(words.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl must be on the PATH");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "kubectl {words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self, object: &str) -> Value {
        serde_json::from_str(&self.kubectl(&format!("get {object} -o jsonpath={{.status}}"), "")).unwrap()
    }
}

impl Drop for Knoll {
    fn drop(&mut self) {
        self.call(&["down"]);
    }
}

/// A Run that applies one resource, with the source in this field.
fn run(name: &str, source: &str) -> String {
    format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: Run\nmetadata: {{name: {name}}}\nspec:\n  workspace: w\n  operation: apply\n  variables: {{word: {name}}}\n  source: {source}\n"
    )
}

const WORKSPACE: &str = "apiVersion: knoll.dev/v1alpha1\nkind: Workspace\nmetadata: {name: w}\nspec: {}\n";

/// `perf record` starts programs with blocked signals. A runner that never receives SIGWINCH would wait for its client
/// forever.
#[cfg(target_os = "linux")]
#[test]
fn signals_that_are_blocked_where_it_is_started_reach_the_cluster() {
    let knoll = Knoll::new();
    let resize = SigSet::from(Signal::SIGWINCH);
    resize.thread_block().unwrap();
    knoll.up();
    resize.thread_unblock().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", knoll.pid())).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    assert_eq!(u64::from_str_radix(blocked.trim(), 16), Ok(0));
}

#[test]
fn up_status_down() {
    let knoll = Knoll::new();
    assert!(String::from_utf8(knoll.call(&["status"]).stdout).unwrap().contains("knoll up"));
    assert!(knoll.ok(&["down"]).starts_with("Not running"));
    assert!(knoll.up().starts_with("Started"));
    let mode = |name: &str| std::fs::metadata(knoll.data().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["kubeconfig", "knoll.db", "knoll.journal", ""].map(mode), [0o600, 0o600, 0o600, 0o700]);
    assert!(knoll.kubectl("get --raw /readyz", "").contains("ok"));
    assert!(knoll.kubectl("get nodes", "").contains("Ready"));
    let kinds = knoll.kubectl("api-resources --api-group knoll.dev -o name", "");
    assert_eq!(kinds.lines().count(), 7, "{kinds}");
    assert!(knoll.up().starts_with("Already running"), "a second `up` is no error");
    assert!(knoll.ok(&["status"]).starts_with("Running"));
    assert!(knoll.ok(&["down"]).starts_with("Stopped"));
    assert_eq!(knoll.call(&["status"]).status.code(), Some(1));
}

/// Each start with `--port 0` had another address, and every kubeconfig of the one before was void.
#[test]
fn a_chosen_port_was_another_one_after_each_start() {
    let knoll = Knoll::new();
    let server = |knoll: &Knoll| {
        let config: Value = serde_json::from_slice(&std::fs::read(knoll.data().join("kubeconfig")).unwrap()).unwrap();
        config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
    };
    knoll.up();
    let first = server(&knoll);
    knoll.ok(&["down"]);
    knoll.up();
    assert_eq!(server(&knoll), first);
    knoll.ok(&["down"]);
    // A port that somebody else has taken meanwhile is not insisted on.
    let port: u16 = first.rsplit(':').next().unwrap().parse().unwrap();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    knoll.up();
    assert_ne!(server(&knoll), first);
}

#[test]
fn what_keeps_a_cluster_from_starting_is_said() {
    let knoll = Knoll::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for words in [&["up", "--detach", "--port", &port][..], &["up", "--port", &port]] {
        let error = knoll.fails(words);
        assert!(error.contains(&format!("port {port}")) && error.contains("--port"), "{error}");
    }
    let error = knoll.fails(&["up", "--port", "many"]);
    assert!(error.contains("invalid value 'many'"), "{error}");
    let file = knoll.folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = knoll.fails(&["up", "--data-dir", file.to_str().unwrap()]);
    assert!(error.contains("data directory"), "{error}");
    std::fs::write(knoll.data().join("knoll.db"), "not a database at all, and long enough to be looked at").unwrap();
    let error = knoll.fails(&["up", "--detach", "--port", "0"]);
    assert!(error.contains("knoll.db"), "{error}");
}

#[test]
fn killed_in_the_middle_of_a_run_the_cluster_comes_back_and_the_run_delivers() {
    let knoll = Knoll::new();
    knoll.up();
    knoll.kubectl("create -f -", WORKSPACE);
    let gate = knoll.folder.path().join("gate");
    let module = format!(
        "resource \"terraform_data\" \"a\" {{ input = \"kept\" }}\nresource \"terraform_data\" \"b\" {{\n  depends_on = [terraform_data.a]\n  provisioner \"local-exec\" {{ command = \"until test -e {}; do sleep 0.05; done\" }}\n}}\noutput \"word\" {{ value = terraform_data.a.output }}\nvariable \"word\" {{}}\n",
        gate.display()
    );
    knoll.kubectl("create -f -", &run("long", &format!("{{inline: {{main.tf: {module:?}}}}}")));
    knoll.kubectl("wait secret/knoll-state-w --for=create --timeout=60s", "");
    kill(Pid::from_raw(knoll.pid()), Signal::SIGKILL).unwrap();
    // The lock on the directory is released when the kernel has ended the process.
    let deadline = Instant::now() + Duration::from_secs(20);
    while knoll.call(&["status"]).status.success() {
        assert!(Instant::now() < deadline, "a killed cluster must look like one");
    }
    let started = knoll.up();
    assert!(started.starts_with("Started"), "{started}");
    std::fs::write(&gate, "").unwrap();
    knoll.kubectl("wait run/long --for=condition=Ready --timeout=90s", "");
    knoll.kubectl("wait ws/w --for=jsonpath={.status.outputs.word}=kept --timeout=60s", "");
    assert_eq!(knoll.status("ws/w")["state"]["resources"], 2);
}
