//! Sweeps the storage at intervals, and reports the heads of states that cannot be read.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use knoll_api::names::{self, reason};
use knoll_core::events::Event;
use knoll_storage::{BadHead, Swept};
use kube::Resource;
use tokio_util::sync::CancellationToken;

use crate::context::Context;

/// How often the storage is swept.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Sweeps at intervals, until `shutdown`.
pub async fn until(context: Arc<Context>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = shutdown.cancelled() => return,
        }
        once(&context, Timestamp::now()).await;
    }
}

async fn once(context: &Context, now: Timestamp) {
    let Swept { deleted, skipped, bad_heads } = match knoll_storage::sweep(&context.storage, now).await {
        Ok(swept) => swept,
        Err(error) => {
            tracing::warn!(%error, "cannot list what is stored; the sweep is tried again later");
            return;
        }
    };
    if deleted > 0 {
        tracing::info!(deleted, "deleted stored content that nothing refers to");
    }
    for (object, why) in skipped {
        tracing::warn!(object, why, "cannot sweep stored content; this is tried again later");
    }
    for head in bad_heads {
        report(context, &head);
    }
}

/// Reports a head that cannot be read, where people look for it: on the Workspace, or on the Secret if no Workspace has
/// that name.
fn report(context: &Context, head: &BadHead) {
    let BadHead { namespace, workspace, uid, why } = head;
    tracing::warn!(namespace, workspace, why, "the head of a state cannot be read, so its parts are not swept");
    context.metrics.skipped(&Secret::kind(&()), "bad-state-head");
    let secret = names::state_secret(workspace);
    let object = match context.caches.workspaces.named(namespace, workspace) {
        Some(workspace) => workspace.object_ref(&()),
        None => ObjectReference {
            api_version: Some(Secret::api_version(&()).into_owned()),
            kind: Some(Secret::kind(&()).into_owned()),
            namespace: Some(namespace.clone()),
            name: Some(secret.clone()),
            uid: uid.clone(),
            ..ObjectReference::default()
        },
    };
    let message = format!(
        "The Secret `{secret}` has the name of a state's head and cannot be read: {why}. Parts of that state are not cleaned up."
    );
    context.events.record(Event { warning: true, reason: reason::STATE_UNREADABLE.to_owned(), message }, object);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use k8s_openapi::api::events::v1::Event as Recorded;
    use knoll_embedded::Cluster;
    use kube::{
        Api,
        api::{ListParams, PostParams},
    };
    use serde_json::json;

    use super::*;
    use crate::watch::tests::context;

    #[tokio::test]
    async fn a_head_that_cannot_be_read_is_counted_and_has_an_event() {
        let cluster = Cluster::memory().await.unwrap();
        for kind in knoll_api::crds() {
            let kinds = Api::all(cluster.client());
            let name = kind.metadata.name.clone().unwrap();
            kinds.create(&PostParams::default(), &kind).await.unwrap();
            let established = kube::runtime::conditions::is_crd_established();
            kube::runtime::wait::await_condition(kinds, &name, established).await.unwrap();
        }
        let (context, _writers, _requests) = context(cluster.client());
        let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
        let labels = json!({"knoll.dev/content": "state-part", "knoll.dev/workspace": "w"});
        for secret in [
            json!({"metadata": {"name": "knoll-state-w"}, "stringData": {"index": "no JSON"}}),
            json!({"metadata": {"name": "knoll-state-w-1-x-0", "labels": labels}}),
        ] {
            secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        }
        once(&context, Timestamp::now() + knoll_storage::UNUSED_FOR * 2).await;

        let text = context.metrics.text();
        let line = r#"knoll_objects_skipped_total{kind="Secret",reason="bad-state-head"} 1"#;
        assert!(text.lines().any(|found| found == line), "{text}");
        let events: Api<Recorded> = Api::default_namespaced(cluster.client());
        let told = |event: &Recorded| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            about == Some("knoll-state-w") && event.reason.as_deref() == Some(reason::STATE_UNREADABLE)
        };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while !events.list(&ListParams::default()).await.unwrap().iter().any(told) {
            assert!(tokio::time::Instant::now() < deadline, "there is no event");
            tokio::task::yield_now().await;
        }
    }
}
