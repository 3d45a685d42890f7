//! Kills a process during an apply. The run reports what happened, the next run starts by itself, and the state has
//! every resource that terraform had recorded.
#![allow(clippy::unwrap_used, reason = "tests")]

mod world;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::run::{RunPhase, RunStatus};
use knoll_api::step::StepName;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use world::{Place, WAIT, World, a_moment, inline, often, processes, reason, with_module, within};

/// Resource `a` is created at once; `between` once terraform writes a state; and `b` runs a command.
fn with_command(between: &str, command: &str) -> String {
    format!(
        r#"
resource "terraform_data" "a" {{ input = "kept" }}
resource "terraform_data" "between" {{
  depends_on = [terraform_data.a]
  provisioner "local-exec" {{ command = "{between}" }}
}}
resource "terraform_data" "b" {{
  depends_on = [terraform_data.between]
  provisioner "local-exec" {{ command = "{command}" }}
}}
"#
    )
}

/// A command that takes as long as the tool may keep a state to itself.
///
/// Terraform writes the state file after each resource. OpenTofu writes it when a resource is ready 20 seconds or more
/// after it last did.
fn until_a_state_is_due() -> &'static str {
    let version = std::process::Command::new("terraform").arg("version").output();
    let is_tofu = version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("OpenTofu"));
    if is_tofu { "sleep 21" } else { "true" }
}

/// The same without commands that take time.
fn quick() -> String {
    with_command("true", "true")
}

/// The deadline for the next run, on a busy machine.
const RECOVERED: Duration = Duration::from_secs(60);

/// Starts a run that hangs once `a` is recorded, queues another one, and kills.
async fn killed(place: &Place, kill: impl AsyncFnOnce(&Pod)) -> RunStatus {
    place.apply("victim", &with_command(until_a_state_is_due(), "exec sleep 600")).await;
    place.recorded("w", "a").await;
    place.apply("next", &quick()).await;
    kill(&place.pod("victim").await).await;
    place.ended("victim").await
}

/// The assertions after every kill.
async fn recovered(place: &Place) {
    let next = place.succeeded("next").await;
    let plan = next.plan.unwrap();
    let created: Vec<&str> = plan.resources.iter().map(|resource| resource.address.as_str()).collect();
    assert!(!created.contains(&"terraform_data.a"), "{}: what was recorded is planned again", place.namespace);
    let mut resources = place.resources("w").await;
    resources.sort();
    assert_eq!(resources, ["terraform_data.a", "terraform_data.b", "terraform_data.between"], "{}", place.namespace);
    assert_eq!(place.idle("w").await.state.unwrap().resources, 3);
}

