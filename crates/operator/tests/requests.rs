//! What a run costs: the requests of the operator, counted.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::sync::{Arc, Mutex};

use cluster::{DEADLINE, Operator, World, apply, ends};
use http::Request;
use knoll_api::{Run, Stack, Workspace, run::RunPhase, stack::StackPhase, wire::Progress};
use kube::{Client, api::PostParams, client::Body, runtime::wait::await_condition};
use serde_json::json;

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
async fn a_run_takes_five_writes_its_events_and_no_read_and_the_first_of_a_workspace_its_finalizer() {
    let world = World::start().await;
    world.workspace("net").await;
    let (client, requests) = recorded(world.client.clone());
    let operator = Operator::start(client);
    world.workspace_until("net", |workspace| workspace.status.is_some()).await;
    requests.lock().unwrap().clear();

    // As the command line and the Stacks create it.
    let mut run = Run::new("one", apply("net"));
    run.metadata.finalizers = knoll_core::run::finalizers(&run.spec);
    world.api::<Run>().create(&PostParams::default(), &run).await.unwrap();
    world.phase("one", RunPhase::Starting).await;
    world.report("one", &Progress::default()).await;
    world.report("one", &ends(0)).await;
    world.phase("one", RunPhase::Succeeded).await;
    let idle = |workspace: &Workspace| workspace.status.as_ref().is_some_and(|status| status.active.is_none());
    world.workspace_until("net", idle).await;
    world.run_until("one", "it is let go", |run| run.metadata.finalizers.is_none()).await;
    operator.stop().await;

    let (events, rest): (Vec<String>, Vec<String>) =
        requests.lock().unwrap().drain(..).partition(|request| request == "POST events");
    let first = ["PATCH workspaces/net", "PATCH workspaces/net/status", "POST pods", "PATCH runs/one/status"];
    assert_eq!(rest[..4], first);
    // The Workspace and the Run are let go side by side.
    let mut last = rest[4..].to_vec();
    last.sort_unstable();
    assert_eq!(last, ["PATCH runs/one", "PATCH workspaces/net/status"]);
    // Started, perhaps seen at work, ended.
    assert!((2..=3).contains(&events.len()), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_comes_to_settled_stacks_writes_nothing() {
    const COUNT: usize = 40;
    let world = World::start().await;
    let stack = |name: &str| -> Stack {
        let spec = json!({"source": {"inline": {"main.tf": format!("# {name}")}}, "variables": {"name": name}, "outputs": {"secretName": format!("{name}-outputs")}});
        serde_json::from_value(
            json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": name}, "spec": spec}),
        )
        .unwrap()
    };
    let first = world.operator();
    let settle = async |number: usize| {
        let name = format!("s{number}");
        world.api::<Stack>().create(&PostParams::default(), &stack(&name)).await.unwrap();
        let settled = |stack: Option<&Stack>| {
            let status = stack.and_then(|stack| stack.status.as_ref());
            status.is_some_and(|status| status.phase == StackPhase::Ready && status.outputs_digest.is_some())
        };
        let started = |stack: Option<&Stack>| {
            stack.and_then(|stack| stack.status.as_ref()).is_some_and(|status| status.last_run.is_some())
        };
        let begun = await_condition(world.api::<Stack>(), &name, started).await.unwrap().unwrap();
        let run = begun.status.unwrap().last_run.unwrap();
        world.run_until(&run, "started", |run| run.status.as_ref().is_some_and(|s| s.pod_uid.is_some())).await;
        world.report(&run, &ends(0)).await;
        await_condition(world.api::<Stack>(), &name, settled).await.unwrap();
        let idle = |workspace: &Workspace| workspace.status.as_ref().is_some_and(|status| status.active.is_none());
        world.workspace_until(&name, idle).await;
        world.run_until(&run, "it is let go", |run| run.metadata.finalizers.is_none()).await;
    };
    let all = futures::future::join_all((0..COUNT).map(settle));
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    first.stop().await;

    let (client, requests) = recorded(world.client.clone());
    let second = Operator::start(client);
    // When the operator has come to one that was created after it began, it has been through all that were there before.
    world.api::<Stack>().create(&PostParams::default(), &stack("last")).await.unwrap();
    let started = |stack: Option<&Stack>| {
        stack.and_then(|stack| stack.status.as_ref()).is_some_and(|status| status.last_run.is_some())
    };
    let begun = tokio::time::timeout(DEADLINE, await_condition(world.api::<Stack>(), "last", started)).await;
    let run = begun.unwrap().unwrap().unwrap().status.unwrap().last_run.unwrap();
    world.run_until(&run, "started", |run| run.status.as_ref().is_some_and(|s| s.pod_uid.is_some())).await;
    second.stop().await;
    let about_others = |request: &&String| {
        let writes = ["POST", "PUT", "PATCH", "DELETE"].iter().any(|verb| request.starts_with(verb));
        let about_last = request.contains("last") || request.starts_with("POST ");
        writes && !about_last
    };
    let requests = requests.lock().unwrap();
    let written: Vec<&String> = requests.iter().filter(about_others).collect();
    assert!(written.is_empty(), "{written:?}");
    // What the last one takes: its bundle, its variables, its Run, the pod of that; and events.
    let created = requests.iter().filter(|request| request.starts_with("POST ") && *request != "POST events").count();
    assert_eq!(created, 4, "{requests:?}");
}
