//! Telling the API server about a pod, in as few requests as can be.
//!
//! The newest status wins: one that nobody has waited for is never sent. A status may be *due* a little later, so that
//! steps that follow each other closely (an init container that only copies a file) become one request.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What the API server should know.
#[derive(Clone, Debug)]
struct Wanted {
    status: Option<PodStatus>,
    due: Instant,
    delete: bool,
}

/// The reporter of one pod. Dropped, it stops after what is under way.
pub struct Reporter {
    wanted: watch::Sender<Wanted>,
}

impl Reporter {
    /// Starts it. What the pod's status says already is not said again.
    pub fn new(client: Client, pod: &Arc<Pod>) -> Self {
        let (wanted, receiver) = watch::channel(Wanted { status: None, due: Instant::now(), delete: false });
        tokio::spawn(report(client, pod.clone(), receiver));
        Self { wanted }
    }

    /// This is the status now; it may be sent `within` that time.
    pub fn publish(&self, status: PodStatus, within: Duration) {
        self.wanted.send_if_modified(|wanted| {
            if wanted.status.as_ref() == Some(&status) {
                return false;
            }
            let due = Instant::now() + within;
            // A status that waits already is replaced, but not put off further.
            let waiting = wanted.due > Instant::now();
            wanted.due = if waiting { wanted.due.min(due) } else { due };
            wanted.status = Some(status);
            true
        });
    }

    /// The pod is over: once its status is known, its object may go.
    pub fn delete(&self) {
        self.wanted.send_if_modified(|wanted| !std::mem::replace(&mut wanted.delete, true));
    }
}

async fn report(client: Client, pod: Arc<Pod>, mut wanted: watch::Receiver<Wanted>) {
    let (Some(name), Some(namespace)) = (&pod.metadata.name, &pod.metadata.namespace) else {
        return;
    };
    let api: Api<Pod> = Api::namespaced(client, namespace);
    let mut known = json!(pod.status);
    let mut pause = Duration::from_millis(50);
    loop {
        let Wanted { status, due, delete } = wanted.borrow_and_update().clone();
        let news = status.map(|status| json!(status)).filter(|status| !holds(&known, status));
        let result = match news {
            Some(_) if due > Instant::now() && !delete => {
                tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    changed = wanted.changed() => if changed.is_err() { return },
                }
                continue;
            }
            Some(status) => {
                // The uid keeps a later pod of the same name from getting this status.
                let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
                api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(|_| known = status)
            }
            None if delete => {
                let preconditions = Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None });
                let params = DeleteParams { preconditions, ..DeleteParams::default().grace_period(0) };
                match api.delete(name, &params).await {
                    Ok(_) => return,
                    Err(error) => Err(error),
                }
            }
            None => {
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            }
        };
        match result {
            Ok(()) => pause = Duration::from_millis(50),
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => {
                tracing::warn!(pod = name, namespace, %error, "a pod's status could not be reported, trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        if wanted.has_changed().is_err() {
            return;
        }
    }
}

/// Merging `status` into `known` would change nothing.
fn holds(known: &Value, status: &Value) -> bool {
    let mut merged = known.clone();
    json_patch::merge(&mut merged, status);
    merged == *known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_said_again() {
        let known = json!({"phase": "Running", "qosClass": "BestEffort", "conditions": [1, 2]});
        assert!(holds(&known, &json!({"phase": "Running", "conditions": [1, 2]})));
        assert!(!holds(&known, &json!({"phase": "Succeeded"})));
        assert!(!holds(&known, &json!({"conditions": [1]})));
        assert!(!holds(&Value::Null, &json!({"phase": "Pending"})));
    }
}
