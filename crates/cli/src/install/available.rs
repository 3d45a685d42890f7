//! Waits for the operator's Deployment, and reports what its pods are waiting for.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use knoll_deploy::{DEPLOYMENT, Settings};
use kube::api::{Api, ListParams, LogParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};

use crate::style;

/// The label selector of the operator's pods.
const PODS: &str = "app.kubernetes.io/name=knoll,app.kubernetes.io/component=operator";

/// Returns once every replica runs the new version and is available.
pub async fn wait(client: &Client, settings: &Settings, timeout: Duration) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &settings.namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &settings.namespace);
    let available = await_condition(deployments, DEPLOYMENT, |deployment: Option<&Deployment>| {
        deployment.is_some_and(is_available)
    });
    let telling = report_pods(pods.clone());
    let waited = tokio::time::timeout(timeout, async {
        tokio::select! {
            result = available => result.map(drop),
            () = telling => std::future::pending().await,
        }
    });
    match waited.await {
        Ok(result) => Ok(result?),
        Err(_) => bail!(unavailable(timeout, &last_words(&pods).await, &settings.namespace)),
    }
}

fn unavailable(timeout: Duration, last_words: &str, namespace: &str) -> String {
    format!(
        "the operator is not available after {} s\n{last_words}\n  see `kubectl -n {namespace} describe pods`; it is safe to run `knoll install` again",
        timeout.as_secs(),
    )
}

fn is_available(deployment: &Deployment) -> bool {
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let Some(status) = &deployment.status else { return false };
    let count = |number: Option<i32>| number.unwrap_or_default();
    status.observed_generation >= deployment.metadata.generation
        && count(status.updated_replicas) >= desired
        && count(status.available_replicas) >= desired
        && count(status.replicas) == count(status.updated_replicas)
}

/// Prints the state of each pod whenever it changes.
async fn report_pods(pods: Api<Pod>) {
    let mut printed = BTreeSet::new();
    let config = watcher::Config::default().labels(PODS);
    let mut events = pin!(watcher(pods, config).default_backoff().applied_objects());
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let line = (pod.name_any(), state(&pod));
        if printed.insert(line.clone()) {
            style::field("waiting for", &format!("pod/{}: {}", line.0, line.1));
        }
    }
}

/// The state of a pod, or the reason why it is not running.
fn state(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return "not scheduled yet".to_owned() };
    for container in status.container_statuses.iter().flatten() {
        let Some(state) = &container.state else { continue };
        if let Some(waiting) = &state.waiting {
            let reason = waiting.reason.as_deref().unwrap_or("waiting");
            return match waiting.message.as_deref() {
                Some(message) => format!("{reason}: {message}"),
                None => reason.to_owned(),
            };
        }
        if let Some(ended) = &state.terminated {
            let message = ended.message.as_deref().unwrap_or_default().trim();
            return format!("exited with code {}: {message}", ended.exit_code);
        }
        if container.ready {
            return "ready".to_owned();
        }
    }
    let unplaced = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    if let Some(message) = unplaced.and_then(|condition| condition.message.as_deref()) {
        return format!("not scheduled: {message}");
    }
    status.phase.as_deref().unwrap_or("Pending").to_lowercase()
}

/// The last log lines of each pod that is not ready.
async fn last_words(pods: &Api<Pod>) -> String {
    let mut text = Vec::new();
    let listed = pods.list(&ListParams::default().labels(PODS)).await.map(|list| list.items).unwrap_or_default();
    for pod in listed {
        let (name, state) = (pod.name_any(), state(&pod));
        if state == "ready" {
            continue;
        }
        text.push(format!("  pod/{name}: {state}"));
        let params = LogParams { tail_lines: Some(5), ..LogParams::default() };
        if let Ok(log) = pods.logs(&name, &params).await {
            text.extend(log.lines().map(|line| format!("    {line}")));
        }
    }
    if text.is_empty() {
        text.push("  the Deployment has no pods: the cluster could not create them".to_owned());
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "status": status})).unwrap()
    }

    #[test]
    fn a_pod_says_why_it_is_not_ready() {
        let container = |state: serde_json::Value, ready: bool| {
            pod(serde_json::json!({"phase": "Pending", "containerStatuses": [
                {"name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": state}]}))
        };
        let rows = [
            (pod(serde_json::json!({})), "pending"),
            (
                pod(serde_json::json!({"conditions": [
                    {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]})),
                "not scheduled: 0/1 nodes are available",
            ),
            (
                container(
                    serde_json::json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}),
                    false,
                ),
                "ImagePullBackOff: no such image",
            ),
            (container(serde_json::json!({"waiting": {}}), false), "waiting"),
            (
                container(serde_json::json!({"terminated": {"exitCode": 1, "message": "no kinds\n"}}), false),
                "exited with code 1: no kinds",
            ),
            (container(serde_json::json!({"running": {}}), true), "ready"),
            (container(serde_json::json!({"running": {}}), false), "pending"),
        ];
        for (pod, expect) in rows {
            assert_eq!(state(&pod), expect);
        }
        assert_eq!(state(&Pod::default()), "not scheduled yet");
    }

    #[test]
    fn who_waited_too_long_is_told_where_to_look() {
        assert_eq!(
            unavailable(Duration::from_secs(180), "  pod/a: ImagePullBackOff: no such image", "tools"),
            "the operator is not available after 180 s\n  pod/a: ImagePullBackOff: no such image\n  see `kubectl -n tools describe pods`; it is safe to run `knoll install` again"
        );
    }
}
