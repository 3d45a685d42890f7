//! An operator that is killed after any single write is followed by one that comes to the same end.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use cluster::{Operator, World, apply, dies_after, digest, ends, plans, waits_for};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_api::{
    Approval, Workspace,
    run::{Run, RunApproval, RunPhase, RunSpec},
    wire::Progress,
};
use kube::api::PostParams;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// What the hub, the kubelet and a person do meanwhile. It can be taken up again wherever it was left.
async fn play(world: &World, approval: RunApproval) {
    let has_pod = |name: &'static str| {
        move |run: &Run| run.status.as_ref().is_some_and(|status| status.pod_name.as_deref() == Some(name))
    };
    let ended = |run: &Run| run.status.as_ref().is_some_and(|status| status.phase.is_finished());
    if approval == RunApproval::Manual {
        let started = |run: &Run| run.status.as_ref().is_some_and(|status| status.pod_uid.is_some());
        let run = world.run_until("one", "started", started).await;
        if has_pod("one")(&run) {
            let planned = world.report("one", &plans(digest('a'))).await;
            let yes = cluster::approval("yes", "one", waits_for(&planned));
            let _ = world.api::<Approval>().create(&PostParams::default(), &yes).await;
        }
        world.run_until("one", "went on", |run| ended(run) || has_pod("one-apply")(run)).await;
    } else {
        world.run_until("one", "started", |run| ended(run) || has_pod("one")(run)).await;
    }
    world.report("one", &Progress::default()).await;
    world.report("one", &ends(0)).await;
}

/// The run has succeeded, and nobody holds the lock.
async fn done(world: &World) {
    world.phase("one", RunPhase::Succeeded).await;
    let idle = |workspace: &Workspace| {
        workspace.status.as_ref().is_some_and(|status| status.active.is_none() && status.observed_generation.is_some())
    };
    world.workspace_until("net", idle).await;
}

/// A Workspace whose pods take something by name.
async fn workspace_with_settings(world: &World) {
    let map = json!({"metadata": {"name": "settings"}, "data": {"A": "1"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    world.api().create(&PostParams::default(), &map).await.unwrap();
    let spec = json!({"pod": {"envFrom": [{"configMapRef": {"name": "settings"}}]}});
    let workspace = Workspace::new("net", serde_json::from_value(spec).unwrap());
    world.api().create(&PostParams::default(), &workspace).await.unwrap();
}

/// Kills the operator after its first write, then in a new world after its second, until it comes to the end.
async fn check(approval: RunApproval, writes: usize, pods: usize) {
    for last in 1.. {
        // On a busy machine, some writes meet another one and are made again.
        assert!(last <= writes * 3, "one run takes that many writes");
        let world = World::start().await;
        workspace_with_settings(&world).await;
        let died = CancellationToken::new();
        let first = Operator::start(dies_after(world.client.clone(), last, died.clone()));
        world.run("one", RunSpec { approval, ..apply("net") }).await;
        let survived = tokio::select! {
            () = died.cancelled() => false,
            _ = async { tokio::join!(play(&world, approval), done(&world)) } => true,
        };
        first.kill().await;
        if survived {
            // The end can be seen before the death that comes with the last answer.
            assert!(last >= writes, "the operator wrote less than a run takes");
            return;
        }
        let second = world.operator();
        tokio::join!(play(&world, approval), done(&world));
        assert_eq!(world.pods().await.len(), pods, "killed after write {last}");
        let run: Run = world.api().get("one").await.unwrap();
        let has_job = run.status.is_some_and(|status| status.job.is_some());
        assert_eq!(has_job, approval == RunApproval::Manual, "killed after write {last}");
        // The job and the copy of the ConfigMap, of whichever attempt.
        let stored = if has_job { 2 } else { 0 };
        assert_eq!(world.frozen().await.len(), stored, "killed after write {last}");
        second.stop().await;
    }
}

#[tokio::test]
async fn an_operator_killed_after_any_write_of_a_run_is_followed_to_the_same_end() {
    check(RunApproval::Auto, 4, 1).await;
}

#[tokio::test]
async fn an_operator_killed_after_any_write_of_a_reviewed_run_is_followed_to_the_same_end() {
    check(RunApproval::Manual, 8, 2).await;
}
