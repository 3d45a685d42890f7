//! The operator's role has what the controllers ask for. They act here as an account that has that role and no other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::sync::{Arc, Mutex};

use cluster::{DEADLINE, Operator, World, apply, approval, digest, ends, plans, waits_for};
use http::{HeaderValue, Request};
use knoll_api::{
    Approval, Run, Stack, Workspace,
    run::{RunApproval, RunPhase, RunSpec},
    stack::StackPhase,
};
use knoll_operator::lease;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, PostParams},
    client::Body,
    runtime::wait::await_condition,
};
use serde_json::json;

/// A client of the operator's account, and the requests that were forbidden to it.
fn as_operator(client: Client, user: &str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let forbidden: Arc<Mutex<Vec<String>>> = Arc::default();
    let (noted, user) = (forbidden.clone(), HeaderValue::from_str(user).unwrap());
    let service = tower::service_fn(move |mut request: Request<Body>| {
        // A request as another account is for that account's roles to allow.
        let own = !request.headers().contains_key("impersonate-user");
        if own {
            request.headers_mut().insert("impersonate-user", user.clone());
        }
        let (client, noted) = (client.clone(), noted.clone());
        async move {
            let asked = format!("{} {}", request.method(), request.uri());
            let answer = client.send(request).await?;
            if own && answer.status() == 403 {
                noted.lock().unwrap().push(asked);
            }
            Ok::<_, kube::Error>(answer)
        }
    });
    (Client::new(service, "default"), forbidden)
}

/// Creates the namespace, the account and the roles of an installation.
async fn install(world: &World, settings: &knoll_deploy::Settings) {
    let kinds = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    for manifest in knoll_deploy::operator(settings) {
        if !kinds.contains(&manifest.resource.kind.as_str()) {
            continue;
        }
        let api: Api<DynamicObject> = match manifest.namespace() {
            Some(namespace) => Api::namespaced_with(world.client.clone(), namespace, &manifest.resource),
            None => Api::all_with(world.client.clone(), &manifest.resource),
        };
        let object = serde_json::from_value(manifest.value.clone()).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

#[tokio::test]
async fn the_controllers_work_with_the_operators_role_alone() {
    let world = World::start().await;
    let settings = knoll_deploy::Settings::default();
    install(&world, &settings).await;
    let (client, forbidden) = as_operator(world.client.clone(), &settings.operator_user());
    let lease = lease::LeaseSettings::new(&settings.namespace, knoll_deploy::LEASE, "one");
    let operator = Operator::with(client, Some(lease));

    world.workspace("db").await;
    world.run("one", RunSpec { approval: RunApproval::Manual, ..apply("db") }).await;
    world.phase("one", RunPhase::Starting).await;
    world.report("one", &plans(digest('a'))).await;
    world.phase("one", RunPhase::Review).await;
    let reviewed = waits_for(&world.api::<Run>().get("one").await.unwrap());
    world.api::<Approval>().create(&PostParams::default(), &approval("yes", "one", reviewed)).await.unwrap();
    let applies = |run: &Run| run.status.as_ref().is_some_and(|s| s.pod_name.as_deref() == Some("one-apply"));
    world.run_until("one", "applied", applies).await;
    world.report("one", &ends(0)).await;
    world.phase("one", RunPhase::Succeeded).await;
    world.api::<Run>().delete("one", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(world.api::<Run>(), "one", |run: Option<&Run>| run.is_none());
    tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();

    let spec = json!({"source": {"inline": {"main.tf": ""}}, "variables": {"size": 3}, "outputs": {"secretName": "net-outputs"}});
    let stack = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "net"}, "spec": spec});
    let stack: Stack = serde_json::from_value(stack).unwrap();
    world.api::<Stack>().create(&PostParams::default(), &stack).await.unwrap();
    end_of(&world, 1).await;
    stack_until(&world, |stack| stack.is_some_and(|stack| phase_of(stack) == StackPhase::Ready)).await;
    world.api::<Stack>().delete("net", &DeleteParams::default()).await.unwrap();
    end_of(&world, 2).await;
    stack_until(&world, |stack| stack.is_none()).await;
    assert!(
        world.api::<Workspace>().get_opt("net").await.unwrap().is_none_or(|w| w.metadata.deletion_timestamp.is_some())
    );

    operator.stop().await;
    assert_eq!(*forbidden.lock().unwrap(), Vec::<String>::new());
}

fn phase_of(stack: &Stack) -> StackPhase {
    stack.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

async fn stack_until(world: &World, is_so: impl Fn(Option<&Stack>) -> bool) {
    let api: Api<Stack> = world.api();
    if tokio::time::timeout(DEADLINE, await_condition(api.clone(), "net", is_so)).await.is_err() {
        panic!("{:#?}", api.get_opt("net").await);
    }
}

/// Plays the runner of the Stack's Run of this number, to its end.
async fn end_of(world: &World, number: u32) {
    stack_until(world, |stack| {
        stack.and_then(|stack| stack.status.as_ref()).is_some_and(|status| status.runs >= number)
    })
    .await;
    let stack: Stack = world.api().get("net").await.unwrap();
    let run = stack.status.unwrap().last_run.unwrap();
    world.run_until(&run, "started", |run| run.status.as_ref().is_some_and(|status| status.pod_uid.is_some())).await;
    world.report(&run, &ends(0)).await;
}
