//! Runs through queue, pod and back, on the embedded API.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use cluster::{World, apply, approval, digest, ends, plans, waits_for};
use k8s_openapi::api::{
    core::v1::{Pod, Secret},
    events::v1::Event,
};
use knoll_api::{
    Approval, Policy, Run, Workspace,
    approval::ApprovalPhase,
    names::{annotation, condition, reason},
    run::{RunApproval, RunPhase, RunSpec},
    wire::Progress,
    workspace::WorkspaceSpec,
};
use knoll_core::conditions;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::json;

fn ready(run: &Run) -> (RunPhase, String) {
    let status = run.status.as_ref().unwrap();
    (status.phase, conditions::find(&status.conditions, condition::READY).unwrap().reason.clone())
}

#[tokio::test]
async fn a_run_gets_its_pod_and_lets_go_of_the_lock_at_its_end() {
    let world = World::start().await;
    let operator = world.operator();
    world.workspace("net").await;
    world.run("one", apply("net")).await;

    let run = world.phase("one", RunPhase::Starting).await;
    let pod = world.api::<Pod>().get("one").await.unwrap();
    assert_eq!(run.status.as_ref().unwrap().pod_uid, pod.uid());
    let workspace: Workspace = world.api().get("net").await.unwrap();
    assert_eq!(workspace.status.unwrap().active.as_deref(), Some("one"));

    world.report("one", &Progress::default()).await;
    world.phase("one", RunPhase::Running).await;
    let head = json!({
        "metadata": {
            "name": "knoll-state-net",
            "labels": {"knoll.dev/workspace": "net", "knoll.dev/content": "state"},
            "annotations": {
                "knoll.dev/serial": "3", "knoll.dev/lineage": "l", "knoll.dev/digest": "sha256:d",
                "knoll.dev/resources": "2", "knoll.dev/outputs": "{\"vpc\":\"vpc-1\"}",
            },
        },
    });
    let head: Secret = serde_json::from_value(head).unwrap();
    world.api::<Secret>().create(&PostParams::default(), &head).await.unwrap();
    world.report("one", &ends(0)).await;

    let idle = world.workspace_until("net", |workspace| {
        workspace.status.as_ref().is_some_and(|status| status.active.is_none() && status.state.is_some())
    });
    let status = idle.await.status.unwrap();
    assert_eq!(status.state.unwrap().serial, 3);
    assert_eq!(status.outputs["vpc"], json!("vpc-1"));
    assert_eq!(ready(&world.api().get("one").await.unwrap()).0, RunPhase::Succeeded);
    operator.stop().await;

    // Whatever waited to be told was told before the end.
    let events = world.api::<Event>().list(&ListParams::default()).await.unwrap();
    let mut reasons: Vec<String> = events.iter().filter_map(|event| event.reason.clone()).collect();
    reasons.sort();
    assert_eq!(reasons, ["Running", "Starting", "Succeeded"]);
}

