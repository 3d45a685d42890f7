//! The hub on an embedded cluster.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod frozen;
mod judge;
mod world;

use std::io::Read;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::Digest;
use knoll_api::names::{self, annotation, label, reason};
use knoll_api::run::{Operation, PlanSummary, Run, RunApproval, RunPhase, RunSpec};
use knoll_api::source::{ConfigMapSource, Source};
use knoll_api::step::{StepName, StepState, StepStatus};
use knoll_api::variables::{KeyRef, KeysRef, ValueFrom, Variable, VariablesFrom};
use knoll_api::wire::{Answer, EndReason, Exit, Job, Progress, ProgressReply, path};
use knoll_api::workspace::{Tool, Workspace, WorkspaceSpec};
use knoll_core::frozen::PodTemplate;
use knoll_core::policy::Supplied;
use knoll_storage::{Input, LogRange, PlanTextError, Storage, states};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::wait::await_condition;
use reqwest::Method;
use serde_json::json;
use world::{World, apply, state};

fn noise(bytes: usize) -> String {
    // Random enough not to be packed, and the same each time.
    let mut seed = 88_172_645_463_325_252_u64;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        text.push_str(&format!("{seed:016x}"));
    }
    text
}

async fn with_runner() -> (World, world::Runner) {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let runner = world.runner("r", apply()).await;
    (world, runner)
}

/// As [`with_runner`], with a Run that is reviewed: its pod plans for another one.
async fn with_planner() -> (World, world::Runner) {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let runner = world.runner("r", reviewed()).await;
    (world, runner)
}

