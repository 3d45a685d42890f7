//! The pod that applies gets the job that was frozen before the plan, or none.

use super::*;

/// The pod of a Run whose plan was approved, with this frozen job in its status.
async fn approved(world: &World, name: &str, job: impl AsyncFnOnce(&Run) -> serde_json::Value) -> world::Runner {
    let spec = RunSpec { approval: RunApproval::Manual, ..apply() };
    let run = world.api::<Run>().create(&PostParams::default(), &Run::new(name, spec)).await.unwrap();
    let runner = world.pod(name).await;
    let decision = json!({"approval": "yes", "decision": "Approve", "by": "ann"});
    let status = json!({"phase": "Running", "podName": name, "podUID": runner.uid, "decision": decision, "job": job(&run).await});
    world.set_status(name, json!({ "status": status })).await;
    runner
}

/// Why a run failed; none while it has not.
async fn failure(world: &World, name: &str) -> Option<String> {
    let status = world.run(name).await.status.unwrap();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.filter(|_| status.phase == RunPhase::Failed).map(|ready| ready.reason.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_whose_job_was_not_frozen_gets_none() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let runner = approved(&world, "r", async |_| json!(null)).await;
    assert_eq!(runner.get(path::JOB).await.0, 422);
    assert_eq!(failure(&world, "r").await.as_deref(), Some(reason::CHANGED_SINCE_PLANNED));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_in_another_image_than_the_plan_gets_no_job() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let image = |digit: &str| format!("docker.io/hashicorp/terraform@sha256:{}", digit.repeat(64));
    let freeze = async |run: &Run| {
        let workspace = world.api().get("w").await.unwrap();
        let jobs = world.storage().frozen_jobs();
        let (_, mut summary) =
            jobs.freeze(run, &workspace, PodTemplate::default(), &Supplied::default()).await.unwrap();
        summary.image_digests.insert("runner".to_owned(), image("1"));
        json!(summary)
    };
    let runs_in = async |name: &str, image: String| {
        let container = json!({"name": "runner", "image": "", "imageID": image, "ready": true, "restartCount": 0});
        let status = json!({"status": {"containerStatuses": [container]}});
        world.api::<Pod>().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    };
    let same = approved(&world, "same", freeze).await;
    assert_eq!(same.ask(Method::GET, path::JOB, "").await.0, 503, "its node has not reported the image yet");
    runs_in("same", image("1")).await;
    assert_eq!(same.get(path::JOB).await.0, 200);

    let other = approved(&world, "other", freeze).await;
    runs_in("other", image("2")).await;
    assert_eq!(other.get(path::JOB).await.0, 422);
    assert_eq!(failure(&world, "other").await.as_deref(), Some(reason::CHANGED_SINCE_PLANNED));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_an_apply_is_the_frozen_one_whatever_has_become_of_the_workspace() {
    let world = World::start().await;
    let variable = |value: &str| Variable { key: "size".into(), value: Some(value.into()), ..Variable::default() };
    let spec = |value| WorkspaceSpec { variables: vec![variable(value)], ..WorkspaceSpec::default() };
    world.workspace("w", spec("1")).await;
    let runner = approved(&world, "r", async |run| {
        let workspace = world.api().get("w").await.unwrap();
        let frozen =
            world.storage().frozen_jobs().freeze(run, &workspace, PodTemplate::default(), &Supplied::default()).await;
        let patch = json!({"spec": spec("2")});
        world.api::<Workspace>().patch("w", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        json!(frozen.unwrap().1)
    });
    let job: Job = serde_json::from_slice(&runner.await.get(path::JOB).await.1).unwrap();
    assert_eq!(job.variables[0].value, json!("1"));
}

/// Between the creation of the pod and the start of its container, a copy that it mounts was replaced.
#[tokio::test(flavor = "multi_thread")]
async fn an_apply_whose_copies_are_not_those_that_were_frozen_gets_no_job() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let map = json!({"metadata": {"name": "settings"}, "data": {"A": "1"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    world.api().create(&PostParams::default(), &map).await.unwrap();
    let freeze = async |run: &Run| {
        let workspace = world.api().get("w").await.unwrap();
        let settings = json!({"envFrom": [{"configMapRef": {"name": "settings"}}]});
        let template = PodTemplate { settings: serde_json::from_value(settings).unwrap(), ..PodTemplate::default() };
        let frozen = world.storage().frozen_jobs().freeze(run, &workspace, template, &Supplied::default()).await;
        json!(frozen.unwrap().1)
    };
    let runner = approved(&world, "r", freeze).await;
    assert_eq!(runner.get(path::JOB).await.0, 200);
    let job = world.run("r").await.status.unwrap().job.unwrap();
    let name = format!("{}-0", names::job_secret("r", &job.digest));
    let mut copy = world.api::<Secret>().get(&name).await.unwrap();
    world.api::<Secret>().delete(&name, &DeleteParams::default()).await.unwrap();
    (copy.metadata.uid, copy.metadata.resource_version) = (None, None);
    copy.data = Some([("A".to_owned(), ByteString(b"2".to_vec()))].into());
    world.api::<Secret>().create(&PostParams::default(), &copy).await.unwrap();
    let (status, message) = runner.refused(Method::GET, path::JOB, "").await;
    assert_eq!(status, 422);
    assert!(message.contains(&name), "{message}");
    assert_eq!(failure(&world, "r").await.as_deref(), Some(reason::CHANGED_SINCE_PLANNED));
}

/// A command without files was approved; then somebody applied others in its Workspace, and it ran among them.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_was_approved_without_files_ran_among_those_that_came_later() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let bundle = knoll_bundle::pack_texts(&[("deploy.sh".to_owned(), "evil".to_owned())].into()).unwrap();
    world.storage().bundles().store("default", &bundle).await.unwrap();
    let applied = json!({"status": {"bundle": bundle.digest}});
    world.api::<Workspace>().patch_status("w", &PatchParams::default(), &Patch::Merge(&applied)).await.unwrap();
    // The hub's copies follow in a moment.
    let until = async |runner: &world::Runner, expect: u16, what: &str| {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while runner.get(path::BUNDLE).await.0 != expect {
            assert!(tokio::time::Instant::now() < deadline, "{what}");
        }
    };
    let shell = RunSpec { operation: Operation::Command, command: Some("sh".into()), source: None, ..apply() };
    let open = world.runner("open", shell.clone()).await;
    until(&open, 200, "a command that nobody reviews takes what was applied last").await;

    let reviewed = world.runner("reviewed", shell).await;
    let workspace = world.api().get("w").await.unwrap();
    let jobs = world.storage().frozen_jobs();
    let (_, job) = jobs
        .freeze(&world.run("reviewed").await, &workspace, PodTemplate::default(), &Supplied::default())
        .await
        .unwrap();
    let decision = json!({"approvals": ["a"], "decision": "Approve", "by": "alice"});
    world.set_status("reviewed", json!({"status": {"job": job, "decision": decision}})).await;
    until(&reviewed, 204, "it has files that nobody has approved").await;
}
