//! Stacks from their inputs to their outputs, on the embedded API. The test plays the runner's part.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::collections::BTreeMap;

use cluster::{DEADLINE, World, ends};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use knoll_api::{
    Run, Stack, Workspace,
    names::{annotation, condition, finalizer, label},
    run::{Operation, RunPhase, StepName, StepStatus},
    stack::StackPhase,
    wire::Progress,
};
use knoll_core::conditions;
use knoll_e2e::git::{HttpServer, PASSWORD, Repositories, USER};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

fn stack(name: &str, spec: Value) -> Stack {
    let mut spec = spec;
    if spec.get("source").is_none() {
        spec["source"] = json!({"inline": {"main.tf": ""}});
    }
    let object = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

async fn create(world: &World, name: &str, spec: Value) {
    world.api::<Stack>().create(&PostParams::default(), &stack(name, spec)).await.unwrap();
}

async fn until(world: &World, name: &str, what: &str, is_so: impl Fn(&Stack) -> bool + Send) -> Stack {
    let api: Api<Stack> = world.api();
    let wanted = |stack: Option<&Stack>| stack.is_some_and(&is_so);
    match tokio::time::timeout(DEADLINE, await_condition(api.clone(), name, wanted)).await {
        Ok(stack) => stack.unwrap().unwrap(),
        Err(_) => panic!("`{name}` is never {what}: {:#?}", api.get_opt(name).await.unwrap().map(|stack| stack.status)),
    }
}

async fn phase(world: &World, name: &str, phase: StackPhase) -> Stack {
    until(world, name, phase.as_str(), |stack| stack.status.as_ref().is_some_and(|status| status.phase == phase)).await
}

async fn gone(world: &World, name: &str) {
    let gone = await_condition(world.api::<Stack>(), name, |stack: Option<&Stack>| stack.is_none());
    tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();
}

/// The runs of a Stack, in their order.
async fn runs(world: &World, name: &str) -> Vec<Run> {
    let mine = ListParams::default().labels(&format!("{}={name}", label::STACK));
    let mut runs = world.api::<Run>().list(&mine).await.unwrap().items;
    runs.sort_by_key(|run| run.annotations()[annotation::NUMBER].parse::<u32>().unwrap());
    runs
}

/// Waits for the run of that number to start.
async fn started(world: &World, name: &str, number: u32) -> Run {
    let named = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.runs >= number);
    let stack = until(world, name, &format!("at run {number}"), named).await;
    // An earlier Stack of that name may have left some behind.
    let is_it = |run: &Run| {
        run.annotations().get(annotation::STACK_UID) == stack.uid().as_ref()
            && run.annotations()[annotation::NUMBER] == number.to_string()
    };
    let run = runs(world, name).await.into_iter().find(is_it);
    let run = run.unwrap();
    world
        .run_until(&run.name_any(), "started", |run| run.status.as_ref().is_some_and(|status| status.pod_uid.is_some()))
        .await
}

/// What a runner does when its apply comes to that end.
async fn end(world: &World, run: &Run, code: i32) {
    let apply = StepStatus::started(
        StepName::Apply,
        k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(Timestamp::now()),
        0,
    );
    let steps = if run.spec.operation == Operation::Plan { Vec::new() } else { vec![apply] };
    world.report(&run.name_any(), &Progress { sequence: 1, steps: steps.clone(), ..Progress::default() }).await;
    world.report(&run.name_any(), &Progress { steps, ..ends(code) }).await;
}

