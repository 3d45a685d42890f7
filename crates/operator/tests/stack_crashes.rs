//! An operator that is killed after any single write of a Stack's life is followed by one that comes to the same end.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use cluster::{DEADLINE, Operator, World, dies_after, ends};
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::MicroTime};
use knoll_api::{
    Run, Stack,
    run::{StepName, StepStatus},
    stack::StackPhase,
    wire::Progress,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, wait::await_condition, watcher},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Plays the runner of every Run, and notes the names of all there ever were.
async fn runners(world: &World, names: Arc<Mutex<BTreeSet<String>>>) {
    let events = watcher(world.api::<Run>(), watcher::Config::default()).default_backoff().touched_objects();
    let mut events = std::pin::pin!(events);
    while let Some(run) = events.try_next().await.transpose() {
        let Ok(run) = run else { continue };
        names.lock().unwrap().insert(run.name_any());
        let goes_on = run.status.as_ref().is_some_and(|status| status.pod_uid.is_some() && !status.phase.is_finished());
        if goes_on && world.api::<Run>().get_opt(&run.name_any()).await.unwrap().is_some() {
            let steps = vec![StepStatus::started(StepName::Apply, MicroTime(Timestamp::now()), 0)];
            world.report(&run.name_any(), &Progress { steps, ..ends(0) }).await;
        }
    }
}

async fn settled(world: &World, runs: u32) {
    let wanted = |stack: Option<&Stack>| {
        let status = stack.and_then(|stack| stack.status.as_ref());
        status.is_some_and(|status| status.phase == StackPhase::Ready && status.settled == runs)
    };
    let settled = tokio::time::timeout(DEADLINE, await_condition(world.api::<Stack>(), "net", wanted)).await;
    if settled.is_err() {
        panic!("never settled with {runs} runs: {:#?}", world.api::<Stack>().get_opt("net").await.unwrap());
    }
}

/// What a person does.
async fn live(world: &World) {
    let secret = json!({"metadata": {"name": "vars"}, "stringData": {"size": "1"}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    world.api().create(&PostParams::default(), &secret).await.unwrap();
    let stack = json!({
        "apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "net"},
        "spec": {
            "source": {"inline": {"main.tf": ""}},
            "variablesFrom": [{"secretRef": {"name": "vars"}}],
            "outputs": {"secretName": "out"},
        },
    });
    let stack: Stack = serde_json::from_value(stack).unwrap();
    let stacks: Api<Stack> = world.api();
    stacks.create(&PostParams::default(), &stack).await.unwrap();
    settled(world, 1).await;
    let edit = Patch::Merge(json!({"stringData": {"size": "2"}}));
    world.api::<Secret>().patch("vars", &PatchParams::default(), &edit).await.unwrap();
    settled(world, 2).await;
    stacks.delete("net", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(stacks, "net", |stack: Option<&Stack>| stack.is_none());
    tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();
}

/// Lives the life of a Stack while the operator is killed after its write number `last`; whether it came to that.
async fn check(cluster: &World, last: usize) -> bool {
    let world = cluster.beside(&format!("after-{last}")).await;
    let died = CancellationToken::new();
    let first = Operator::within(dies_after(world.client.clone(), last, died.clone()));
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    let followed = async {
        died.cancelled().await;
        first.kill().await;
        let _second = Operator::within(world.client.clone());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = live(&world) => {}
        () = followed => {}
        () = runners(&world, names.clone()) => {}
    }
    let names = names.lock().unwrap().clone();
    assert_eq!(names.len(), 3, "killed after write {last}: {names:?}");
    died.is_cancelled()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_after_any_write_of_a_stack_is_followed_to_the_same_end() {
    // Every write of the way, four ways at a time, until one comes to its end undisturbed.
    let world = World::start().await;
    for last in (1..).step_by(4) {
        assert!(last < 200, "a Stack's life takes no more writes than that");
        let reached = futures::future::join_all((last..last + 4).map(|last| check(&world, last))).await;
        if reached.contains(&false) {
            assert!(last > 20, "a Stack's life takes more writes than that");
            return;
        }
    }
}
