//! Checks whether a cluster supports image volumes. The API server has to accept them, and the nodes have to mount
//! them.

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};

use crate::connect::Cluster;

/// Container runtimes as a Node's status names them, and the first version of each that mounts image volumes.
const RUNTIMES: [(&str, (u32, u32)); 2] = [("containerd", (2, 1)), ("cri-o", (1, 33))];

/// Fails for a cluster in which no Run could start.
pub async fn check(cluster: &Cluster, image: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    // An API server without the feature drops the volume. An admission policy may reject the pod for another reason,
    // which says nothing about volumes.
    if pods.create(&dry_run, &probe(image)?).await.is_ok_and(|pod| !has_image_volume(&pod)) {
        bail!(
            "the cluster at {} does not support image volumes, so nothing was changed: omit `--image-volumes`, or use Kubernetes 1.35 or newer (1.33 and 1.34 have them with the feature gate `ImageVolume`)",
            cluster.server,
        );
    }
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    // Listing nodes needs permission. Without it the check is skipped; a pod without the runner reports the cause
    // itself.
    let Ok(nodes) = nodes.list(&ListParams::default()).await else { return Ok(()) };
    for node in nodes {
        let runtime = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let runtime = runtime.map(|info| info.container_runtime_version.as_str()).unwrap_or_default();
        if is_too_old(runtime) {
            bail!(
                "node `{}` runs the container runtime `{runtime}`, which does not support image volumes, so nothing was changed: omit `--image-volumes`, or use containerd 2.1 or CRI-O 1.33",
                node.name_any()
            );
        }
    }
    Ok(())
}

/// A minimal pod with an image volume, for a dry run.
fn probe(image: &str) -> serde_json::Result<Pod> {
    serde_json::from_value(serde_json::json!({
        "metadata": {"generateName": "knoll-image-volume-"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "probe",
                "image": image,
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "image", "mountPath": "/image", "readOnly": true}],
            }],
            "volumes": [{"name": "image", "image": {"reference": image}}],
        },
    }))
}

fn has_image_volume(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|volume| volume.image.is_some())
}

/// Whether a runtime version is known to lack image volumes.
fn is_too_old(runtime: &str) -> bool {
    let Some((name, told)) = runtime.split_once("://") else { return false };
    let mut numbers = told.trim_start_matches('v').split('.').map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return false };
    RUNTIMES.iter().any(|(known, first)| *known == name && (major, minor) < *first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_that_mount_no_images_are_known_by_their_version() {
        for old in ["containerd://1.6.20~ds1", "containerd://2.0.4", "cri-o://1.32.1"] {
            assert!(is_too_old(old), "{old}");
        }
        for new in
            ["containerd://2.1.0", "containerd://v2.2.3-k3s1", "containerd://3.0", "cri-o://1.34.0", "new://1", ""]
        {
            assert!(!is_too_old(new), "{new}");
        }
    }
}