async fn values(world: &World, run: &Run) -> Value {
    let name = &run.spec.snapshot.as_ref().unwrap().variables;
    let secret = world.api::<Secret>().get(name).await.unwrap();
    let kept: Value = serde_json::from_slice(&secret.data.unwrap()["variables.json"].0).unwrap();
    kept["variables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| (v["key"].as_str().unwrap().to_owned(), v["value"].clone()))
        .collect()
}

async fn secret(world: &World, name: &str, key: &str, value: &str) {
    let object = json!({"metadata": {"name": name}, "stringData": {key: value}});
    let object: Secret = serde_json::from_value(object).unwrap();
    world.api().create(&PostParams::default(), &object).await.unwrap();
}

async fn edit(world: &World, name: &str, key: &str, value: &str) {
    let patch = Patch::Merge(json!({"stringData": {key: value}}));
    world.api::<Secret>().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_stack_is_applied_once_and_again_when_what_it_refers_to_changes() {
    let world = World::start().await;
    let operator = world.operator();
    let spec = json!({"source": {"configMap": {"name": "module"}}, "variables": {"size": 3}, "variablesFrom": [{"secretRef": {"name": "vars"}}]});
    create(&world, "net", spec).await;
    let waits = phase(&world, "net", StackPhase::Waiting).await;
    assert_eq!(waits.finalizers(), [finalizer::STACK]);
    let message = &conditions::find(&waits.status.unwrap().conditions, condition::STALLED).unwrap().message.clone();
    assert!(message.contains("ConfigMap `module`"), "{message}");

    // Nothing is polled: that they come is an event.
    let module =
        ConfigMap { data: Some(BTreeMap::from([("main.tf".to_owned(), "# 1".to_owned())])), ..ConfigMap::default() };
    let mut module = module;
    module.metadata.name = Some("module".to_owned());
    world.api::<ConfigMap>().create(&PostParams::default(), &module).await.unwrap();
    secret(&world, "vars", "password", "hunter2").await;
    let run = started(&world, "net", 1).await;
    assert_eq!(values(&world, &run).await, json!({"size": 3, "password": "hunter2"}));
    assert!(!serde_json::to_string(&run).unwrap().contains("hunter2"));
    let workspace: Workspace = world.api().get("net").await.unwrap();
    assert_eq!(workspace.labels()[label::STACK], "net");
    end(&world, &run, 0).await;
    let ready = phase(&world, "net", StackPhase::Ready).await.status.unwrap();
    assert_eq!(ready.applied(), run.spec.snapshot);
    assert_eq!((ready.runs, ready.pending_revision), (1, None));

    edit(&world, "vars", "password", "better").await;
    let second = started(&world, "net", 2).await;
    assert_eq!(values(&world, &second).await["password"], "better");
    end(&world, &second, 0).await;
    phase(&world, "net", StackPhase::Ready).await;
    let patch = Patch::Merge(json!({"data": {"main.tf": "# 2"}}));
    world.api::<ConfigMap>().patch("module", &PatchParams::default(), &patch).await.unwrap();
    let third = started(&world, "net", 3).await;
    let (second, third_snapshot) = (second.spec.snapshot.unwrap(), third.spec.snapshot.clone().unwrap());
    assert_ne!(third_snapshot.bundle, second.bundle);
    assert_eq!(third_snapshot.variables, second.variables);
    end(&world, &third, 0).await;
    let settled = |stack: &Stack| {
        stack.status.as_ref().is_some_and(|status| status.settled == 3 && status.phase == StackPhase::Ready)
    };
    until(&world, "net", "settled", settled).await;

    // A touch that changes no value gives no run, and neither does another operator.
    edit(&world, "vars", "password", "better").await;
    operator.stop().await;
    let before: Stack = world.api().get("net").await.unwrap();
    let operator = world.operator();
    create(&world, "other", json!({})).await;
    started(&world, "other", 1).await;
    let after: Stack = world.api().get("net").await.unwrap();
    assert_eq!(before.resource_version(), after.resource_version(), "nothing is written once it is settled");
    operator.stop().await;
}

#[tokio::test]
async fn ten_edits_end_with_the_last_value_in_no_more_than_two_runs() {
    let world = World::start().await;
    let operator = world.operator();
    secret(&world, "vars", "size", "0").await;
    create(&world, "net", json!({"variablesFrom": [{"secretRef": {"name": "vars"}}]})).await;
    end(&world, &started(&world, "net", 1).await, 0).await;
    phase(&world, "net", StackPhase::Ready).await;
    for value in 1..=10 {
        edit(&world, "vars", "size", &value.to_string()).await;
    }
    end(&world, &started(&world, "net", 2).await, 0).await;
    let rest = until(&world, "net", "settled", |stack| {
        stack
            .status
            .as_ref()
            .is_some_and(|status| status.settled >= 2 && (status.phase == StackPhase::Ready || status.runs > 2))
    })
    .await;
    if rest.status.unwrap().runs > 2 {
        end(&world, &started(&world, "net", 3).await, 0).await;
        phase(&world, "net", StackPhase::Ready).await;
    }
    let all = runs(&world, "net").await;
    assert!(all.len() <= 3, "{:?}", all.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    assert_eq!(values(&world, all.last().unwrap()).await, json!({"size": "10"}));
    operator.stop().await;
}

#[tokio::test]
async fn a_deleted_stack_is_destroyed_although_its_inputs_are_gone() {
    let world = World::start().await;
    let operator = world.operator();
    secret(&world, "vars", "size", "1").await;
    let spec = json!({"variablesFrom": [{"secretRef": {"name": "vars"}}], "outputs": {"secretName": "net-outputs"}});
    create(&world, "net", spec).await;
    end(&world, &started(&world, "net", 1).await, 0).await;
    phase(&world, "net", StackPhase::Ready).await;
    // Somebody deletes it, and it comes back.
    let before = world.api::<Secret>().get("net-outputs").await.unwrap().uid();
    world.api::<Secret>().delete("net-outputs", &DeleteParams::default()).await.unwrap();
    let is_back = move |secret: Option<&Secret>| secret.is_some_and(|secret| secret.uid() != before);
    let back = await_condition(world.api::<Secret>(), "net-outputs", is_back);
    tokio::time::timeout(DEADLINE, back).await.unwrap().unwrap();
    world.api::<Secret>().delete("vars", &DeleteParams::default()).await.unwrap();
    phase(&world, "net", StackPhase::Waiting).await;
    // In the foreground, as some tools do: nothing that the destruction needs may go before.
    world.api::<Stack>().delete("net", &DeleteParams::foreground()).await.unwrap();
    let destroy = started(&world, "net", 2).await;
    assert_eq!((destroy.spec.operation, destroy.labels()[label::PURPOSE].as_str()), (Operation::Destroy, "destroy"));
    assert_eq!(values(&world, &destroy).await, json!({"size": "1"}));
    end(&world, &destroy, 1).await;
    let failed = |stack: &Stack| stack.status.as_ref().is_some_and(|status| status.failure.is_some());
    let failed = until(&world, "net", "failed to be destroyed", failed).await.status.unwrap();
    let ready = conditions::find(&failed.conditions, condition::READY).unwrap();
    assert!(ready.message.contains("ended as Failed"), "{}", ready.message);
    let again = Patch::Merge(json!({"metadata": {"annotations": {annotation::RECONCILE: "now"}}}));
    world.api::<Stack>().patch("net", &PatchParams::default(), &again).await.unwrap();
    end(&world, &started(&world, "net", 3).await, 0).await;
    gone(&world, "net").await;
    let mine = ListParams::default().labels(&format!("{}=net", label::STACK));
    assert!(world.api::<Secret>().list(&mine).await.unwrap().items.is_empty());
    // Their logs can still be read for a while.
    let left: Vec<String> = runs(&world, "net").await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["net-2-destroy", "net-3-destroy"]);
    // The Workspace has a finalizer of its own, which its controller takes off.
    let is_gone = |workspace: Option<&Workspace>| workspace.is_none();
    let deleted = await_condition(world.api::<Workspace>(), "net", is_gone);
    tokio::time::timeout(DEADLINE, deleted).await.unwrap().unwrap();
    operator.stop().await;
}

#[tokio::test]
async fn a_corrected_stack_replaces_a_run_in_image_pull_back_off() {
    let world = World::start().await;
    let operator = world.operator();
    create(&world, "net", json!({"workspace": {"image": "misspelled"}})).await;
    let first = started(&world, "net", 1).await;
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    let runner = json!({
        "name": "runner", "image": "misspelled", "imageID": "", "ready": false, "restartCount": 0, "state": waiting,
    });
    let pod = first.status.as_ref().unwrap().pod_name.clone().unwrap();
    world.pod_status(&pod, json!({"phase": "Pending", "containerStatuses": [runner]})).await;
    let told = phase(&world, "net", StackPhase::Waiting).await;
    let ready = conditions::find(&told.status.as_ref().unwrap().conditions, condition::READY).unwrap().clone();
    assert_eq!(ready.reason, "ImagePullBackOff");
    assert!(ready.message.contains("knoll cancel"), "{}", ready.message);

    let corrected = Patch::Merge(json!({"spec": {"workspace": {"image": "good"}}}));
    world.api::<Stack>().patch("net", &PatchParams::default(), &corrected).await.unwrap();
    end(&world, &started(&world, "net", 2).await, 0).await;
    phase(&world, "net", StackPhase::Ready).await;
    world.phase(&first.name_any(), RunPhase::Discarded).await;
    operator.stop().await;
}

/// Its Workspace goes with the namespace, and cannot be made again to destroy anything with.
#[tokio::test]
async fn a_stack_whose_namespace_goes_says_so_and_can_be_let_go() {
    let everywhere = World::start().await;
    let operator = everywhere.operator();
    let world = everywhere.beside("team").await;
    create(&world, "net", json!({})).await;
    end(&world, &started(&world, "net", 1).await, 0).await;
    phase(&world, "net", StackPhase::Ready).await;
    let states = knoll_storage::Storage::new(world.client.clone()).states();
    let owner =
        knoll_storage::Owner { workspace: "net".to_owned(), reference: None, keep: 3, copied: None, is_held: true };
    let claim = states.claim("team", &owner, "pod").await.unwrap();
    let state = json!({"version": 4, "serial": 1, "lineage": "l", "resources": [], "outputs": {}}).to_string();
    states.put("team", &owner, &claim, "net-1", state.clone().into(), false).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let told = phase(&world, "net", StackPhase::Held).await;
    let ready = conditions::find(&told.status.as_ref().unwrap().conditions, condition::READY).unwrap().clone();
    assert_eq!(ready.status, "False");
    assert!(ready.message.contains("Its namespace is being deleted"), "{}", ready.message);
    let way_out = "kubectl annotate stack net -n team knoll.dev/force-orphan=yes";
    assert!(ready.message.contains(way_out), "{}", ready.message);
    assert!(ready.message.contains("knoll state pull -n team -w net"), "{}", ready.message);
    // The Workspace has gone with the namespace, and the state has not.
    let going = |secret: Option<&Secret>| secret.is_none_or(|secret| secret.metadata.deletion_timestamp.is_some());
    let going = await_condition(world.api::<Secret>(), "knoll-state-net", going);
    tokio::time::timeout(DEADLINE, going).await.unwrap().unwrap();
    assert_eq!(states.read("team", "net").await.unwrap().as_deref(), Some(state.as_bytes()));
    let orphan = Patch::Merge(json!({"metadata": {"annotations": {annotation::FORCE_ORPHAN: "yes"}}}));
    world.api::<Stack>().patch("net", &PatchParams::default(), &orphan).await.unwrap();
    let gone = await_condition(namespaces, "team", |namespace: Option<&Namespace>| namespace.is_none());
    tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();
    operator.stop().await;
}

#[tokio::test]
async fn a_graph_of_stacks_is_made_in_order_and_destroyed_in_reverse() {
    let world = World::start().await;
    let operator = world.operator();
    create(&world, "web", json!({"dependsOn": [{"name": "net"}]})).await;
    let waits = phase(&world, "web", StackPhase::Waiting).await.status.unwrap();
    let message = conditions::find(&waits.conditions, condition::READY).unwrap().message.clone();
    assert_eq!(message, "Waiting for Stack `net`, which does not exist.");
    create(&world, "net", json!({})).await;
    end(&world, &started(&world, "net", 1).await, 0).await;
    end(&world, &started(&world, "web", 1).await, 0).await;
    phase(&world, "web", StackPhase::Ready).await;
    for name in ["net", "web"] {
        world.api::<Stack>().delete(name, &DeleteParams::default()).await.unwrap();
    }
    let destroy = started(&world, "web", 2).await;
    let waits = |stack: &Stack| {
        let status = stack.status.clone().unwrap_or_default();
        conditions::find(&status.conditions, condition::READY).is_some_and(|ready| ready.message.contains("`web`"))
    };
    assert_eq!(until(&world, "net", "waiting for web", waits).await.status.unwrap().runs, 1);
    end(&world, &destroy, 0).await;
    gone(&world, "web").await;
    end(&world, &started(&world, "net", 2).await, 0).await;
    gone(&world, "net").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_failed_revision_is_rolled_back_and_an_orphan_leaves_everything() {
    let world = World::start().await;
    let operator = world.operator();
    create(&world, "net", json!({"onFailure": "Rollback", "variables": {"size": 1}})).await;
    let first = started(&world, "net", 1).await;
    end(&world, &first, 0).await;
    phase(&world, "net", StackPhase::Ready).await;
    let patch = Patch::Merge(json!({"spec": {"variables": {"size": 2}}}));
    world.api::<Stack>().patch("net", &PatchParams::default(), &patch).await.unwrap();
    end(&world, &started(&world, "net", 2).await, 1).await;
    let back = started(&world, "net", 3).await;
    assert_eq!(back.spec.snapshot, first.spec.snapshot);
    end(&world, &back, 0).await;
    phase(&world, "net", StackPhase::Reverted).await;

    let patch = Patch::Merge(json!({"spec": {"deletionPolicy": "Orphan"}}));
    world.api::<Stack>().patch("net", &PatchParams::default(), &patch).await.unwrap();
    world.api::<Stack>().delete("net", &DeleteParams::default()).await.unwrap();
    gone(&world, "net").await;
    assert!(world.api::<Workspace>().get_opt("net").await.unwrap().is_some());
    // Another Stack of that name takes it over.
    create(&world, "net", json!({})).await;
    let run = started(&world, "net", 1).await;
    assert_eq!(run.status.unwrap().phase, RunPhase::Starting);
    operator.stop().await;
}

/// What Knoll has kept of the files of a Run.
async fn module(world: &World, run: &Run) -> String {
    let digest = &run.spec.snapshot.as_ref().unwrap().bundle;
    let bytes = knoll_storage::Storage::new(world.client.clone())
        .bundles()
        .fetch("default", &digest.parse().unwrap())
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    knoll_bundle::unpack(&bytes, folder.path(), |_| true).unwrap();
    std::fs::read_to_string(folder.path().join("main.tf")).unwrap()
}

fn fetched(status: &knoll_api::stack::StackStatus) -> (String, String) {
    let found = conditions::find(&status.conditions, condition::FETCHED).cloned().unwrap();
    (found.status, found.message)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_repository_is_followed_and_not_needed_to_destroy() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let repositories = Repositories::new();
    repositories.create("net.git");
    let first = repositories.commit("net.git", &[("live/main.tf", "# 1"), ("README.md", "")]);
    let server = HttpServer::start(&repositories).await;
    let world = World::start().await;
    let operator = world.operator();
    let git = json!({"url": server.url("net.git"), "ref": {"branch": "main"}, "path": "live", "interval": "10s", "secretRef": {"name": "git"}});
    create(&world, "net", json!({"source": {"git": git}})).await;
    let waits = until(&world, "net", "told", |stack| {
        stack.status.as_ref().is_some_and(|status| conditions::holds(&status.conditions, condition::STALLED))
    });
    let message = fetched(&waits.await.status.unwrap()).1;
    assert_eq!(
        message,
        "The Secret `git` with the credentials of the source does not exist; create it, or correct `secretRef`."
    );

    // That the Secret comes is an event, and so is that it is corrected.
    secret(&world, "git", "username", USER).await;
    until(&world, "net", "refused", |stack| {
        stack.status.as_ref().is_some_and(|status| fetched(status).1.contains("it requires credentials (401"))
    })
    .await;
    edit(&world, "git", "password", PASSWORD).await;
    let run = started(&world, "net", 1).await;
    assert_eq!(module(&world, &run).await, "# 1");
    end(&world, &run, 0).await;
    let ready = phase(&world, "net", StackPhase::Ready).await.status.unwrap();
    assert_eq!((ready.source_revision.as_deref(), fetched(&ready).0.as_str()), (Some(first.as_str()), "True"));

    // A person who does not want to wait for the next look asks for it; a commit that changes no file of the module
    // gives no run but the one that was asked for.
    let second = repositories.commit("net.git", &[("live/main.tf", "# 2")]);
    let ask = |value: &str| Patch::Merge(json!({"metadata": {"annotations": {annotation::RECONCILE: value}}}));
    world.api::<Stack>().patch("net", &PatchParams::default(), &ask("now")).await.unwrap();
    let mut number = 2;
    let mut run = started(&world, "net", number).await;
    while module(&world, &run).await != "# 2" {
        end(&world, &run, 0).await;
        number += 1;
        run = started(&world, "net", number).await;
    }
    assert!(number <= 3);
    end(&world, &run, 0).await;
    let at_second = |stack: &Stack| {
        stack.status.as_ref().is_some_and(|status| {
            status.phase == StackPhase::Ready && status.source_revision.as_deref() == Some(second.as_str())
        })
    };
    until(&world, "net", "at the second commit", at_second).await;
    let third = repositories.commit("net.git", &[("README.md", "of no interest")]);
    let known = |stack: &Stack| stack.status.as_ref().unwrap().source_revision.as_deref() == Some(third.as_str());
    let after = until(&world, "net", "at the third commit", known).await;
    assert_eq!(after.status.unwrap().runs, number, "the interval brought it, and it changes nothing");

    // The server goes, and so does the operator: the Stack stays as it is, and is destroyed with what it has.
    drop(server);
    operator.stop().await;
    let operator = world.operator();
    let gone_away = |stack: &Stack| stack.status.as_ref().is_some_and(|status| fetched(status).0 == "False");
    let away = until(&world, "net", "without its server", gone_away).await.status.unwrap();
    assert!(away.phase == StackPhase::Ready && fetched(&away).1.contains("annot reach"), "{away:#?}");
    world.api::<Stack>().delete("net", &DeleteParams::default()).await.unwrap();
    let destroy = started(&world, "net", number + 1).await;
    assert_eq!(module(&world, &destroy).await, "# 2");
    end(&world, &destroy, 0).await;
    gone(&world, "net").await;
    operator.stop().await;
}
