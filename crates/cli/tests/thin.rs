//! The way of a Run as a user sees it: `kubectl create` of the first example, its steps, its state and its outputs; a
//! plan that a person decides on; and who may do what.
#![allow(clippy::unwrap_used, reason = "tests")]

mod world;

use std::process::{Command, Output};

use k8s_openapi::api::core::v1::{Pod, Secret};
use knoll_api::run::{RunPhase, RunStatus};
use knoll_api::{Run, Workspace};
use kube::ResourceExt;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use serde_json::json;
use world::{Place, World, reason, with_module, within};

const MODULE: &str = "resource \"terraform_data\" \"a\" { input = \"kept\" }\n";

fn kubectl(world: &World, place: &Place, words: &[&str]) -> Output {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(world.kubeconfig()).args(["--namespace", &place.namespace]).args(words);
    command.output().expect("kubectl must be on the PATH")
}

#[track_caller]
fn done(world: &World, place: &Place, words: &[&str]) -> String {
    let output = kubectl(world, place, words);
    assert!(output.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_example_is_applied() {
    let world = World::start().await;
    let place = world.place("first").await;
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/first-run");
    done(&world, &place, &["create", "-f", example]);
    let runs = place.api::<Run>().list(&ListParams::default()).await.unwrap();
    let name = runs.items[0].name_any();
    let status = place.succeeded(&name).await;
    let steps: Vec<String> = status.steps.iter().map(|step| step.name.to_string()).collect();
    assert_eq!(steps, ["setup", "init", "plan", "apply", "outputs"]);
    assert!(status.steps.iter().all(|step| step.started_at.is_some() && step.finished_at.is_some()));
    let plan = status.plan.unwrap();
    assert_eq!((plan.add, plan.change, plan.destroy, status.exit_code), (3, 0, 0, Some(0)));
    let workspace = place.idle("hello").await;
    assert_eq!(workspace.outputs["subnets"], json!(["knoll-a", "knoll-b"]));
    assert_eq!(workspace.state.unwrap().resources, 3);
    assert!(place.api::<Secret>().get_opt("knoll-state-hello").await.unwrap().is_some());
    let log = done(&world, &place, &["logs", &name]);
    assert!(log.contains("Apply complete! Resources: 3 added"), "{log}");
    let table = done(&world, &place, &["get", "runs"]);
    assert!(table.contains("Succeeded"), "{table}");
    done(&world, &place, &["wait", "run", &name, "--for=condition=Ready", "--timeout=60s"]);
    assert!(place.events(&name).await.contains(&"Succeeded".to_owned()));
}

/// Creates an Approval with these words for a user; what was said when it was refused.
fn approve(world: &World, place: &Place, user: &str, by: &str, digest: &str, decision: &str) -> Result<(), String> {
    let approval = json!({
        "apiVersion": "knoll.dev/v1alpha1", "kind": "Approval",
        "metadata": {"name": format!("{user}-{}", decision.to_lowercase())},
        "spec": {"run": "r", "digest": digest, "decision": decision, "by": by},
    });
    let file = world.folder.path().join(format!("{}-{user}.json", place.namespace));
    std::fs::write(&file, approval.to_string()).unwrap();
    let output = kubectl(world, place, &["--as", user, "create", "-f", &file.display().to_string()]);
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

async fn in_review(place: &Place) -> RunStatus {
    let reviewed = |status: &RunStatus| status.phase == RunPhase::Review || status.phase.is_finished();
    let status = place.until("r", "it is reviewed", reviewed).await;
    assert_eq!(status.phase, RunPhase::Review, "{:?}", reason(&status));
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_applied_when_who_may_approve_it_does() {
    let world = World::start().await;
    let place = world.place("review").await;
    for (user, role) in [("rita", "knoll-user"), ("anna", "knoll-approver"), ("vera", "knoll-viewer")] {
        let words = ["create", "rolebinding", user, "--clusterrole", role, "--user", user];
        done(&world, &place, &words);
    }
    let file = world.folder.path().join("run.json");
    let spec = with_module(MODULE, json!({"workspace": "w", "operation": "apply", "approval": "Manual"}));
    let run = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"}, "spec": spec});
    std::fs::write(&file, run.to_string()).unwrap();
    let create = |user: &str| kubectl(&world, &place, &["--as", user, "create", "-f", &file.display().to_string()]);
    for user in ["anna", "vera", "nobody"] {
        let refused = create(user);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("cannot create resource \"runs\""), "{user}: {said}");
    }
    assert!(create("rita").status.success());
    let status = in_review(&place).await;
    let digest = status.review_digest.clone().unwrap();
    // The pod has ended: nothing waits in memory.
    let gone = |pod: Option<&Pod>| {
        pod.is_none_or(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        })
    };
    let pod = status.pod_name.unwrap_or_else(|| "r".to_owned());
    within("the pod has ended", await_condition(place.api::<Pod>(), &pod, gone)).await.unwrap();

    for user in ["rita", "vera"] {
        let said = approve(&world, &place, user, user, &digest, "Approve").unwrap_err();
        assert!(said.contains("cannot create resource \"approvals\""), "{user}: {said}");
    }
    let said = approve(&world, &place, "anna", "rita", &digest, "Approve").unwrap_err();
    assert!(said.contains("spec.by"), "a liar is refused with the field: {said}");
    let other = format!("sha256:{}", "0".repeat(64));
    approve(&world, &place, "anna", "anna", &other, "Discard").unwrap();
    in_review(&place).await;
    approve(&world, &place, "anna", "anna", &digest, "Approve").unwrap();
    let status = place.succeeded("r").await;
    assert_eq!(status.plan.unwrap().add, 1);
    assert_eq!(place.resources("w").await, ["terraform_data.a"]);
    // Everybody with a role may look; nobody else.
    for (user, may) in [("rita", true), ("anna", true), ("vera", true), ("nobody", false)] {
        assert_eq!(kubectl(&world, &place, &["--as", user, "get", "runs"]).status.success(), may, "{user}");
        let secrets = kubectl(&world, &place, &["--as", user, "get", "secrets"]).status.success();
        assert!(!secrets, "{user} must not read Secrets");
    }
    assert_eq!(place.api::<Workspace>().list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_discarded_changes_nothing() {
    let world = World::start().await;
    let place = world.place("discard").await;
    place.run("r", with_module(MODULE, json!({"approval": "Manual"}))).await;
    let digest = in_review(&place).await.review_digest.unwrap();
    done(&world, &place, &["create", "rolebinding", "anna", "--clusterrole", "knoll-approver", "--user", "anna"]);
    approve(&world, &place, "anna", "anna", &digest, "Discard").unwrap();
    assert_eq!(place.ended("r").await.phase, RunPhase::Discarded);
    assert!(place.resources("w").await.is_empty());
    // A review that nobody takes up ends by itself.
    place.run("forgotten", with_module(MODULE, json!({"approval": "Manual", "timeouts": {"review": "2s"}}))).await;
    let status = place.ended("forgotten").await;
    assert_eq!(status.phase, RunPhase::Discarded, "{:?}", reason(&status));
    place.apply("next", MODULE).await;
    place.succeeded("next").await;
}
