//! An operator that is killed after any single write of an update or of a rollback is followed by one that comes to the
//! same end, and nothing is made or deleted once more for it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use cluster::{
    Operator, World,
    atoms::{Life, config_map, documents, hopeless},
    dies_after,
};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use knoll_api::{atom::AtomPhase, names::label};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// How often each ConfigMap of the Atom was made and deleted.
type Counts = Arc<Mutex<BTreeMap<String, (u32, u32)>>>;

async fn count(client: &Client, counts: Counts) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let from = api.list(&ListParams::default().labels(label::ATOM)).await.unwrap().metadata.resource_version.unwrap();
    let mut events = std::pin::pin!(api.watch(&WatchParams::default().labels(label::ATOM), &from).await.unwrap());
    while let Some(event) = events.try_next().await.unwrap() {
        let mut counts = counts.lock().unwrap();
        match event {
            WatchEvent::Added(map) => counts.entry(map.name_any()).or_default().0 += 1,
            WatchEvent::Deleted(map) => counts.entry(map.name_any()).or_default().1 += 1,
            _ => {}
        }
    }
}

/// A ConfigMap that can only be replaced.
fn fixed(value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"k": value},
        "metadata": {"name": "fixed", "annotations": {"knoll.dev/replace": "true"}},
    })
}

/// What a person does: a first version, an update that prunes and replaces, and one that has to be undone.
async fn live(client: &Client) -> BTreeMap<String, Value> {
    let mut life = Life::of(client.clone(), "web");
    life.spec = json!({"deadline": "50s", "rollbackDeadline": "50s"});
    life.version("v1", &documents(&[config_map("a", "1"), config_map("old", "1"), fixed("1")])).await;
    life.wants("v1").await;
    life.ends(AtomPhase::Running).await;
    life.version("v2", &documents(&[config_map("a", "2"), config_map("b", "2"), fixed("2")])).await;
    life.wants("v2").await;
    life.ends(AtomPhase::Running).await;
    life.version("v3", &documents(&[config_map("a", "3"), config_map("c", "3"), fixed("3"), hopeless("hopeless")]))
        .await;
    life.wants("v3").await;
    life.ends(AtomPhase::Reverted).await;
    let ours = ListParams::default().labels(label::ATOM);
    let maps = Api::<ConfigMap>::default_namespaced(client.clone()).list(&ours).await.unwrap();
    let journals = Api::<Secret>::default_namespaced(client.clone()).list_metadata(&ours).await.unwrap();
    assert!(journals.items.is_empty(), "no journal is left");
    maps.items.into_iter().map(|map| (map.name_any(), json!(map.data))).collect()
}

/// Lives the life of an Atom in a namespace of its own while the operator is killed after its write number `last`;
/// whether it came to that.
async fn check(world: &World, last: usize) -> bool {
    let name = format!("after-{last}");
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::all(world.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let own = world.client.clone();
    let client = Client::new(
        tower::service_fn(move |request| {
            let own = own.clone();
            async move { own.send(request).await }
        }),
        &name,
    );
    let died = CancellationToken::new();
    let first = Operator::within(dies_after(world.client.clone(), last, died.clone()), &name);
    let counts = Counts::default();
    let followed = async {
        died.cancelled().await;
        first.kill().await;
        let _second = Operator::within(world.client.clone(), &name);
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = live(&client) => end,
        () = followed => unreachable!(),
        () = count(&client, counts.clone()) => unreachable!(),
    };
    let found = |name: &str, value: &str| (name.to_owned(), json!({"k": value}));
    assert_eq!(end, BTreeMap::from([found("a", "2"), found("b", "2"), found("fixed", "2")]), "after write {last}");
    let counts = counts.lock().unwrap().clone();
    let expect =
        [("a", (1, 0)), ("b", (1, 0)), ("c", (1, 1)), ("fixed", (4, 3)), ("hopeless", (1, 1)), ("old", (1, 1))];
    let counts: Vec<(&str, (u32, u32))> = counts.iter().map(|(name, counts)| (name.as_str(), *counts)).collect();
    assert_eq!(counts, expect, "killed after write {last}");
    died.is_cancelled()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_after_any_write_of_an_atom_is_followed_to_the_same_end() {
    // Every write of the way, four ways at a time, until one comes to its end undisturbed.
    let world = World::start().await;
    for last in (1..).step_by(4) {
        assert!(last < 200, "an Atom's life takes no more writes than that");
        let reached = futures::future::join_all((last..last + 4).map(|last| check(&world, last))).await;
        if reached.contains(&false) {
            assert!(last > 40, "an Atom's life takes more writes than that");
            return;
        }
    }
}
