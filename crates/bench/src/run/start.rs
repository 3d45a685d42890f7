//! How long a pod takes to start: from its creation until its program runs.
//!
//! The program prints the machine's uptime, which is the same inside of a container and outside.

use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use knoll_api::names;
use kube::api::{DeleteParams, LogParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::cluster::{Cluster, from};

const PATIENCE: Duration = Duration::from_secs(60);

/// A pod of one container as `kubectl run` makes it, of the image that the pod `like` has; in seconds.
pub async fn plain(cluster: &Cluster, like: &str) -> anyhow::Result<f64> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let image = main(&mut api.get(like).await?.spec.context("a pod has a spec")?)?.image.clone();
    let containers = json!([{"name": names::pod::CONTAINER, "image": image, "command": ["cat", "/proc/uptime"]}]);
    let spec = json!({"restartPolicy": "Never", "containers": containers});
    time(&api, from(json!({"metadata": {"name": "plain"}, "spec": spec}))?).await
}

/// A pod with all that the pod `like` has, but for what its main container runs; in seconds.
pub async fn of_shape(cluster: &Cluster, like: &str) -> anyhow::Result<f64> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let mut spec = api.get(like).await?.spec.context("a pod has a spec")?;
    spec.node_name = None;
    // What it becomes when all is there.
    for word in main(&mut spec)?.command.iter_mut().flatten() {
        for runner in [r#"exec "$0" "$@""#, r#"exec "$from" "$@""#] {
            *word = word.replace(runner, "exec cat /proc/uptime");
        }
    }
    let mut pod = Pod { spec: Some(spec), ..Pod::default() };
    pod.metadata.name = Some("shape".to_owned());
    time(&api, pod).await
}

/// Where the pod `like` has its runner from.
pub async fn runner(cluster: &Cluster, like: &str) -> anyhow::Result<&'static str> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let volumes = api.get(like).await?.spec.context("a pod has a spec")?.volumes.unwrap_or_default();
    Ok(if volumes.iter().any(|volume| volume.image.is_some()) {
        "an image volume (`knoll install --image-volumes`)"
    } else {
        "a container of their own (`knoll install`)"
    })
}

/// The container of the runner.
fn main(spec: &mut PodSpec) -> anyhow::Result<&mut Container> {
    let found = spec.containers.iter_mut().find(|container| container.name == names::pod::CONTAINER);
    found.context("a Run's pod has a container of the runner")
}

async fn time(api: &Api<Pod>, pod: Pod) -> anyhow::Result<f64> {
    let name = pod.name_any();
    let container = Some(names::pod::CONTAINER.to_owned());
    let begun = uptime(&std::fs::read_to_string("/proc/uptime").context("this machine does not tell its uptime")?)?;
    api.create(&PostParams::default(), &pod).await?;
    let over = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        phase.is_some_and(|phase| phase == "Succeeded" || phase == "Failed")
    };
    tokio::time::timeout(PATIENCE, await_condition(api.clone(), &name, over)).await.context("a pod does not end")??;
    let log = api.logs(&name, &LogParams { container, ..LogParams::default() }).await?;
    api.delete(&name, &DeleteParams::default().grace_period(0)).await?;
    let gone = await_condition(api.clone(), &name, |pod: Option<&Pod>| pod.is_none());
    tokio::time::timeout(PATIENCE, gone).await.context("a pod does not go")??;
    let ran = uptime(&log).with_context(|| format!("the pod `{name}` printed `{log}`"))?;
    if ran < begun {
        bail!("the pod runs on another machine than this, so its start cannot be measured");
    }
    Ok(ran - begun)
}

fn uptime(text: &str) -> anyhow::Result<f64> {
    text.split_whitespace().next().context("no uptime")?.parse().context("no uptime")
}
