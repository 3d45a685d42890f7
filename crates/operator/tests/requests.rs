//! What a run costs: the requests of the operator, counted.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::sync::{Arc, Mutex};

use cluster::{Operator, World, apply, ends};
use http::Request;
use knoll_api::{Workspace, run::RunPhase, wire::Progress};
use kube::{Client, client::Body};

/// A client that writes down what it is asked for, watches aside.
fn recorded(client: Client) -> (Client, Arc<Mutex<Vec<String>>>) {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let written = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        if !request.uri().query().unwrap_or_default().contains("watch=") {
            let path = request.uri().path();
            let short = path.split_once("/namespaces/default/").map_or(path, |(_, rest)| rest);
            requests.lock().unwrap().push(format!("{} {short}", request.method()));
        }
        let client = client.clone();
        async move { client.send(request).await }
    });
    (Client::new(service, "default"), written)
}

#[tokio::test]
async fn a_run_takes_four_writes_its_events_and_no_read() {
    let world = World::start().await;
    world.workspace("net").await;
    let (client, requests) = recorded(world.client.clone());
    let operator = Operator::start(client);
    world.workspace_until("net", |workspace| workspace.status.is_some()).await;
    requests.lock().unwrap().clear();

    world.run("one", apply("net")).await;
    world.phase("one", RunPhase::Starting).await;
    world.report("one", &Progress::default()).await;
    world.report("one", &ends(0)).await;
    world.phase("one", RunPhase::Succeeded).await;
    let idle = |workspace: &Workspace| workspace.status.as_ref().is_some_and(|status| status.active.is_none());
    world.workspace_until("net", idle).await;
    operator.stop().await;

    let (events, rest): (Vec<String>, Vec<String>) =
        requests.lock().unwrap().drain(..).partition(|request| request == "POST events");
    assert_eq!(
        rest,
        ["PATCH workspaces/net/status", "POST pods", "PATCH runs/one/status", "PATCH workspaces/net/status"]
    );
    // Started, perhaps seen at work, ended.
    assert!((2..=3).contains(&events.len()), "{events:?}");
}