async fn check(world: &World, name: &str, kill: impl AsyncFn(&Place, &Pod), expect: (RunPhase, &str), says: &str) {
    let (kill, world) = (&kill, &world);
    // All of them concurrently.
    join_all((0..often(1, 5)).map(|round| async move {
        let place = world.place(&format!("{name}-{round}")).await;
        let mut killed_at = Instant::now();
        let status = killed(&place, async |pod| {
            killed_at = Instant::now();
            kill(&place, pod).await;
        })
        .await;
        let (why, message) = reason(&status);
        assert_eq!((status.phase, why.as_str()), expect, "{name}: {message}");
        assert!(message.contains(says), "{name}: `{message}` does not say `{says}`");
        assert!(status.steps.iter().all(|step| step.state.is_finished()), "{name}: {:?}", status.steps);
        recovered(&place).await;
        let took = killed_at.elapsed();
        eprintln!("{name}, {round}: the next run had succeeded {:.1} s after the kill", took.as_secs_f64());
        assert!(took < RECOVERED, "{name}: it took {took:?} until the next run had succeeded");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_fails_its_run_and_nothing_else() {
    let world = World::start().await;
    let forced = async |place: &Place, pod: &Pod| {
        let name = pod.metadata.name.as_deref().unwrap();
        place.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    };
    check(&world, "forced", forced, (RunPhase::Failed, "PodDeleted"), "The pod was deleted").await;
    let gently = async |place: &Place, pod: &Pod| {
        place.api::<Pod>().delete(pod.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await.unwrap();
    };
    check(&world, "gently", gently, (RunPhase::Failed, "PodDeleted"), "what it did is in the state").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_fails_its_run_and_nothing_else() {
    let world = World::start().await;
    let terraform = async |_: &Place, pod: &Pod| {
        processes(pod).iter().filter(|process| process.is_terraform()).for_each(|process| process.kill());
    };
    check(&world, "terraform", terraform, (RunPhase::Failed, "StepFailed"), "signal 9").await;
    let runner = async |_: &Place, pod: &Pod| {
        processes(pod).iter().filter(|process| process.is_runner()).for_each(|process| process.kill());
        let alone = async {
            while processes(pod).iter().any(|process| process.is_terraform()) {
                a_moment().await;
            }
        };
        within("terraform goes with its runner", alone).await;
    };
    check(&world, "runner", runner, (RunPhase::Failed, "RunnerLost"), "signal 9").await;
    let everything = async |_: &Place, pod: &Pod| {
        let processes = processes(pod);
        // As when the power fails: no process sees the end of another.
        processes.iter().for_each(|process| process.freeze());
        let frozen = async {
            while !processes.iter().all(|process| process.is_frozen()) {
                a_moment().await;
            }
        };
        within("every thread has stopped", frozen).await;
        processes.iter().for_each(|process| process.kill());
    };
    check(&world, "everything", everything, (RunPhase::Failed, "RunnerLost"), "").await;
}

/// A control group with little memory, for containers without one.
struct LittleMemory(PathBuf);

impl LittleMemory {
    /// Creating it needs root and version 1 of control groups.
    fn new() -> Option<Self> {
        let groups = Path::new("/sys/fs/cgroup/memory");
        let own = groups.join(format!("knoll-test-{}", std::process::id()));
        let possible = groups.join("memory.limit_in_bytes").exists() && std::fs::create_dir(&own).is_ok();
        possible.then(|| std::fs::write(own.join("memory.limit_in_bytes"), "96M").unwrap())?;
        Some(LittleMemory(own))
    }

    /// Moves the runner and its future children into the group.
    fn script(&self) -> String {
        format!("echo $PPID > {0}/tasks && echo $$ > {0}/tasks", self.0.display())
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_killed_for_want_of_memory_is_named() {
    let world = World::start().await;
    let place = world.place("memory").await;
    // Terraform allocates much memory. On a node with containers, it reaches their limit.
    let hungry = r#"
locals { much = [for n in setproduct(range(1000), range(1000)) : "${n[0]} ${n[1]} and more, so that it does not fit"] }
output "much" { value = length(join("", local.much)) }
"#;
    let mut group = None;
    let mut spec = with_module(hungry, json!({"workspace": "little"}));
    if world.is_given() {
        place.workspace("little", json!({"pod": {"resources": {"limits": {"memory": "128Mi"}}}})).await;
    } else {
        place.workspace("little", json!({})).await;
        group = LittleMemory::new();
        let Some(group) = &group else {
            eprintln!("NOT RUN: this machine lets nobody make a control group for memory");
            return;
        };
        spec["hooks"] = json!([{"name": "little", "step": "pre-plan", "script": group.script()}]);
    }
    place.run("hungry", spec).await;
    let status = place.ended("hungry").await;
    drop(group);
    assert_eq!(reason(&status).0, "OOMKilled", "{:?}", reason(&status));
    assert!(reason(&status).1.contains("pod.resources"), "{:?}", reason(&status));
    place.told("hungry", "OOMKilled").await;
    place.run("next", with_module(&quick(), json!({"workspace": "little"}))).await;
    place.succeeded("next").await;
}

/// The point at which everything except the run's pod is killed.
#[derive(Clone, Copy, Debug)]
enum At {
    Created,
    Starting,
    Init,
    Apply,
    Review,
    Approved,
    Ended,
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_phase_the_cluster_comes_back_and_every_run_ends_as_it_should() {
    let mut world = World::start().await;
    for at in [At::Created, At::Starting, At::Init, At::Apply, At::Review, At::Approved, At::Ended] {
        let place = world.place(&format!("at-{}", format!("{at:?}").to_lowercase())).await;
        // Before its end the run waits to be killed. A run that is in review or finished does not wait.
        let module = if matches!(at, At::Apply) { with_command(until_a_state_is_due(), WAIT) } else { quick() };
        let reviewed = matches!(at, At::Review | At::Approved);
        let approval = if reviewed { "Manual" } else { "Auto" };
        let hooks = match at {
            At::Created | At::Starting | At::Init => json!([{"name": "slow", "step": "pre-init", "script": WAIT}]),
            _ => json!([]),
        };
        place.run("earlier", with_module(&module, json!({"approval": approval, "hooks": hooks}))).await;
        match at {
            At::Created => {}
            At::Starting => drop(place.until("earlier", "it starts", |status| status.pod_name.is_some()).await),
            At::Init => {
                let is = |status: &RunStatus| status.steps.iter().any(|step| step.name == StepName::PreInit);
                place.until("earlier", "it initialises", is).await;
            }
            At::Apply => place.recorded("w", "a").await,
            At::Review => {
                drop(place.until("earlier", "it is reviewed", |status| status.phase == RunPhase::Review).await)
            }
            At::Approved => {
                let status = place.until("earlier", "it is reviewed", |status| status.phase == RunPhase::Review).await;
                place.approve("earlier", status.review_digest.as_deref().unwrap()).await;
            }
            At::Ended => drop(place.succeeded("earlier").await),
        }
        place.apply("next", &quick()).await;
        world.kill().await;
        world.revive().await;
        let place = place.at(&world);
        if matches!(at, At::Created | At::Starting | At::Init | At::Apply) {
            place.until("earlier", "it has a pod", |status| status.pod_name.is_some()).await;
            place.release("earlier").await;
        }
        if matches!(at, At::Review) {
            let status = place.until("earlier", "it is reviewed", |status| status.phase == RunPhase::Review).await;
            place.approve("earlier", status.review_digest.as_deref().unwrap()).await;
        }
        place.succeeded("earlier").await;
        recovered(&place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_go_one_at_a_time_in_their_order_and_a_plan_does_not_wait() {
    let world = World::start().await;
    let place = world.place("queue").await;
    // All are looked at afterwards.
    let history = kube::api::Patch::Merge(json!({"spec": {"runHistory": 100}}));
    kube::Api::<knoll_api::Workspace>::patch(&place.api(), "w", &Default::default(), &history).await.unwrap();
    let names: Vec<String> = (0..often(8, 50)).map(|number| format!("r{number:02}")).collect();
    let module = |name: &str| {
        format!(
            "resource \"terraform_data\" \"a\" {{ input = \"{name}\" }}\noutput \"last\" {{ value = terraform_data.a.output }}\n"
        )
    };
    let modules: Vec<String> = names.iter().map(|name| module(name)).collect();
    // All runs exist before the first one can start, so that their order is known.
    place
        .run(
            "first",
            with_module(&modules[0], json!({"hooks": [{"name": "wait", "step": "pre-init", "script": WAIT}]})),
        )
        .await;
    place.until("first", "it holds the lock", |status| status.pod_name.is_some()).await;
    join_all(names.iter().zip(&modules).map(|(name, module)| place.apply(name, module))).await;
    let mut spec = inline(&modules[0]);
    spec["operation"] = json!("plan");
    place.run("beside", spec).await;
    place.succeeded("beside").await;
    assert_eq!(place.status("w").await.active.as_deref(), Some("first"), "the plan must not wait for the others");
    place.release("first").await;
    let ends = join_all(names.iter().map(|name| place.succeeded(name))).await;
    // They started in the order of their creation, each after the end of the previous one.
    let runs = kube::Api::<knoll_api::Run>::list(&place.api(), &Default::default()).await.unwrap();
    let mut order: Vec<_> = runs.items.iter().filter(|run| names.contains(&run.name_any())).collect();
    order.sort_by_key(|run| knoll_core::queue::Arrival::of(run));
    let times: Vec<_> = order
        .iter()
        .map(|run| run.status.as_ref().unwrap())
        .map(|status| (status.started_at.clone().unwrap().0, status.finished_at.clone().unwrap().0))
        .collect();
    assert_eq!((ends.len(), times.len()), (names.len(), names.len()));
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two at a time, or out of order: {times:?}");
    let last = order.last().unwrap().metadata.name.clone().unwrap();
    assert_eq!(place.idle("w").await.outputs["last"], json!(last));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workspaces_with_several_runs_each_all_end_with_the_right_state() {
    let world = World::start().await;
    let place = world.place("many").await;
    let workspaces: Vec<String> = (0..often(4, 20)).map(|number| format!("w{number}")).collect();
    join_all(workspaces.iter().map(|name| place.workspace(name, json!({})))).await;
    let place = &place;
    let rounds = often(3, 5);
    join_all(workspaces.iter().enumerate().map(|(number, workspace)| async move {
        for round in 0..rounds {
            let module = format!("resource \"terraform_data\" \"a\" {{\n  count = {}\n  input = {number}\n}}\noutput \"sum\" {{ value = sum(terraform_data.a[*].output) }}\n", round + 1);
            let mut spec = inline(&module);
            spec["workspace"] = json!(workspace);
            place.run(&format!("{workspace}-{round}"), spec).await;
        }
        for round in 0..rounds {
            place.succeeded(&format!("{workspace}-{round}")).await;
        }
        let status = place.idle(workspace).await;
        assert_eq!(status.outputs["sum"], json!(number * rounds), "{workspace}");
        assert_eq!(status.state.unwrap().resources as usize, rounds, "{workspace}");
    }))
    .await;
}