#[tokio::test]
async fn runs_of_one_workspace_go_one_after_the_other() {
    let world = World::start().await;
    world.workspace("net").await;
    // Made before the operator looks, perhaps within one second.
    let names = ["c", "a", "b"];
    for name in names {
        world.run(name, apply("net")).await;
    }
    let plan = RunSpec { operation: knoll_api::run::Operation::Plan, ..apply("net") };
    world.run("plan", plan).await;

    let operator = world.operator();
    world.phase("plan", RunPhase::Starting).await;
    for (index, name) in names.into_iter().enumerate() {
        world.phase(name, RunPhase::Starting).await;
        for (waiting, position) in names[index + 1..].iter().zip(1..) {
            let queued = |run: &Run| run.status.as_ref().is_some_and(|status| status.position == Some(position));
            world.run_until(waiting, "queued", queued).await;
        }
        let pods = world.pods().await.iter().filter(|pod| pod.name_any() != "plan").count();
        assert_eq!(pods, index + 1, "only the active one has a pod");
        world.report(name, &ends(0)).await;
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_lost_pod_fails_its_run_and_the_next_one_starts() {
    let world = World::start().await;
    let operator = world.operator();
    world.workspace("net").await;
    world.run("one", apply("net")).await;
    world.phase("one", RunPhase::Starting).await;
    world.run("two", apply("net")).await;
    world.phase("two", RunPhase::Queued).await;

    let terminated = json!({"exitCode": 137, "reason": "OOMKilled"});
    let container = json!({
        "name": "runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": terminated},
    });
    world.pod_status("one", json!({"phase": "Failed", "containerStatuses": [container]})).await;
    let failed = world.phase("one", RunPhase::Failed).await;
    assert_eq!(ready(&failed).1, reason::OOM_KILLED);

    world.phase("two", RunPhase::Starting).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    world.api::<Pod>().delete("two", &now).await.unwrap();
    let failed = world.phase("two", RunPhase::Failed).await;
    assert_eq!(ready(&failed).1, reason::POD_DELETED);
    operator.stop().await;
}

#[tokio::test]
async fn a_run_waits_for_a_workspace_that_comes_later() {
    let world = World::start().await;
    let operator = world.operator();
    world.run("one", apply("net")).await;
    let told = |run: &Run| run.status.is_some();
    let run = world.run_until("one", "told", told).await;
    assert_eq!(ready(&run), (RunPhase::Pending, reason::WORKSPACE_NOT_FOUND.to_owned()));
    world.workspace("net").await;
    world.phase("one", RunPhase::Starting).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_cancelled_run_leaves_the_queue() {
    let world = World::start().await;
    let operator = world.operator();
    world.workspace("net").await;
    world.run("one", apply("net")).await;
    world.phase("one", RunPhase::Starting).await;
    world.run("two", apply("net")).await;
    world.phase("two", RunPhase::Queued).await;
    let cancel = Patch::Merge(json!({"metadata": {"annotations": {annotation::CANCEL: "yes"}}}));
    world.api::<Run>().patch("two", &PatchParams::default(), &cancel).await.unwrap();
    world.phase("two", RunPhase::Cancelled).await;
    world
        .workspace_until("net", |workspace| workspace.status.as_ref().is_some_and(|status| status.queue.is_empty()))
        .await;

    world.api::<Run>().patch("one", &PatchParams::default(), &cancel).await.unwrap();
    world.phase("one", RunPhase::Cancelled).await;
    operator.stop().await;
}

#[tokio::test]
async fn exactly_the_approved_plan_gets_a_second_pod() {
    let world = World::start().await;
    let operator = world.operator();
    world.workspace("net").await;
    world.run("one", RunSpec { approval: RunApproval::Manual, ..apply("net") }).await;
    world.phase("one", RunPhase::Starting).await;
    world.report("one", &plans(digest('a'))).await;
    let reviewed = waits_for(&world.phase("one", RunPhase::Review).await);

    let approvals: Api<Approval> = world.api();
    let phase = |wanted: ApprovalPhase| {
        move |approval: Option<&Approval>| {
            approval.is_some_and(|approval| approval.status.as_ref().is_some_and(|status| status.phase == wanted))
        }
    };
    approvals.create(&PostParams::default(), &approval("wrong", "one", digest('b'))).await.unwrap();
    let told = await_condition(approvals.clone(), "wrong", phase(ApprovalPhase::NoEffect));
    tokio::time::timeout(cluster::DEADLINE, told).await.unwrap().unwrap();
    assert_eq!(world.pods().await.len(), 1);

    approvals.create(&PostParams::default(), &approval("right", "one", reviewed)).await.unwrap();
    let applied = |run: &Run| run.status.as_ref().is_some_and(|s| s.pod_name.as_deref() == Some("one-apply"));
    world.run_until("one", "applied", applied).await;
    let told = await_condition(approvals, "right", phase(ApprovalPhase::Effective));
    tokio::time::timeout(cluster::DEADLINE, told).await.unwrap().unwrap();
    world.report("one", &ends(0)).await;
    world.phase("one", RunPhase::Succeeded).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_deleted_run_holds_the_lock_until_its_pod_has_ended() {
    let world = World::start().await;
    let operator = world.operator();
    world.workspace("net").await;
    world.run("one", apply("net")).await;
    world.phase("one", RunPhase::Starting).await;
    // A pod that its kubelet has not ended yet.
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["test/kubelet"]}}));
    world.api::<Pod>().patch("one", &PatchParams::default(), &hold).await.unwrap();
    world.run("two", apply("net")).await;
    world.phase("two", RunPhase::Queued).await;
    world.api::<Run>().delete("one", &DeleteParams::default()).await.unwrap();
    let told = |run: &Run| run.status.as_ref().is_some_and(|_| ready(run).1 == reason::CANCELLED);
    world.run_until("one", "it is asked to stop", told).await;
    // Even one that somebody frees by force.
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.api::<Run>().patch("one", &PatchParams::default(), &free).await.unwrap();
    let gone = await_condition(world.api::<Run>(), "one", |run: Option<&Run>| run.is_none());
    tokio::time::timeout(cluster::DEADLINE, gone).await.unwrap().unwrap();
    // A run beside the queue has to come through the same controllers, so by then they have looked.
    let plan = RunSpec { operation: knoll_api::run::Operation::Plan, ..apply("net") };
    world.run("plan", plan).await;
    world.phase("plan", RunPhase::Starting).await;
    let workspace: Workspace = world.api().get("net").await.unwrap();
    assert_eq!(workspace.status.unwrap().active.as_deref(), Some("one"));

    world.api::<Pod>().patch("one", &PatchParams::default(), &free).await.unwrap();
    let _ = world
        .api::<Pod>()
        .delete("one", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await;
    world.phase("two", RunPhase::Starting).await;
    operator.stop().await;
}

