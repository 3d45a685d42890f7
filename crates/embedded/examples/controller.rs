//! A project that tests a controller of its own against an embedded cluster: no Go, no containers, nothing to install.
//!
//! A `Greeting` says whom to greet; its controller writes the text into a ConfigMap that the Greeting owns. The test
//! starts a cluster in memory, installs the kind, runs the controller and watches what becomes of one Greeting.
#![allow(clippy::unwrap_used, reason = "an example of a test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knoll_embedded::Cluster;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
struct GreetingSpec {
    #[schemars(length(min = 1))]
    name: String,
}

/// Applies the ConfigMap of a Greeting.
async fn reconcile(greeting: Arc<Greeting>, client: Arc<Client>) -> kube::Result<Action> {
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(greeting.name_any()),
            owner_references: greeting.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("text".to_owned(), format!("Hello, {}!", greeting.spec.name))])),
        ..ConfigMap::default()
    };
    let maps: Api<ConfigMap> =
        Api::namespaced(client.as_ref().clone(), greeting.meta().namespace.as_deref().unwrap_or("default"));
    maps.patch(&greeting.name_any(), &PatchParams::apply("greeter").force(), &Patch::Apply(&map)).await?;
    Ok(Action::await_change())
}

async fn run_controller(client: Client) {
    Controller::new(Api::<Greeting>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client))
        .for_each(|_| async {})
        .await;
}

/// What the test is about: a Greeting gets its ConfigMap, a bad one is rejected, and a deleted one takes its ConfigMap along.
async fn scenario(client: Client) -> kube::Result<()> {
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    kinds.create(&PostParams::default(), &Greeting::crd()).await?;
    await_condition(kinds, "greetings.example.com", conditions::is_crd_established()).await.unwrap();

    let greetings: Api<Greeting> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let greeting = |name: &str| Greeting::new("first", GreetingSpec { name: name.to_owned() });
    let rejected = greetings.create(&PostParams::default(), &greeting("")).await.unwrap_err();
    assert!(rejected.to_string().contains("spec.name"), "{rejected}");

    greetings.create(&PostParams::default(), &greeting("world")).await?;
    let greeted =
        |map: Option<&ConfigMap>| map.is_some_and(|map| map.data.as_ref().unwrap()["text"] == "Hello, world!");
    await_condition(maps.clone(), "first", greeted).await.unwrap();

    greetings.delete("first", &DeleteParams::default()).await?;
    await_condition(maps, "first", |map: Option<&ConfigMap>| map.is_none()).await.unwrap();
    Ok(())
}

#[tokio::main]
async fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    tokio::select! {
        () = run_controller(client.clone()) => panic!("the controller ended"),
        result = tokio::time::timeout(Duration::from_secs(60), scenario(client)) => result.expect("in time").unwrap(),
    }
    cluster.stop().await;
    println!("the controller greets, and what it made is gone with its Greeting");
}

#[test]
fn the_controller_greets() {
    main();
}
