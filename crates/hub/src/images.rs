//! The images that the pods of a Run really run in, as their node reports them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::run::Run;
use knoll_core::frozen::{changed_since_planned, has_reported_images, image_digests, other_image};
use knoll_core::steps::{Stage, stage};
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};

use crate::auth::Caller;
use crate::error::Error;

/// How long a node may take to report the images of a pod whose plan is made. A kubelet reports within a second or two; a
/// node that never does leaves the images by their names.
const PATIENCE: Duration = Duration::from_secs(3);

/// The digests of the images of a pod that has planned for another one; none for any other pod.
pub async fn of_plan(client: &Client, caller: &Caller, run: &Run) -> Result<BTreeMap<String, String>, Error> {
    if stage_of(run) != Stage::Plan {
        return Ok(BTreeMap::new());
    }
    let Some(pod) = pod(client, caller).await? else { return Ok(BTreeMap::new()) };
    if has_reported_images(&pod) {
        return Ok(image_digests(&pod));
    }
    let api: Api<Pod> = Api::namespaced(client.clone(), &caller.namespace);
    let looks = watch_object(api, &caller.pod).filter_map(|look| {
        let pod = look.ok().flatten().filter(|pod| pod.metadata.uid.as_ref() == Some(&caller.uid));
        std::future::ready(pod.filter(has_reported_images))
    });
    let mut looks = std::pin::pin!(looks);
    let complete = tokio::time::timeout(PATIENCE, looks.next()).await.ok().flatten();
    Ok(image_digests(&complete.unwrap_or(pod)))
}

/// Checks that a pod that applies runs in the images that were planned with.
///
/// # Errors
/// When it does not, or its node has not reported them yet.
pub async fn are_those_of_the_plan(client: &Client, caller: &Caller, run: &Run) -> Result<(), Error> {
    let job = run.status.as_ref().and_then(|status| status.job.as_ref());
    let Some(job) = job.filter(|job| !job.image_digests.is_empty() && stage_of(run) == Stage::Apply) else {
        return Ok(());
    };
    let pod = pod(client, caller).await?.ok_or_else(|| Error::Fenced("the pod is gone".to_owned()))?;
    match other_image(job, &pod) {
        Ok(None) => Ok(()),
        Ok(Some(container)) => {
            Err(Error::Changed(changed_since_planned(&format!("The image of the container `{container}`"))))
        }
        Err(container) => {
            Err(Error::NotYet(format!("the node has not yet reported the image of the container `{container}`")))
        }
    }
}

fn stage_of(run: &Run) -> Stage {
    stage(&run.spec, &run.status.clone().unwrap_or_default())
}

async fn pod(client: &Client, caller: &Caller) -> Result<Option<Pod>, Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &caller.namespace);
    Ok(api.get_opt(&caller.pod).await?.filter(|pod| pod.metadata.uid.as_deref() == Some(caller.uid.as_str())))
}