/// Each of these commands waited two minutes for its server, in one of the few places for Runs of all namespaces.
#[tokio::test(flavor = "multi_thread")]
async fn commands_whose_git_server_never_answers_held_up_every_run() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Connections are taken by the kernel, and nobody reads from them.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/net.git", server.local_addr().unwrap());
    let world = World::start().await;
    let operator = world.operator();
    let spec = WorkspaceSpec { privileged_commands: vec!["sh".to_owned()], ..WorkspaceSpec::default() };
    world.api::<Workspace>().create(&PostParams::default(), &Workspace::new("guarded", spec)).await.unwrap();
    let command = json!({
        "workspace": "guarded", "operation": "command", "command": "sh", "args": ["-c", "true"],
        "source": {"git": {"url": url}},
    });
    let command: RunSpec = serde_json::from_value(command).unwrap();
    for number in 0..40 {
        world.run(&format!("command-{number}"), command.clone()).await;
    }
    let fetching = |run: &Run| {
        let conditions = run.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.reason == reason::FETCHING)
    };
    for number in 0..40 {
        world.run_until(&format!("command-{number}"), "was being fetched for", fetching).await;
    }
    world.workspace("net").await;
    world.run("one", apply("net")).await;
    world.phase("one", RunPhase::Starting).await;
    drop(server);
    operator.kill().await;
}

/// A Policy with an image that no node can pull kept the Workspace's lock.
#[tokio::test]
async fn a_run_whose_plan_nobody_can_describe_ends_and_names_the_image_of_the_policy() {
    let world = World::start().await;
    let rule = json!({"name": "r", "action": "Warn", "find": "true", "message": "m"});
    let policy = json!({
        "plan": {"rules": [rule], "isolated": true, "image": "registry.example.com/nowhere:1"},
        "limits": {"timeouts": {"pending": "3s"}},
        "defaults": {"proxy": {"https": "http://proxy.example.com:3128"}},
    });
    let policy = Policy::new("isolated", serde_json::from_value(policy).unwrap());
    Api::all(world.client.clone()).create(&PostParams::default(), &policy).await.unwrap();
    let operator = world.operator();
    world.workspace("net").await;
    world.run("one", apply("net")).await;
    world.phase("one", RunPhase::Starting).await;
    world.report("one", &plans(digest('a'))).await;
    let has_judge = |run: &Run| {
        run.status.as_ref().is_some_and(|it| it.pod_name.as_deref() == Some("one-judge") && it.pod_uid.is_some())
    };
    world.run_until("one", "has a pod that describes", has_judge).await;
    let spec = world.api::<Pod>().get("one-judge").await.unwrap().spec.unwrap();
    let runner = spec.containers.iter().find(|container| container.name == "runner").unwrap();
    let env = runner.env.as_ref().unwrap();
    assert!(env.iter().any(|env| env.name == "HTTPS_PROXY"), "{env:?}");
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}});
    let container =
        json!({"name": "runner", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": waiting});
    world.pod_status("one-judge", json!({"containerStatuses": [container]})).await;
    let failed = world.phase("one", RunPhase::Failed).await;
    let ready = conditions::find(&failed.status.as_ref().unwrap().conditions, condition::READY).unwrap();
    assert_eq!(ready.reason, reason::TIMED_OUT);
    let message = &ready.message;
    assert!(message.contains("`registry.example.com/nowhere:1` of the Policy"), "{message}");
    world.workspace_until("net", |it| it.status.as_ref().is_some_and(|status| status.active.is_none())).await;
    operator.stop().await;
}
