//! kube-runtime's watcher, reflector, finalizer and Controller, unchanged, in process and over TLS.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::sync::Arc;
use std::time::Duration;

use cluster::TestCluster;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::await_condition;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

/// Long enough for a busy machine, short enough to notice a hang.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs a scenario twice: in process and over TLS.
fn both<F: Future<Output = ()>>(scenario: impl Fn(Client) -> F) {
    let cluster = TestCluster::start();
    cluster.block_on(async {
        tokio::time::timeout(DEADLINE, scenario(cluster.cluster().client())).await.expect("in process");
        tokio::time::timeout(DEADLINE, scenario(cluster.remote().await)).await.expect("over TLS");
    });
}

fn map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("v".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

#[test]
fn a_watcher_sees_what_is_there_and_what_comes() {
    both(|client| async move {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        api.create(&PostParams::default(), &map("first", "1")).await.unwrap();
        for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
            let mut stream = watcher(api.clone(), config.fields("metadata.name=first")).applied_objects().boxed();
            assert_eq!(stream.try_next().await.unwrap().unwrap().name_any(), "first");
            api.patch("first", &PatchParams::default(), &Patch::Merge(json!({"data": {"v": uid()}}))).await.unwrap();
            assert_eq!(stream.try_next().await.unwrap().unwrap().name_any(), "first");
        }
        api.delete("first", &DeleteParams::default()).await.unwrap();
    });
}

fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[test]
fn a_reflector_holds_the_same_as_the_server() {
    both(|client| async move {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let (reader, writer) = reflector::store();
        let stream =
            reflector(writer, watcher(api.clone(), watcher::Config::default().labels("set=mirror"))).applied_objects();
        let task = tokio::spawn(stream.for_each(|_| async {}));
        reader.wait_until_ready().await.unwrap();
        for at in 0..20 {
            let mut object = map(&format!("m{at}"), "1");
            object.metadata.labels = Some([("set".to_owned(), "mirror".to_owned())].into());
            api.create(&PostParams::default(), &object).await.unwrap();
        }
        for at in 0..10 {
            api.delete(&format!("m{at}"), &DeleteParams::default()).await.unwrap();
        }
        // One that leaves the selection leaves the mirror.
        api.patch("m10", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": null}}))).await.unwrap();
        while reader.state().len() != 9 {
            tokio::task::yield_now().await;
        }
        api.delete("m10", &DeleteParams::default()).await.unwrap();
        for at in 11..20 {
            api.delete(&format!("m{at}"), &DeleteParams::default()).await.unwrap();
        }
        while !reader.state().is_empty() {
            tokio::task::yield_now().await;
        }
        task.abort();
    });
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

/// Keeps a Secret for every ConfigMap, and deletes it before the ConfigMap may go.
async fn reconcile(
    object: Arc<ConfigMap>,
    client: Arc<Client>,
) -> Result<Action, kube::runtime::finalizer::Error<Failed>> {
    let api: Api<ConfigMap> = Api::default_namespaced((*client).clone());
    let secrets: Api<Secret> = Api::default_namespaced((*client).clone());
    finalizer(&api, "test.knoll.dev/copy", object, |event| async move {
        match event {
            Event::Apply(object) => {
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": {"name": object.name_any()},
                    "stringData": {"v": object.data.as_ref().and_then(|d| d.get("v"))},
                });
                let params = PatchParams::apply("test").force();
                secrets
                    .patch(&object.name_any(), &params, &Patch::Apply(secret))
                    .await
                    .map_err(|e| Failed(e.to_string()))?;
            }
            Event::Cleanup(object) => {
                secrets
                    .delete(&object.name_any(), &DeleteParams::default())
                    .await
                    .map_err(|e| Failed(e.to_string()))?;
            }
        }
        Ok(Action::await_change())
    })
    .await
}

#[test]
fn a_controller_with_a_finalizer_converges_and_cleans_up() {
    both(|client| async move {
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let secrets: Api<Secret> = Api::default_namespaced(client.clone());
        let config = watcher::Config::default().labels("copy=yes");
        let controller = Controller::new(api.clone(), config)
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(50)), Arc::new(client))
            .for_each(|_| async {});
        let task = tokio::spawn(controller);
        let mut object = map("copied", "one");
        object.metadata.labels = Some([("copy".to_owned(), "yes".to_owned())].into());
        api.create(&PostParams::default(), &object).await.unwrap();
        let holds = |wanted: &'static str| {
            move |secret: Option<&Secret>| {
                secret.and_then(|s| s.data.as_ref()?.get("v")).is_some_and(|v| v.0 == wanted.as_bytes())
            }
        };
        await_condition(secrets.clone(), "copied", holds("one")).await.unwrap();
        api.patch("copied", &PatchParams::default(), &Patch::Merge(json!({"data": {"v": "two"}}))).await.unwrap();
        await_condition(secrets.clone(), "copied", holds("two")).await.unwrap();
        let deleted = api.delete("copied", &DeleteParams::default()).await.unwrap();
        assert!(deleted.is_left(), "the object waits for its finalizer");
        await_condition(api.clone(), "copied", |o: Option<&ConfigMap>| o.is_none()).await.unwrap();
        assert!(secrets.get_opt("copied").await.unwrap().is_none());
        task.abort();
    });
}

#[test]
fn dependents_go_with_their_owner() {
    both(|client| async move {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let owner = api.create(&PostParams::default(), &map("owner", "1")).await.unwrap();
        let mut child = map("child", "1");
        let mut reference = kube::Resource::controller_owner_ref(&owner, &()).unwrap();
        reference.block_owner_deletion = Some(true);
        child.metadata.owner_references = Some(vec![reference]);
        api.create(&PostParams::default(), &child).await.unwrap();
        let mut orphan = map("orphan", "1");
        orphan.metadata.owner_references = child.metadata.owner_references.clone();
        api.create(&PostParams::default(), &orphan).await.unwrap();
        api.patch("orphan", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"ownerReferences": null}})))
            .await
            .unwrap();
        api.delete("owner", &DeleteParams::foreground()).await.unwrap();
        await_condition(api.clone(), "owner", |o: Option<&ConfigMap>| o.is_none()).await.unwrap();
        assert!(api.get_opt("child").await.unwrap().is_none(), "a foreground deletion waits for the dependents");
        assert!(api.get_opt("orphan").await.unwrap().is_some());
        let owner = api.create(&PostParams::default(), &map("owner", "1")).await.unwrap();
        child.metadata.owner_references = Some(vec![kube::Resource::controller_owner_ref(&owner, &()).unwrap()]);
        api.create(&PostParams::default(), &child).await.unwrap();
        api.delete("owner", &DeleteParams::orphan()).await.unwrap();
        await_condition(api.clone(), "owner", |o: Option<&ConfigMap>| o.is_none()).await.unwrap();
        assert!(api.get("child").await.unwrap().metadata.owner_references.unwrap_or_default().is_empty());
        for name in ["child", "orphan"] {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
    });
}
