//! A hub, a node or a network that does not answer: no terraform works on while another one starts.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use knoll_api::names::{annotation, condition, reason};
use knoll_api::run::{Run, RunPhase, RunStatus};
use knoll_e2e::manifests::{inline, run, workspace};
use knoll_e2e::processes::{Process, processes, until};
use knoll_e2e::{Namespace, Outage, World};
use kube::ResourceExt;
use kube::runtime::wait::await_condition;

/// Each test on the embedded cluster may stop the hub, and has it for itself.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A runner goes on for 80 seconds without the hub, and terraform takes a moment to stop.
const SILENT: Duration = Duration::from_secs(150);
/// The hub refuses a runner with the answer to its open question, 15 seconds later at the most.
const FENCED: Duration = Duration::from_secs(60);
/// A Run of a lost node is given up six minutes after the deletion of its pod.
const GIVEN_UP: Duration = Duration::from_secs(480);

/// An apply that does not end by itself; `a` is in the state meanwhile.
const ENDLESS: &str = r#"
variable "word" {}
resource "terraform_data" "a" { input = "kept" }
resource "terraform_data" "b" {
  depends_on = [terraform_data.a]
  provisioner "local-exec" { command = "exec sleep 3600" }
}
"#;

/// The same resources, made at once.
const QUICK: &str = r#"
variable "word" {}
resource "terraform_data" "a" { input = "kept" }
resource "terraform_data" "b" { depends_on = [terraform_data.a] }
"#;

fn is_at_work(pod: &Pod) -> bool {
    processes(pod).iter().any(Process::is_terraform)
}

/// Starts a run that is in the middle of its apply, and returns its pod. Another run waits for it.
async fn applying(namespace: &Namespace) -> Pod {
    namespace.create(&workspace("w"));
    namespace.create(&run("first", "w", &inline(ENDLESS)));
    let has_a = |state: &Secret| state.annotations().get(annotation::RESOURCES).is_some_and(|count| count == "1");
    namespace.until::<Secret>("knoll-state-w", "had `a`", has_a).await;
    namespace.create(&run("second", "w", &inline(QUICK)));
    let pod = namespace.api().get("first").await.unwrap();
    assert!(is_at_work(&pod), "the test itself is wrong: {:?}", processes(&pod));
    pod
}

async fn status(namespace: &Namespace, run: &str) -> RunStatus {
    namespace.api::<Run>().get(run).await.unwrap().status.unwrap_or_default()
}

/// The reason and the message of the Ready condition.
fn ready(status: &RunStatus) -> (String, String) {
    let ready = status.conditions.iter().find(|found| found.type_ == condition::READY).unwrap();
    (ready.reason.clone(), ready.message.clone())
}

/// The second run succeeds, and knows what the first one has made.
async fn goes_on(namespace: &Namespace) {
    let plan = namespace.run_in("second", RunPhase::Succeeded).await.status.unwrap().plan.unwrap();
    let planned: Vec<&str> = plan.resources.iter().map(|resource| resource.address.as_str()).collect();
    assert_eq!(planned, ["terraform_data.b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_does_not_hear_the_hub_has_stopped_terraform_before_the_next_one_starts() {
    let _alone = ALONE.lock().await;
    let world = World::get();
    let namespace = world.namespace().await;
    let pod = applying(&namespace).await;
    let outage = world.cut_off(&pod);
    until("terraform has stopped by itself", SILENT, || !is_at_work(&pod)).await;
    drop(outage);
    let first = namespace.run_in("first", RunPhase::Failed).await.status.unwrap();
    let (why, message) = ready(&first);
    assert!(why == reason::HUB_LOST && message.contains("did not respond for 80s"), "{why}: {message}");
    let ended = first.finished_at.unwrap();
    goes_on(&namespace).await;
    assert!(status(&namespace, "second").await.started_at.unwrap().0 >= ended.0);
}

/// Once, the runner asked the hub for ever, and its terraform worked on while the next one began.
#[tokio::test(flavor = "multi_thread")]
async fn the_terraform_of_a_lost_node_has_ended_before_its_run_is_given_up() {
    let world = World::get();
    if !world.is_real() {
        // Needs a pod with a network of its own.
        return;
    }
    let namespace = world.namespace().await;
    let pod = applying(&namespace).await;
    // The node goes on, and neither hears nor says anything of the pod.
    let (node, network) = (Outage::of_node(&pod), world.cut_off(&pod));
    let _ = namespace.kubectl(&["delete", "pod", "first", "--wait=false"]).ok();
    until("terraform has stopped by itself", SILENT, || !is_at_work(&pod)).await;
    let (first, second) = (status(&namespace, "first").await, status(&namespace, "second").await);
    assert!(!first.phase.is_finished(), "it was given up while terraform worked: {first:?}");
    assert_eq!(second.pod_name, None, "another one began while terraform worked");

    let given_up = await_condition(namespace.api::<Run>(), "first", |run: Option<&Run>| {
        run.and_then(|run| run.status.as_ref()).is_some_and(|status| status.phase.is_finished())
    });
    let given_up = tokio::time::timeout(GIVEN_UP, given_up).await.expect("it is given up").unwrap();
    assert_eq!(ready(&given_up.unwrap().status.unwrap()).0, reason::NODE_LOST);
    // The node of the test is the one that it was, so the second run can start while the first pod is there.
    goes_on(&namespace).await;
    assert!(!is_at_work(&pod));
    drop((node, network));
}

/// Once, a runner that the hub refused only logged it.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_the_hub_refuses_stops_terraform_at_once() {
    let _alone = ALONE.lock().await;
    let namespace = World::get().namespace().await;
    let pod = applying(&namespace).await;
    let _ = namespace.kubectl(&["delete", "run", "second"]).ok();
    // The node does not stop the pod, and Kubernetes forgets it.
    let node = Outage::of_node(&pod);
    let _ = namespace.kubectl(&["delete", "pod", "first", "--force", "--grace-period=0", "--wait=false"]).ok();
    until("terraform is stopped", FENCED, || !is_at_work(&pod)).await;
    let first = namespace.run_in("first", RunPhase::Failed).await.status.unwrap();
    assert_eq!(ready(&first).0, reason::POD_DELETED, "{:?}", ready(&first));
    drop(node);
    namespace.create(&run("second", "w", &inline(QUICK)));
    goes_on(&namespace).await;
}
