//! Measures pods without Knoll: the time until the program of one pod runs, and the time until terraform has applied a
//! module in many pods.
//!
//! The program prints the machine's uptime, which is the same inside and outside of a container.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::TryStreamExt;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use knoll_api::names;
use kube::api::{DeleteParams, LogParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::cluster::{Cluster, from};

const PATIENCE: Duration = Duration::from_secs(60);
/// The shell script of a plain terraform pod, as in [`super::bare`]. It prints the uptime at its end.
const TERRAFORM: &str = r#"set -e; mkdir /tmp/module; cd /tmp/module; printf %s "$MODULE" >main.tf
terraform init -input=false; terraform plan -input=false -out=plan; terraform apply -input=false plan
exec cat /proc/uptime"#;

/// The start of a pod with one container and the image of the pod `like`, in seconds.
pub async fn plain(cluster: &Cluster, like: &str) -> anyhow::Result<f64> {
    let pod = of_one_container("plain", &image(cluster, like).await?, &json!(["cat", "/proc/uptime"]), &json!([]))?;
    time(cluster, &[pod]).await
}

/// The time until terraform has applied the module in `count` concurrent pods, in seconds.
pub async fn crowd(cluster: &Cluster, like: &str, module: &str, count: usize) -> anyhow::Result<f64> {
    let image = image(cluster, like).await?;
    let env = json!([{"name": "CHECKPOINT_DISABLE", "value": "1"}, {"name": "MODULE", "value": module}]);
    let pod = |number| of_one_container(&format!("plain-{number}"), &image, &json!(["sh", "-c", TERRAFORM]), &env);
    time(cluster, &(0..count).map(pod).collect::<anyhow::Result<Vec<Pod>>>()?).await
}

/// The start of a pod that is like the pod `like`, except for its main program, in seconds.
pub async fn of_shape(cluster: &Cluster, like: &str) -> anyhow::Result<f64> {
    let mut spec = pods(cluster).get(like).await?.spec.context("a pod has a spec")?;
    spec.node_name = None;
    // The main container prints the uptime instead of starting the runner.
    for word in main(&mut spec)?.command.iter_mut().flatten() {
        for runner in [r#"exec "$0" "$@""#, r#"exec "$from" "$@""#] {
            *word = word.replace(runner, "exec cat /proc/uptime");
        }
    }
    let mut pod = Pod { spec: Some(spec), ..Pod::default() };
    pod.metadata.name = Some("shape".to_owned());
    time(cluster, &[pod]).await
}

/// Where the pod `like` gets its runner from.
pub async fn runner(cluster: &Cluster, like: &str) -> anyhow::Result<&'static str> {
    let volumes = pods(cluster).get(like).await?.spec.context("a pod has a spec")?.volumes.unwrap_or_default();
    Ok(if volumes.iter().any(|volume| volume.image.is_some()) {
        "an image volume (`knoll install --image-volumes`)"
    } else {
        "a container of their own (`knoll install`)"
    })
}

fn main(spec: &mut PodSpec) -> anyhow::Result<&mut Container> {
    let found = spec.containers.iter_mut().find(|container| container.name == names::pod::CONTAINER);
    found.context("a Run's pod has a container of the runner")
}

fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client.clone(), &cluster.namespace)
}

async fn image(cluster: &Cluster, like: &str) -> anyhow::Result<String> {
    let mut spec = pods(cluster).get(like).await?.spec.context("a pod has a spec")?;
    main(&mut spec)?.image.clone().context("a container has an image")
}

fn of_one_container(name: &str, image: &str, command: &Value, env: &Value) -> anyhow::Result<Pod> {
    let container = json!({"name": names::pod::CONTAINER, "image": image, "command": command, "env": env});
    from(json!({"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}))
}

/// Creates the pods concurrently, and returns the time until the last one has printed its own.
async fn time(cluster: &Cluster, pods: &[Pod]) -> anyhow::Result<f64> {
    let api = self::pods(cluster);
    let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    let begun = uptime(&std::fs::read_to_string("/proc/uptime").context("this machine does not tell its uptime")?)?;
    let params = PostParams::default();
    try_join_all(pods.iter().map(|pod| api.create(&params, pod))).await?;
    tokio::time::timeout(PATIENCE, all_end(&api, &names)).await.context("a pod does not end")??;
    let mut last = begun;
    for name in &names {
        let params = LogParams { container: Some(names::pod::CONTAINER.to_owned()), ..LogParams::default() };
        let log = api.logs(name, &params).await?;
        let told = log.lines().last().context("it printed nothing").and_then(uptime);
        let ended = told.with_context(|| format!("the pod `{name}` printed `{log}`"))?;
        if ended < begun {
            bail!("the pod runs on another machine than this, so its time cannot be measured");
        }
        last = last.max(ended);
    }
    let params = DeleteParams::default().grace_period(0);
    try_join_all(names.iter().map(|name| api.delete(name, &params))).await?;
    let gone = names.iter().map(|name| await_condition(api.clone(), name, |pod: Option<&Pod>| pod.is_none()));
    tokio::time::timeout(PATIENCE, try_join_all(gone)).await.context("a pod does not go")??;
    Ok(last - begun)
}

/// Waits for the end of all pods with one watch.
async fn all_end(api: &Api<Pod>, names: &[String]) -> anyhow::Result<()> {
    let mut open: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut changes = pin!(watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects());
    while !open.is_empty() {
        let pod = changes.try_next().await?.context("a watch does not end")?;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            open.remove(pod.name_any().as_str());
        }
    }
    Ok(())
}

fn uptime(text: &str) -> anyhow::Result<f64> {
    text.split_whitespace().next().context("no uptime")?.parse().context("no uptime")
}
