//! Waiting until a cluster answers, with a deadline and with the reason when it does not.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::assets;
use super::pki::NODE_NAME;
use super::place::Place;
use super::process;
use super::record::Record;

/// The kubectl of a cluster.
pub struct Kubectl {
    executable: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// The kubectl that speaks to this cluster as its administrator.
    pub fn new(place: &Place, record: &Record) -> anyhow::Result<Kubectl> {
        Ok(Kubectl { executable: assets::kubectl(&record.assets)?, kubeconfig: place.kubeconfig() })
    }

    /// What a call prints, or nothing when it fails.
    pub fn ask(&self, words: &[&str]) -> anyhow::Result<Option<String>> {
        let output = Command::new(&self.executable)
            .arg("--request-timeout=5s")
            .args(words)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", self.executable.display()))?;
        Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// Asks again and again until the answer is yes. Fails when one of the processes ends or the time is up.
pub fn until(
    place: &Place,
    what: &str,
    processes: &[&str],
    patience: Duration,
    mut question: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        if question()? {
            return Ok(());
        }
        for name in processes {
            process::check_alive(place, name)?;
        }
        if Instant::now() > deadline {
            let ends: Vec<String> =
                processes.iter().map(|name| format!("--- {name}\n{}", process::log_end(place, name))).collect();
            bail!(
                "{what} did not become ready in {} s; the ends of the logs:\n{}",
                patience.as_secs(),
                ends.join("\n")
            );
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until etcd takes connections.
pub fn etcd(place: &Place, record: &Record) -> anyhow::Result<()> {
    let port = record.port("etcd")?;
    until(place, "etcd", &["etcd"], Duration::from_secs(60), || Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))
}

/// Waits until the API server says that it is ready.
pub fn apiserver(place: &Place, kubectl: &Kubectl) -> anyhow::Result<()> {
    until(place, "kube-apiserver", &["etcd", "kube-apiserver"], Duration::from_secs(120), || {
        Ok(kubectl.ask(&["get", "--raw", "/readyz"])?.is_some())
    })
}

/// Waits until pods can be created: the controllers have made the service account that pods run as.
pub fn controllers(place: &Place, kubectl: &Kubectl, processes: &[&str]) -> anyhow::Result<()> {
    until(place, "kube-controller-manager", processes, Duration::from_secs(120), || {
        Ok(kubectl.ask(&["--namespace=default", "get", "serviceaccount", "default"])?.is_some())
    })
}

/// Waits until the node runs pods: it is Ready by its own latest word, and the scheduler may use it.
pub fn node(place: &Place, kubectl: &Kubectl, since: &str) -> anyhow::Result<()> {
    let processes = ["kube-apiserver", "containerd", "kubelet", "kube-proxy"];
    let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} \
                {.status.conditions[?(@.type==\"Ready\")].lastHeartbeatTime} {.spec.taints[*].key}";
    until(place, "the node", &processes, Duration::from_secs(120), || {
        let answer = kubectl.ask(&["get", "node", NODE_NAME, "--output", path])?.unwrap_or_default();
        Ok(node_is_ready(&answer, since))
    })?;
    // A kubelet that was just started says that it is ready before it has heard of the pods that were there before.
    until(place, "the kubelet's list of pods", &processes, Duration::from_secs(60), || {
        let ours = kubectl.ask(&["get", "--raw", &format!("/api/v1/pods?fieldSelector=spec.nodeName={NODE_NAME}")])?;
        let theirs = kubectl.ask(&["get", "--raw", &format!("/api/v1/nodes/{NODE_NAME}/proxy/pods")])?;
        Ok(ours.zip(theirs).is_some_and(|(ours, theirs)| uids(&ours).is_subset(&uids(&theirs))))
    })
}

/// The UIDs of a list of objects.
fn uids(list: &str) -> BTreeSet<String> {
    let list: serde_json::Value = serde_json::from_str(list).unwrap_or_default();
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item["metadata"]["uid"].as_str()).map(str::to_owned).collect()
}

/// Whether `status heartbeat taints` says that the node is ready, by a word of `since` or later.
fn node_is_ready(answer: &str, since: &str) -> bool {
    let mut words = answer.split_whitespace();
    // Times of one format compare as texts do.
    words.next() == Some("True") && words.next().is_some_and(|heartbeat| heartbeat >= since) && words.next().is_none()
}

/// The time of the API server, in the form that it writes times in, to compare heartbeats with.
pub fn now() -> anyhow::Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).output().context("cannot start date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_of_a_list() {
        let list = r#"{"items": [{"metadata": {"uid": "b"}}, {"metadata": {"uid": "a"}}, {}]}"#;
        assert_eq!(uids(list).into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(uids(r#"{"items": null}"#).is_empty());
    }

    #[test]
    fn a_node_is_ready_by_a_word_that_is_recent_and_without_taints() {
        let since = "2026-11-16T00:10:00Z";
        assert!(node_is_ready("True 2026-11-16T00:10:01Z ", since));
        assert!(!node_is_ready("True 2026-11-16T00:09:59Z ", since), "said before it was stopped");
        assert!(!node_is_ready("True 2026-11-16T00:10:01Z node.kubernetes.io/not-ready", since));
        assert!(!node_is_ready("False 2026-11-16T00:10:01Z ", since));
        assert!(!node_is_ready("", since));
    }
}
