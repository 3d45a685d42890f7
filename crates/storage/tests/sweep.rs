//! The sweep of states on the embedded API server: what a crash left behind is deleted, and nothing else.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{annotation, content, label};
use knoll_embedded::Cluster;
use knoll_storage::{Owner, Storage, UNUSED_FOR, sweep_state_parts};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

const NAMESPACE: &str = "default";

fn owner(workspace: &str) -> Owner {
    Owner { workspace: workspace.to_owned(), reference: None, keep: 3, copied: None, is_held: false }
}

fn state(serial: u64) -> String {
    json!({"version": 4, "serial": serial, "lineage": "l", "resources": [], "outputs": {}}).to_string()
}

async fn write(storage: &Storage, workspace: &str, serials: std::ops::RangeInclusive<u64>) {
    let states = storage.states();
    let claim = states.claim(NAMESPACE, &owner(workspace), "pod").await.unwrap();
    for serial in serials {
        let (run, state) = (format!("run-{serial}"), state(serial));
        states.put(NAMESPACE, &owner(workspace), &claim, &run, state.into(), false).await.unwrap();
    }
}

/// A part of a state whose head was never written.
async fn leave_behind(secrets: &Api<Secret>, workspace: &str, name: &str) {
    let part = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "labels": {label::CONTENT: content::STATE_PART, label::WORKSPACE: workspace}},
        "stringData": {"content": "half"},
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(part).unwrap()).await.unwrap();
}

async fn parts(secrets: &Api<Secret>) -> BTreeSet<String> {
    let selector = format!("{}={}", label::CONTENT, content::STATE_PART);
    let found = secrets.list(&ListParams::default().labels(&selector)).await.unwrap();
    found.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn parts_that_no_head_names_are_deleted_when_nobody_has_used_them_for_a_while() {
    let cluster = Cluster::memory().await.unwrap();
    let storage = Storage::new(cluster.client());
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), NAMESPACE);
    write(&storage, "w", 1..=3).await;
    let named = parts(&secrets).await;
    assert_eq!(named.len(), 2, "two earlier versions: {named:?}");
    leave_behind(&secrets, "w", "knoll-state-w-9-cut-0").await;
    leave_behind(&secrets, "w", "knoll-state-w-9-cut-1").await;
    // The head of this one was deleted by hand.
    leave_behind(&secrets, "headless", "knoll-state-headless-1-x-0").await;

    let now = Timestamp::now();
    assert_eq!(sweep_state_parts(&storage, now).await.unwrap().deleted, 0, "they are young");
    let later = now + UNUSED_FOR + UNUSED_FOR / 2;
    // A writer that makes the same write again marks the part that it finds.
    let used = json!({"metadata": {"annotations": {annotation::USED_AT: (now + UNUSED_FOR).to_string()}}});
    secrets.patch("knoll-state-w-9-cut-1", &PatchParams::default(), &Patch::Merge(&used)).await.unwrap();
    assert_eq!(sweep_state_parts(&storage, later).await.unwrap().deleted, 1);
    let mut left = named.clone();
    left.extend(["knoll-state-w-9-cut-1".to_owned(), "knoll-state-headless-1-x-0".to_owned()]);
    assert_eq!(parts(&secrets).await, left);

    assert_eq!(sweep_state_parts(&storage, later + UNUSED_FOR).await.unwrap().deleted, 1);
    left.remove("knoll-state-w-9-cut-1");
    assert_eq!(parts(&secrets).await, left);
    let states = storage.states();
    for serial in 1..=3 {
        assert_eq!(states.version(NAMESPACE, "w", serial).await.unwrap(), state(serial), "all versions are whole");
    }
}

#[tokio::test]
async fn the_parts_of_a_head_that_cannot_be_read_stay() {
    let cluster = Cluster::memory().await.unwrap();
    let storage = Storage::new(cluster.client());
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), NAMESPACE);
    write(&storage, "w", 1..=2).await;
    let damaged = json!({"stringData": {"index": "no JSON"}});
    secrets.patch("knoll-state-w", &PatchParams::default(), &Patch::Merge(&damaged)).await.unwrap();
    let before = parts(&secrets).await;
    let swept = sweep_state_parts(&storage, Timestamp::now() + UNUSED_FOR * 2).await.unwrap();
    assert_eq!((swept.deleted, swept.bad_heads.len()), (0, 1));
    let head = secrets.get("knoll-state-w").await.unwrap();
    assert_eq!((swept.bad_heads[0].workspace.as_str(), &swept.bad_heads[0].uid), ("w", &head.metadata.uid));
    assert_eq!(parts(&secrets).await, before);
    // Nor does a head that is gone take them along: somebody may restore it.
    secrets.delete("knoll-state-w", &DeleteParams::default()).await.unwrap();
    assert_eq!(sweep_state_parts(&storage, Timestamp::now() + UNUSED_FOR * 2).await.unwrap().deleted, 0);
    assert_eq!(parts(&secrets).await, before);
}

/// Once, such a Secret ended the sweep for every namespace behind its own.
#[tokio::test]
async fn a_bad_head_in_one_namespace_does_not_end_the_sweep_of_others() {
    let cluster = Cluster::memory().await.unwrap();
    let storage = Storage::new(cluster.client());
    let mut left = Vec::new();
    for namespace in ["a-enemy", "b-tenant", "c-tenant"] {
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client());
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace);
        let index = if namespace == "a-enemy" { "no JSON" } else { "{}" };
        let head = json!({"metadata": {"name": "knoll-state-w"}, "stringData": {"index": index}});
        secrets.create(&PostParams::default(), &serde_json::from_value(head).unwrap()).await.unwrap();
        leave_behind(&secrets, "w", "knoll-state-w-1-x-0").await;
        left.push(secrets);
    }
    let swept = sweep_state_parts(&storage, Timestamp::now() + UNUSED_FOR * 2).await.unwrap();
    assert_eq!(swept.deleted, 2);
    let bad: Vec<&str> = swept.bad_heads.iter().map(|head| head.namespace.as_str()).collect();
    assert_eq!(bad, ["a-enemy"]);
    assert!(swept.bad_heads[0].why.contains("is no state of Knoll's"), "{swept:?}");
    assert_eq!((parts(&left[0]).await.len(), parts(&left[1]).await.len(), parts(&left[2]).await.len()), (1, 0, 0));
}
