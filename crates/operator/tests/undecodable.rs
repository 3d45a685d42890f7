//! One object that cannot be decoded stops nobody else.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use cluster::{DEADLINE, World, apply};
use futures::TryStreamExt;
use k8s_openapi::{
    api::events::v1::Event, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use knoll_api::{Run, names::reason, run::RunPhase};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;

#[tokio::test]
async fn an_object_that_cannot_be_decoded_stops_nobody_else() {
    let world = World::start().await;
    world.workspace("net").await;
    // The kind as another version may have it: it takes what this version cannot read.
    let anything = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let mut crd = crds.get("runs.knoll.dev").await.unwrap();
    crd.spec.versions[0].schema = Some(serde_json::from_value(anything).unwrap());
    crds.replace("runs.knoll.dev", &PostParams::default(), &crd).await.unwrap();

    let kind = ApiResource::erase::<Run>(&());
    let runs: Api<DynamicObject> = Api::default_namespaced_with(world.client.clone(), &kind);
    let bad =
        |name: &str| DynamicObject::new(name, &kind).data(json!({"spec": {"workspace": 7, "operation": "apply"}}));
    create(&runs, &bad("before")).await;
    let operator = world.operator();
    world.run("good", apply("net")).await;
    world.phase("good", RunPhase::Starting).await;
    create(&runs, &bad("after")).await;
    world.run("better", knoll_api::RunSpec { operation: knoll_api::run::Operation::Plan, ..apply("net") }).await;
    world.phase("better", RunPhase::Starting).await;

    for name in ["before", "after"] {
        let told = watcher(world.api::<Event>(), watcher::Config::default()).default_backoff().applied_objects();
        let told = told.try_filter(|event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name);
            std::future::ready(about && event.reason.as_deref() == Some(reason::UNDECODABLE))
        });
        let mut told = std::pin::pin!(told);
        tokio::time::timeout(DEADLINE, told.try_next()).await.unwrap().unwrap().unwrap();
    }
    operator.stop().await;
}

/// Creates an object, once the kind takes it: the server takes up a changed kind a moment after it was written.
async fn create(api: &Api<DynamicObject>, object: &DynamicObject) {
    let created = async {
        while api.create(&PostParams::default(), object).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, created).await.unwrap();
}