fn reviewed() -> RunSpec {
    RunSpec { approval: RunApproval::Manual, ..apply() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_the_variables_and_the_bundle_has_the_files() {
    let world = World::start().await;
    let secret = Secret {
        metadata: ObjectMeta { name: Some("s".into()), ..ObjectMeta::default() },
        data: Some(
            [("password", "hunter2"), ("more.tfvars", "x = 1")]
                .map(|(key, value)| (key.to_owned(), ByteString(value.into())))
                .into(),
        ),
        ..Secret::default()
    };
    world.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    let variable = Variable {
        key: "token".into(),
        value_from: Some(ValueFrom {
            secret_key_ref: Some(KeyRef { name: "s".into(), key: "password".into() }),
            config_map_key_ref: None,
        }),
        ..Variable::default()
    };
    world.workspace("w", WorkspaceSpec { variables: vec![variable], ..WorkspaceSpec::default() }).await;
    let from = VariablesFrom {
        secret_ref: Some(KeysRef { name: "s".into(), ..KeysRef::default() }),
        ..VariablesFrom::default()
    };
    let variables = [("size".to_owned(), json!(3)), ("password".to_owned(), json!("mine"))].into();
    let runner = world.runner("r", RunSpec { variables, variables_from: vec![from], ..apply() }).await;

    let (status, body) = runner.get(path::JOB).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    let job: Job = serde_json::from_slice(&body).unwrap();
    assert_eq!((job.run.as_str(), job.workspace.as_str(), job.operation), ("r", "w", Operation::Apply));
    assert_eq!(job.steps, [StepName::Setup, StepName::Init, StepName::Plan, StepName::Apply, StepName::Outputs]);
    let shown: Vec<_> = job.variables.iter().map(|v| (v.key.as_str(), v.value.clone(), v.sensitive)).collect();
    assert_eq!(
        shown,
        [("password", json!("mine"), false), ("size", json!(3), false), ("token", json!("hunter2"), true)]
    );
    assert_eq!(job.variable_files, [("more.tfvars".to_owned(), "x = 1".to_owned())].into());

    let (status, bundle) = runner.get(path::BUNDLE).await;
    assert_eq!(status, 200);
    let mut archive = tar::Archive::new(zstd::Decoder::new(&bundle[..]).unwrap());
    let mut text = String::new();
    archive.entries().unwrap().next().unwrap().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "# empty");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_to_nothing_fails_the_run_with_a_sentence() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let from = VariablesFrom {
        secret_ref: Some(KeysRef { name: "nowhere".into(), ..KeysRef::default() }),
        ..VariablesFrom::default()
    };
    let runner = world.runner("r", RunSpec { variables_from: vec![from], ..apply() }).await;
    let (status, message) = runner.refused(Method::GET, path::JOB, "").await;
    assert_eq!(status, 422);
    assert!(message.contains("the Secret `nowhere`"), "{message}");
    let status = world.run("r").await.status.unwrap();
    assert_eq!(status.phase, RunPhase::Failed);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((ready.reason.as_str(), ready.message.as_str()), (reason::VARIABLES_FAILED, message.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_starts_only_with_the_input_that_it_names() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let input = |value: &str| {
        let files = [("terraform.tfvars".to_owned(), ByteString(b"a = 1".to_vec()))].into();
        let mut input = Input::new("salt".to_owned());
        (input.values, input.files) = (vec![format!("password={value}")], files);
        input.pack().unwrap()
    };
    let spec = |value: &str| RunSpec {
        args: ["-var=password=...", "-refresh=false"].map(Into::into).into(),
        input: Some(input(value).reference),
        ..apply()
    };
    let inputs = Storage::new(world.client.clone()).inputs();

    let runner = world.runner("r", spec("hunter2")).await;
    let (status, message) = runner.refused(Method::GET, path::JOB, "").await;
    assert_eq!((status, message.as_str()), (503, "the input of this run was not sent; start the command again"));
    inputs.put(&world.run("r").await, &input("hunter2")).await.unwrap();
    let (status, body) = runner.get(path::JOB).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    let job: Job = serde_json::from_slice(&body).unwrap();
    assert_eq!(job.args, ["-var=password=hunter2", "-refresh=false"]);
    let sent = job.input.unwrap();
    assert_eq!(sent.variables, [("password".to_owned(), "hunter2".to_owned())].into());
    assert_eq!(sent.files["terraform.tfvars"].0, b"a = 1");
    let secret = world.api::<Secret>().get("knoll-input-r").await.unwrap();
    assert_eq!(secret.metadata.owner_references.unwrap()[0].uid, world.run("r").await.metadata.uid.unwrap());

    // Somebody else's Secret under that name.
    let runner = world.runner("other", spec("hunter2")).await;
    inputs.put(&world.run("other").await, &input("hunter3")).await.unwrap();
    let (status, message) = runner.refused(Method::GET, path::JOB, "").await;
    assert_eq!(status, 422);
    assert!(message.contains("is not the input that this run was created with"), "{message}");
    assert_eq!(world.run("other").await.status.unwrap().phase, RunPhase::Failed);

    // Values for other arguments than those that a reviewer sees.
    let runner = world.runner("count", RunSpec { args: vec!["-refresh=false".into()], ..spec("hunter2") }).await;
    inputs.put(&world.run("count").await, &input("hunter2")).await.unwrap();
    let (status, message) = runner.refused(Method::GET, path::JOB, "").await;
    assert_eq!(status, 422);
    assert!(message.contains("has 1 values, but its arguments need 0"), "{message}");
    for name in ["r", "other", "count"] {
        assert!(!serde_json::to_string(&world.run(name).await).unwrap().contains("hunter2"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_comes_back_as_it_was_and_only_a_later_one_takes_its_place() {
    let (world, runner) = with_runner().await;
    assert_eq!(runner.get(path::STATE).await.0, 204);
    assert_eq!(runner.put(path::STATE, state(2, "a")).await.0, 204);
    assert_eq!(runner.get(path::STATE).await, (reqwest::StatusCode::OK, state(2, "a").into_bytes()));
    assert_eq!(runner.put(path::STATE, state(2, "a")).await.0, 204, "the same once more");
    let refused = [
        (state(2, "b"), 409),
        (state(1, "a"), 409),
        (state(3, "a").replace("\"l\"", "\"other\""), 409),
        (state(3, "a")[..50].to_owned(), 422),
    ];
    for (content, expect) in refused {
        let (status, message) = runner.refused(Method::PUT, path::STATE, content.clone()).await;
        assert_eq!(status, expect, "{content}: {message}");
        assert!(!message.is_empty());
    }
    assert_eq!(runner.put(path::STATE, state(3, "abc")).await.0, 204);
    let head = world.api::<Secret>().get("knoll-state-w").await.unwrap();
    let notes = head.metadata.annotations.unwrap();
    assert_eq!(notes[annotation::SERIAL], "3");
    assert_eq!(notes[annotation::RESOURCES], "1");
    assert_eq!(notes[annotation::OUTPUTS], r#"{"open":3}"#, "without the sensitive one");
    assert_eq!(head.metadata.owner_references, None, "the state outlives its Workspace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_state_is_cut_into_parts_and_old_parts_go() {
    let (world, runner) = with_runner().await;
    let large = noise(20_000_000);
    for serial in [1, 2] {
        let content = state(serial, &large);
        assert_eq!(runner.put(path::STATE, content.clone()).await.0, 204);
        let (status, got) = runner.get(path::STATE).await;
        assert_eq!(status, 200);
        assert!(got == content.as_bytes(), "the state is another one");
    }
    // Anybody who reads it anew finds the same.
    let other = runner.at(&world.another_hub().await);
    assert!(other.get(path::STATE).await.1 == state(2, &large).as_bytes());
    let gone = async {
        loop {
            let parts = world.secrets("knoll.dev/content=state-part").await;
            assert!(!parts.is_empty());
            if parts.iter().all(|part| part.metadata.annotations.as_ref().unwrap()[annotation::SERIAL] == "2") {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_pod_of_the_run_is_heard() {
    let (world, runner) = with_runner().await;
    assert_eq!(runner.with_token("nonsense").get(path::JOB).await.0, 401);
    assert_eq!(runner.put(path::STATE, state(1, "")).await.0, 204);

    // The same run, another pod: the first one is fenced off.
    let second = world.pod("r-apply").await;
    world.set_status("r", json!({"status": {"podUID": second.uid}})).await;
    assert_eq!(second.put(path::STATE, state(2, "")).await.0, 204);
    for (method, path, body) in [
        (Method::PUT, path::STATE, state(3, "late")),
        (Method::GET, path::JOB, String::new()),
        (Method::PUT, path::PROGRESS, json!({"sequence": 9, "steps": []}).to_string()),
    ] {
        let (status, message) = runner.refused(method, path, body).await;
        assert_eq!(status, 403, "{path}: {message}");
        assert!(message.contains(&runner.uid), "{message}");
    }
    // A run that has ended has no pod any more.
    world.set_status("r", json!({"status": {"phase": "Failed"}})).await;
    let seen = world.api::<Run>();
    await_condition(seen, "r", |run: Option<&Run>| {
        run.and_then(|run| run.status.as_ref()).is_some_and(|status| status.phase == RunPhase::Failed)
    })
    .await
    .unwrap();
    let (status, _) = second.refused(Method::PUT, path::STATE, state(4, "late")).await;
    assert_eq!(status, 403);
    let (_, content) = world.runner("next", apply()).await.get(path::STATE).await;
    assert_eq!(content, state(2, "").as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_faster_than_its_runs_status_is_heard_when_that_arrives() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    world.api::<Run>().create(&PostParams::default(), &Run::new("r", apply())).await.unwrap();
    let early = world.pod("r").await;
    let asking = tokio::spawn({
        let early = early.clone();
        async move { early.get(path::JOB).await.0 }
    });
    world.set_status("r", json!({"status": {"phase": "Starting", "podUID": early.uid}})).await;
    assert_eq!(asking.await.unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_queue_cannot_write_a_state() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let plan = world.runner("r", RunSpec { operation: Operation::Plan, ..apply() }).await;
    let (status, message) = plan.refused(Method::PUT, path::STATE, state(1, "")).await;
    assert_eq!(status, 403);
    assert!(message.contains("operation: plan"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_never_lose_a_state_that_they_took() {
    let (world, runner) = with_runner().await;
    let other = runner.at(&world.another_hub().await);
    let writes = (1..=20).map(|serial| {
        let runner = if serial % 2 == 0 { runner.clone() } else { other.clone() };
        async move { (serial, runner.put(path::STATE, state(serial, "")).await.0) }
    });
    let answers = join_all(writes).await;
    assert!(answers.iter().all(|(_, status)| *status == 204 || *status == 409), "{answers:?}");
    let highest = answers.iter().filter(|(_, status)| *status == 204).map(|(serial, _)| *serial).max().unwrap();
    assert_eq!(highest, 20, "the highest serial follows on whatever is there");
    let third = runner.at(&world.another_hub().await);
    assert_eq!(third.get(path::STATE).await.1, state(20, "").as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_one_version_a_run() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec { state_history: 2, ..WorkspaceSpec::default() }).await;
    for (run, serials) in [("a", [1, 2]), ("b", [3, 4]), ("c", [5, 6])] {
        let runner = world.runner(run, apply()).await;
        for serial in serials {
            assert_eq!(runner.put(path::STATE, state(serial, "")).await.0, 204);
        }
        world.set_status(run, json!({"status": {"phase": "Succeeded"}})).await;
    }
    let kept = async {
        loop {
            let parts = world.secrets("knoll.dev/content=state-part").await;
            let serials: Vec<_> = parts
                .iter()
                .map(|part| part.metadata.annotations.as_ref().unwrap()[annotation::SERIAL].clone())
                .collect();
            if serials == ["4"] {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), kept).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_file_is_handed_to_the_next_run() {
    let (world, runner) = with_runner().await;
    assert_eq!(runner.put(path::LOCK, "# locked").await.0, 204);
    assert_eq!(runner.put(path::STATE, state(1, "")).await.0, 204);
    let next = world.runner("next", apply()).await;
    let job: Job = serde_json::from_slice(&next.get(path::JOB).await.1).unwrap();
    assert_eq!(job.lock_file.as_deref(), Some("# locked"));
    let anew = world.runner("anew", RunSpec { ignore_lock_file: true, ..apply() }).await;
    let job: Job = serde_json::from_slice(&anew.get(path::JOB).await.1).unwrap();
    assert_eq!(job.lock_file, None);
    assert_eq!(next.get(path::STATE).await.1, state(1, "").as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_comes_back_as_it_was_and_goes_with_its_run() {
    let (world, runner) = with_planner().await;
    let plan = noise(1_500_000).into_bytes();
    assert_eq!(runner.get(path::PLAN).await.0, 204);
    for _ in 0..2 {
        assert_eq!(runner.put(path::PLAN, plan.clone()).await.0, 204);
        assert!(runner.get(path::PLAN).await.1 == plan, "the plan is another one");
    }
    for secret in world.secrets("knoll.dev/content=plan").await {
        let owner = &secret.metadata.owner_references.unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Run", "r"));
    }
}

/// A runner could store plans, texts and answers until the store of the cluster was full: what was replaced stayed.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_runner_replaces_goes() {
    let (world, runner) = with_planner().await;
    let maps = async || {
        let maps = world.api::<ConfigMap>().list(&ListParams::default().labels("knoll.dev/content=plan-text")).await;
        maps.unwrap().items.len()
    };
    let plan = noise(1_200_000);
    for number in 0..3 {
        assert_eq!(runner.put(path::PLAN, format!("{number}{plan}")).await.0, 204);
        assert_eq!(runner.put(path::PLAN_TEXT, format!("{number}{plan}")).await.0, 204);
    }
    let stored = world.secrets("knoll.dev/content=plan").await.len();
    assert!((2..=4).contains(&stored), "one plan and its parts: {stored}");
    let stored = maps().await;
    assert!((2..=4).contains(&stored), "one text and its parts: {stored}");
    let last = format!("2{plan}").into_bytes();
    assert!(runner.get(path::PLAN).await.1 == last, "the last plan is whole");
    for number in 0..3 {
        let stdout = ByteString(format!("{number}{plan}").into());
        let answer = serde_json::to_string(&Answer { stdout, stderr: ByteString::default() }).unwrap();
        assert_eq!(runner.put(path::ANSWER, answer).await.0, 204);
    }
    let stored = world.secrets("knoll.dev/content=answer").await.len();
    assert!((2..=5).contains(&stored), "one answer and its parts: {stored}");

    // A pod that plans for nobody stores no plan.
    let alone = world.runner("alone", apply()).await;
    let reasons =
        [(path::PLAN, "only a pod that plans for another one"), (path::PLAN_TEXT, "nobody decides on the plan")];
    for (path, reason) in reasons {
        let (code, why) = alone.refused(Method::PUT, path, "x").await;
        assert_eq!(code, 403);
        assert!(why.contains(reason), "{why}");
    }
}

/// The pod had the image of one tool, and its job named another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_the_tool_that_its_pod_was_made_for() {
    let (world, runner) = with_runner().await;
    world.set_status("r", json!({"status": {"tool": {"name": "terraform", "version": "1.11.4"}}})).await;
    let other = json!({"spec": {"tool": "tofu", "version": "1.10.0"}});
    world.api::<Workspace>().patch("w", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let job: Job = serde_json::from_slice(&runner.get(path::JOB).await.1).unwrap();
        if (job.tool, job.version.as_deref()) == (Tool::Terraform, Some("1.11.4")) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{:?} {:?}", job.tool, job.version);
    }
}

/// A pod reported the digest of a bundle of its author's, and later runs of the Workspace had those files.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_the_files_of_its_source_whatever_its_pod_reports() {
    let (world, runner) = with_runner().await;
    let evil = knoll_bundle::pack_texts(&[("main.tf".to_owned(), "# evil".to_owned())].into()).unwrap();
    world.storage().bundles().store("default", &evil).await.unwrap();
    let report = async |runner: &world::Runner, sequence, digest: &Digest| {
        let progress = Progress { sequence, bundle: Some(digest.clone()), ..Progress::default() };
        assert_eq!(runner.put(path::PROGRESS, serde_json::to_string(&progress).unwrap()).await.0, 200);
        world.run("r").await.status.unwrap().bundle
    };
    // Before the files were fetched, after that, and at a replica that knows nothing of it.
    assert_eq!(report(&runner, 1, &evil.digest).await, None);
    let (_, bundle) = runner.get(path::BUNDLE).await;
    assert_eq!(report(&runner, 2, &evil.digest).await, None);
    assert_eq!(report(&runner.at(&world.another_hub().await), 3, &evil.digest).await, None);
    let own = knoll_bundle::digest_of(&bundle).unwrap();
    assert_eq!(report(&runner, 4, &own).await.as_deref(), Some(own.as_str()));
}

/// The text that an approver reads is the one whose digest is in the status, or none.
#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_a_plan_that_somebody_changed_is_not_read() {
    let (world, runner) = with_planner().await;
    let text = format!("Plan: 1 to add. {}", noise(700_000));
    assert_eq!(runner.put(path::PLAN_TEXT, text.clone()).await.0, 204);
    let read = async |digest: Option<String>| {
        let mut run = world.run("r").await;
        let plan = PlanSummary { text_digest: digest, ..PlanSummary::default() };
        run.status.as_mut().unwrap().plan = Some(plan);
        world.storage().plan_texts().get(&run).await
    };
    let named = || Some(Digest::of(&text).to_string());
    assert!(read(named()).await.unwrap() == text, "the text is another one");
    assert!(matches!(read(None).await, Err(PlanTextError::NotNamed)));
    assert!(matches!(read(Some(Digest::of("other").to_string())).await, Err(PlanTextError::Missing(_))));

    // Whoever may write ConfigMaps puts another text in its place, complete and with its own digest.
    let maps = world.api::<ConfigMap>();
    let name = names::plan_text_config_map("r", Digest::of(&text).as_str());
    let other = world.runner("other", reviewed()).await;
    assert_eq!(other.put(path::PLAN_TEXT, "No changes.").await.0, 204);
    let other = maps.get(&names::plan_text_config_map("other", Digest::of("No changes.").as_str())).await.unwrap();
    maps.delete(&name, &DeleteParams::default()).await.unwrap();
    let metadata = ObjectMeta {
        name: Some(name),
        annotations: other.metadata.annotations,
        owner_references: other.metadata.owner_references,
        ..ObjectMeta::default()
    };
    maps.create(&PostParams::default(), &ConfigMap { metadata, ..other }).await.unwrap();
    assert!(matches!(read(named()).await, Err(PlanTextError::Changed(_))));
}

/// A user may create ConfigMaps whose names and labels are those of a log.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_written_and_read_beside_the_config_maps_of_others() {
    let (world, runner) = with_runner().await;
    let maps = world.api::<ConfigMap>();
    let other = world.runner("other", apply()).await;
    assert_eq!(other.ask(Method::POST, &format!("{}?offset=0", path::LOG), "forged").await.0, 204);
    let forged = maps.get(&names::log_config_map("other", 0)).await.unwrap();
    for part in 0..2 {
        let mut labels = forged.metadata.labels.clone().unwrap();
        labels.insert(label::RUN.to_owned(), "r".to_owned());
        let metadata = ObjectMeta {
            name: Some(names::log_config_map("r", part)),
            labels: Some(labels),
            annotations: forged.metadata.annotations.clone(),
            ..ObjectMeta::default()
        };
        let map = ConfigMap { metadata, immutable: Some(true), ..forged.clone() };
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let long = noise(300_000);
    for (offset, piece) in [(0, "hello "), (6, "world"), (11, &long)] {
        assert_eq!(runner.ask(Method::POST, &format!("{}?offset={offset}", path::LOG), piece).await.0, 204);
    }
    let again = runner.at(&world.another_hub().await);
    let end = 11 + long.len();
    assert_eq!(again.ask(Method::POST, &format!("{}?offset={end}", path::LOG), "!").await.0, 204);
    let log = world.storage().logs().read(&world.run("r").await, LogRange::WHOLE).await.unwrap();
    assert!(log == format!("hello world{long}!").into_bytes(), "the log is another one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_grows_by_what_follows_and_by_nothing_else() {
    let (world, runner) = with_runner().await;
    let post = |offset: usize, piece: &str| {
        let (runner, piece) = (runner.clone(), piece.to_owned());
        async move { runner.ask(Method::POST, &format!("{}?offset={offset}", path::LOG), piece).await }
    };
    assert_eq!(post(0, "hello ").await.0, 204);
    assert_eq!(post(6, "world").await.0, 204);
    let (status, body) = post(6, "world").await;
    assert_eq!(status, 409);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()["offset"], 11);
    let long = noise(1_200_000);
    assert_eq!(post(11, &long).await.0, 204);
    // Another replica finds the end by itself.
    let other = runner.at(&world.another_hub().await);
    let end = 11 + long.len();
    assert_eq!(other.ask(Method::POST, &format!("{}?offset={end}", path::LOG), "!").await.0, 204);

    let run = world.run("r").await;
    let log = world.storage().logs().read(&run, LogRange::WHOLE).await.unwrap();
    let whole = format!("hello world{long}!").into_bytes();
    assert!(log == whole, "the log is another one");
    let range = LogRange { from: 6, to: Some(13) };
    assert_eq!(world.storage().logs().read(&run, range).await.unwrap(), whole[6..13]);
    // A reader that follows gets the same, in pieces.
    let mut followed = Vec::new();
    let mut pieces = std::pin::pin!(world.storage().logs().follow(&run, 6).unwrap());
    while followed.len() < whole.len() - 6 {
        followed.extend(pieces.next().await.unwrap().unwrap());
    }
    assert!(followed == whole[6..], "the log that was followed is another one");
    let more = format!("{}?offset={}", path::LOG, end + 1);
    assert_eq!(other.ask(Method::POST, &more, "more").await.0, 204);
    assert_eq!(pieces.next().await.unwrap().unwrap(), b"more");
}

fn report(sequence: u64, step: StepName, state: StepState, exit: Option<Exit>) -> String {
    let now = MicroTime(Timestamp::now());
    let step = StepStatus { state, ..StepStatus::started(step, now, 0) };
    let plan = Some(PlanSummary { digest: Some("sha256:1".into()), add: 3, changes: true, ..PlanSummary::default() });
    let progress = Progress { sequence, steps: vec![step], plan, exit, ..Progress::default() };
    serde_json::to_string(&progress).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_become_the_runs_status_and_the_last_one_ends_it() {
    let (world, runner) = with_runner().await;
    let put = |body: String| runner.put(path::PROGRESS, body);
    let (status, reply) = put(report(1, StepName::Init, StepState::Running, None)).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&reply));
    assert_eq!(serde_json::from_slice::<ProgressReply>(&reply).unwrap(), ProgressReply { cancel: false });
    let run = world.run("r").await.status.unwrap();
    assert_eq!((run.phase, run.steps[0].state), (RunPhase::Running, StepState::Running));
    // Somebody else changes the Run meanwhile; the report is merged all the same.
    world.set_status("r", json!({"status": {"position": 1}})).await;
    assert_eq!(put(report(2, StepName::Apply, StepState::Running, None)).await.0, 200);
    // One that comes late is ignored.
    assert_eq!(put(report(1, StepName::Plan, StepState::Running, None)).await.0, 200);
    let run = world.run("r").await.status.unwrap();
    assert_eq!(run.steps.iter().map(|step| step.name).collect::<Vec<_>>(), [StepName::Init, StepName::Apply]);
    let exit = Some(Exit::default());
    assert_eq!(put(report(3, StepName::Apply, StepState::Succeeded, exit)).await.0, 200);
    let run = world.run("r").await.status.unwrap();
    assert_eq!((run.phase, run.exit_code), (RunPhase::Succeeded, Some(0)));
    assert_eq!(run.plan.unwrap().add, 3);
    // The answer may have got lost; nothing else is heard any more.
    let again = put(report(3, StepName::Apply, StepState::Succeeded, Some(Exit::default()))).await.0;
    assert_eq!(again, 200);
    assert_eq!(runner.put(path::STATE, state(9, "")).await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_reaches_the_runner_at_once() {
    let (world, runner) = with_runner().await;
    let waiting = tokio::spawn({
        let runner = runner.clone();
        async move { runner.get(path::CANCEL).await.0 }
    });
    let patch = json!({"metadata": {"annotations": {annotation::CANCEL: "now"}}});
    world.api::<Run>().patch("r", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(waiting.await.unwrap(), 200);
    let job: Job = serde_json::from_slice(&runner.get(path::JOB).await.1).unwrap();
    assert!(job.cancel);
}

/// A node that does not answer does not tell the runner of its pod's deletion, so the hub does.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_whose_pod_is_deleted_is_told_to_stop() {
    let (world, runner) = with_runner().await;
    let waiting = tokio::spawn({
        let runner = runner.clone();
        async move { runner.get(path::CANCEL).await.0 }
    });
    world.set_status("r", json!({"status": {"stopRequestedAt": "2025-01-01T00:00:00.000000Z"}})).await;
    assert_eq!(waiting.await.unwrap(), 200);
    let exit = Some(Exit { code: 130, reason: Some(EndReason::Cancelled), message: None });
    let ended = runner.ask(Method::PUT, path::PROGRESS, report(1, StepName::Apply, StepState::Cancelled, exit)).await;
    assert_eq!(ended.0, 200);
    let run: Run = world.api().get("r").await.unwrap();
    assert_eq!(run.status.unwrap().phase, RunPhase::Failed, "nobody cancelled the run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_whose_run_was_given_up_is_refused_when_it_asks_for_a_cancellation() {
    let (world, runner) = with_runner().await;
    let waiting = tokio::spawn({
        let runner = runner.clone();
        async move { runner.get(path::CANCEL).await.0 }
    });
    world.set_status("r", json!({"status": {"phase": "Failed"}})).await;
    assert_eq!(waiting.await.unwrap(), 403);
    assert_eq!(runner.get(path::CANCEL).await.0, 403);
}

/// A state of the lineage `lineage`.
fn of_lineage(lineage: &str, serial: u64) -> String {
    json!({"version": 4, "serial": serial, "lineage": lineage, "resources": []}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_states_are_kept_one_a_run_and_can_be_read() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec { state_history: 2, ..WorkspaceSpec::default() }).await;
    for (run, serials) in [("a", 1..=2), ("b", 3..=4), ("c", 5..=6)] {
        let runner = world.runner(run, apply()).await;
        for serial in serials {
            assert_eq!(runner.ask(Method::PUT, path::STATE, of_lineage("l", serial)).await.0, 204);
        }
        let exit = Some(Exit::default());
        assert_eq!(
            runner.ask(Method::PUT, path::PROGRESS, report(1, StepName::Apply, StepState::Succeeded, exit)).await.0,
            200
        );
    }
    let kept = world.storage().states().history("default", "w").await.unwrap();
    assert_eq!(kept.iter().map(|kept| (kept.serial, kept.run.as_str())).collect::<Vec<_>>(), [(6, "c"), (4, "b")]);
    let old = world.storage().states().version("default", "w", 4).await.unwrap();
    assert_eq!(old, of_lineage("l", 4));
    let gone = world.storage().states().version("default", "w", 2).await.unwrap_err().to_string();
    assert!(gone.contains("has no stored state with serial 2; it has 6, 4"), "{gone}");

    let runner = world.runner("back", states::rollback("w", 4)).await;
    let (status, content) = runner.get(&format!("{}?serial=4", path::HISTORY)).await;
    assert_eq!((status, content), (reqwest::StatusCode::OK, old.to_vec()));
    assert_eq!(runner.get(&format!("{}?serial=2", path::HISTORY)).await.0, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_was_handed_in_is_for_its_run_and_only_force_changes_the_lineage() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let runner = world.runner("first", apply()).await;
    assert_eq!(runner.ask(Method::PUT, path::STATE, of_lineage("one", 7)).await.0, 204);
    let two = of_lineage("two", 1);
    let polite = world.runner("polite", states::push("w", two.as_bytes(), false)).await;
    assert_eq!(polite.get(path::UPLOAD).await.0, 503, "its client is still on its way");
    world.storage().uploads().put(&world.run("polite").await, of_lineage("two", 1).as_bytes()).await.unwrap();
    assert_eq!(polite.get(path::UPLOAD).await.1, of_lineage("two", 1).into_bytes());
    assert_eq!(polite.ask(Method::PUT, path::STATE, of_lineage("two", 1)).await.0, 409);
    let forced = world.runner("forced", states::push("w", two.as_bytes(), true)).await;
    assert_eq!(forced.get(path::UPLOAD).await.0, 503);
    assert_eq!(forced.ask(Method::PUT, path::STATE, of_lineage("two", 1)).await.0, 204);
    let error = world.storage().uploads().put(&world.run("forced").await, b"{}").await.unwrap_err().to_string();
    assert!(error.contains("not a terraform state"), "{error}");
    // Whoever may create Secrets hands in another state after the run was approved.
    world.storage().uploads().put(&world.run("forced").await, of_lineage("three", 1).as_bytes()).await.unwrap();
    let (status, answer) = forced.get(path::UPLOAD).await;
    assert_eq!(status, 422, "{}", String::from_utf8_lossy(&answer));
    let unnamed = RunSpec { args: vec!["knoll://upload".to_owned()], ..states::push("w", b"", true) };
    let unnamed = world.runner("unnamed", unnamed).await;
    world.storage().uploads().put(&world.run("unnamed").await, two.as_bytes()).await.unwrap();
    assert_eq!(unnamed.get(path::UPLOAD).await.0, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_that_plans_does_not_write_the_state() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let runner = world.runner("r", RunSpec { approval: RunApproval::Manual, ..apply() }).await;
    assert_eq!(runner.ask(Method::PUT, path::STATE, of_lineage("one", 1)).await.0, 403);
    assert!(world.storage().states().read("default", "w").await.unwrap().is_none());
    let approved = json!({"status": {"decision": {"approvals": ["a"], "decision": "Approve", "by": "ann"}}});
    world.api::<Run>().patch_status("r", &PatchParams::default(), &Patch::Merge(&approved)).await.unwrap();
    let again = runner.at(&world.another_hub().await);
    assert_eq!(again.ask(Method::PUT, path::STATE, of_lineage("one", 1)).await.0, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_run_are_kept_and_stay_what_they_were() {
    let world = World::start().await;
    world.workspace("w", WorkspaceSpec::default()).await;
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tf"}, "data": {"main.tf": text}});
    let maps = world.api::<ConfigMap>();
    maps.create(&PostParams::default(), &serde_json::from_value(map("# one")).unwrap()).await.unwrap();
    let source = Source { config_map: Some(ConfigMapSource { name: "tf".into() }), ..Source::default() };
    let runner = world.runner("r", RunSpec { source: Some(source), ..apply() }).await;
    let (_, bundle) = runner.get(path::BUNDLE).await;
    let digest = knoll_bundle::digest_of(&bundle).unwrap();
    let progress = Progress { sequence: 1, bundle: Some(digest.clone()), ..Progress::default() };
    let body = serde_json::to_string(&progress).unwrap();
    assert_eq!(runner.ask(Method::PUT, path::PROGRESS, body).await.0, 200);
    assert_eq!(world.run("r").await.status.unwrap().bundle.as_deref(), Some(digest.as_str()));
    assert!(world.storage().bundles().is_stored("default", &digest).await.unwrap());
    // Another pod of the run gets the same files, whatever has become of their source.
    maps.replace("tf", &PostParams::default(), &serde_json::from_value(map("# two")).unwrap()).await.unwrap();
    assert_eq!(runner.at(&world.another_hub().await).get(path::BUNDLE).await.1, bundle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_was_told_to_stop_learns_from_its_pod_why() {
    let (world, runner) = with_runner().await;
    let exit = Exit { code: 130, reason: Some(EndReason::PodDeleted), message: Some("It was told to stop.".into()) };
    let pods = world.api::<Pod>();
    let evicted = json!({"status": {"reason": "Evicted", "message": "The node was low on memory"}});
    pods.patch_status("r", &PatchParams::default(), &Patch::Merge(&evicted)).await.unwrap();
    let report = report(1, StepName::Apply, StepState::Failed, Some(exit));
    assert_eq!(runner.ask(Method::PUT, path::PROGRESS, report).await.0, 200);
    let status = world.run("r").await.status.unwrap();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((status.phase, ready.reason.as_str()), (RunPhase::Failed, reason::EVICTED));
}
