//! What is reviewed is what runs: changes and foreign pods between the review and the apply have no effect.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use knoll_api::names::{condition, reason};
use knoll_api::run::{Run, RunPhase, RunStatus};
use knoll_e2e::manifests::{self, MODULE, approval, inline, run};
use knoll_e2e::{Namespace, World};
use kube::ResourceExt;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

/// The longest time that the pod of an approved run takes to be created.
const DEADLINE: Duration = Duration::from_secs(60);

const READ_ONLY_PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/read-only-plan");

fn workspace(spec: &serde_json::Value) -> String {
    json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "w"}, "spec": spec})
        .to_string()
}

fn config_map(name: &str, data: &serde_json::Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}).to_string()
}

/// A Run that waits for a review, with these further lines in its spec.
async fn waiting(namespace: &Namespace, more: &str) -> Run {
    namespace.create(&format!("{}  approval: Manual\n{more}", run("change", "w", &inline(MODULE))));
    namespace.run_in("change", RunPhase::Review).await
}

/// A person with nothing but the right to approve does so.
fn approve(namespace: &Namespace, run: &Run) {
    let ann = namespace.person("ann", &["knoll-approver"]);
    let digest = run.status.as_ref().and_then(|status| status.review_digest.clone()).unwrap();
    let decision = approval("approve", &run.name_any(), &digest, "Approve", &ann.user);
    let _ = ann.kubectl_with(&decision, &["create", "-f", "-"]).ok();
}

fn ready(status: &RunStatus) -> (String, String) {
    let ready = status.conditions.iter().find(|found| found.type_ == condition::READY).unwrap();
    (ready.reason.clone(), ready.message.clone())
}

#[tokio::test]
async fn a_workspace_image_or_hook_that_changes_during_the_review_changes_nothing_of_the_apply() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace(&json!({"pod": {"env": [{"name": "WORD", "value": "planned"}]}})));
    namespace.create(&config_map("hook", &json!({"script": "echo \"hook says $WORD\""})));
    let hooks = "  hooks:\n  - {name: check, step: pre-apply, configMap: {name: hook, key: script}}\n";
    let run = waiting(&namespace, hooks).await;
    let job = run.status.as_ref().unwrap().job.clone().unwrap();
    assert_eq!(job.hooks, ["pre-apply/check"]);
    let shown = namespace.knoll(&["run", "show", "change"]).ok();
    assert!(shown.contains(&job.digest) && shown.contains(&job.image) && shown.contains("pre-apply/check"), "{shown}");

    let evil = json!({"spec": {"image": "example.invalid/evil:1", "pod": {"env": [
        {"name": "PATH", "value": "/evil"}, {"name": "WORD", "value": "evil"},
    ]}}});
    let _ = namespace.kubectl(&["patch", "workspace", "w", "--type=merge", "-p", &evil.to_string()]).ok();
    let evil = json!({"data": {"script": "echo evil; exit 1"}}).to_string();
    let _ = namespace.kubectl(&["patch", "configmap", "hook", "--type=merge", "-p", &evil]).ok();
    approve(&namespace, &run);
    let status = namespace.run_in("change", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.job.map(|job| job.digest), Some(job.digest));
    let log = namespace.knoll(&["logs", "change"]).ok();
    assert!(log.contains("hook says planned") && !log.contains("evil"), "{log}");
}

#[tokio::test]
async fn a_secret_of_the_environment_that_changes_during_the_review_ends_the_run() {
    let namespace = World::get().namespace().await;
    let _ = namespace.kubectl(&["create", "secret", "generic", "cloud", "--from-literal=TF_VAR_zone=a"]).ok();
    namespace.create(&workspace(&json!({"pod": {"envFrom": [{"secretRef": {"name": "cloud"}}]}})));
    let run = waiting(&namespace, "").await;
    assert_eq!(run.status.as_ref().unwrap().job.as_ref().unwrap().references, ["Secret/cloud"]);
    let other = json!({"stringData": {"PATH": "/evil"}}).to_string();
    let _ = namespace.kubectl(&["patch", "secret", "cloud", "--type=merge", "-p", &other]).ok();
    approve(&namespace, &run);
    let status = namespace.run_in("change", RunPhase::Failed).await.status.unwrap();
    let (why, message) = ready(&status);
    assert_eq!(why, reason::CHANGED_SINCE_PLANNED);
    assert!(message.contains("`Secret/cloud`") && message.contains("plan again"), "{message}");
}

/// A kubelet reads a ConfigMap when it starts a container. An editor could change one after the operator had compared it.
#[tokio::test]
async fn what_the_apply_pod_takes_by_name_is_a_copy_that_no_editor_reaches() {
    let namespace = World::get().namespace().await;
    namespace.create(&config_map("settings", &json!({"WORD": "planned"})));
    let _ = namespace.kubectl(&["create", "secret", "generic", "cloud", "--from-literal=zone=a"]).ok();
    namespace.create(&workspace(&json!({"pod": {
        "env": [{"name": "ZONE", "valueFrom": {"secretKeyRef": {"name": "cloud", "key": "zone"}}}],
        "envFrom": [{"prefix": "MY_", "configMapRef": {"name": "settings"}}],
        "volumes": [{"name": "settings", "configMap": {"name": "settings", "items": [{"key": "WORD", "path": "word"}]}}],
    }})));
    let hooks = "  hooks:\n  - {name: check, step: pre-apply, script: 'echo \"it is $MY_WORD in $ZONE\"'}\n";
    let run = waiting(&namespace, hooks).await;
    approve(&namespace, &run);
    let pods = namespace.api::<Pod>();
    let there = await_condition(pods, "change-apply", |pod: Option<&Pod>| pod.is_some());
    let pod = tokio::time::timeout(DEADLINE, there).await.unwrap().unwrap().unwrap();
    let evil = json!({"data": {"WORD": "evil"}}).to_string();
    let erin = namespace.person("erin", &["knoll-editor"]);
    let _ = erin.kubectl(&["patch", "configmap", "settings", "--type=merge", "-p", &evil]).ok();

    let spec = serde_json::to_value(pod.spec.unwrap()).unwrap();
    let mut found = Vec::new();
    for path in ["/env/0/valueFrom/secretKeyRef/name", "/envFrom/0/secretRef/name"] {
        let containers = spec["containers"].as_array().unwrap().iter().filter(|it| it["name"] == "runner");
        found.extend(containers.filter_map(|container| container.pointer(path).cloned()));
    }
    let volumes = spec["volumes"].as_array().unwrap().iter().filter(|volume| volume["name"] == "settings");
    found.extend(volumes.map(|volume| volume["secret"]["secretName"].clone()));
    assert_eq!(found.len(), 3, "{spec}");
    for name in found {
        let name = name.as_str().unwrap();
        assert!(name.starts_with("knoll-job-change-"), "{name}");
        let secret = namespace.kubectl(&["get", "secret", name, "-o", "json"]).ok();
        assert!(serde_json::from_str::<Value>(&secret).unwrap()["immutable"] == true, "{secret}");
        let patch = ["patch", "secret", name, "--type=merge", "-p", r#"{"stringData": {"WORD": "evil"}}"#];
        for words in [&patch[..], &["delete", "secret", name]] {
            assert!(erin.kubectl(words).refused().contains("forbidden"));
        }
        let forged = erin.kubectl(&["create", "secret", "generic", "knoll-job-change-forged"]).refused();
        assert!(forged.contains("only the operator creates"), "{forged}");
    }
    // The change came before the job was given out, or after it: nothing ran with it in either case.
    let ended = |run: &Run| run.status.as_ref().is_some_and(|status| status.phase.is_finished());
    let status = namespace.until("change", "it has ended", ended).await.status.unwrap();
    let log = namespace.knoll(&["logs", "change"]).ok();
    assert!(!log.contains("evil"), "{log}");
    match status.phase {
        RunPhase::Succeeded => assert!(log.contains("it is planned in a"), "{log}"),
        _ => assert_eq!(ready(&status).0, reason::CHANGED_SINCE_PLANNED),
    }

    // A plan of today has what is there today, and applies with it.
    let now = manifests::run("now", "w", &inline(MODULE));
    namespace.create(&format!("{now}  approval: Manual\n{hooks}"));
    let digest = namespace.run_in("now", RunPhase::Review).await.status.unwrap().review_digest.unwrap();
    let ada = namespace.person("ada", &["knoll-approver"]);
    let decision = approval("now", "now", &digest, "Approve", &ada.user);
    let _ = ada.kubectl_with(&decision, &["create", "-f", "-"]).ok();
    namespace.run_in("now", RunPhase::Succeeded).await;
    let log = namespace.knoll(&["logs", "now"]).ok();
    assert!(log.contains("it is evil in a"), "{log}");
}

#[tokio::test]
async fn a_pod_that_a_user_makes_for_the_apply_is_not_the_runs() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace(&json!({})));
    let run = waiting(&namespace, "").await;
    let owner = json!([{
        "apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "name": "change", "uid": run.uid(), "controller": true,
    }]);
    // No node takes it, so that it costs nothing where there is one.
    let foreign = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "change-apply", "ownerReferences": owner, "labels": {"knoll.dev/run": "change"}},
        "spec": {
            "nodeSelector": {"example.com/nowhere": "yes"},
            "containers": [{"name": "runner", "image": "mine", "command": ["sleep", "600"]}],
        },
    });
    namespace.create(&foreign.to_string());
    let foreign = namespace.api::<Pod>().get("change-apply").await.unwrap().uid();
    approve(&namespace, &run);
    let status = namespace.run_in("change", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.pod_name.as_deref(), Some("change-apply"));
    assert_ne!(status.pod_uid, foreign);
    let pod = namespace.api::<Pod>().get_opt("change-apply").await.unwrap();
    assert_ne!(pod.and_then(|pod| pod.uid()), foreign, "it is gone");
}

#[tokio::test]
async fn a_privileged_command_runs_in_the_settings_that_were_approved() {
    let namespace = World::get().namespace().await;
    let env = |word: &str| json!({"pod": {"env": [{"name": "WORD", "value": word}]}});
    let mut spec = env("approved");
    spec["privilegedCommands"] = json!(["sh"]);
    namespace.create(&workspace(&spec));
    let command = json!({
        "apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "change"},
        "spec": {
            "workspace": "w", "operation": "command", "command": "sh", "args": ["-c", "echo word is $WORD"],
            "source": {"inline": {"main.tf": ""}},
        },
    });
    namespace.create(&command.to_string());
    let run = namespace.run_in("change", RunPhase::Review).await;
    let evil = json!({"spec": env("evil")}).to_string();
    let _ = namespace.kubectl(&["patch", "workspace", "w", "--type=merge", "-p", &evil]).ok();
    approve(&namespace, &run);
    namespace.run_in("change", RunPhase::Succeeded).await;
    let log = namespace.knoll(&["logs", "change"]).ok();
    assert!(log.contains("word is approved"), "{log}");
}

#[tokio::test]
async fn plan_and_apply_have_service_accounts_of_their_own_without_a_review() {
    let namespace = World::get().namespace().await;
    let _ = namespace.kubectl(&["create", "-f", READ_ONLY_PLAN]).ok();
    namespace.create(&run("change", "guarded", &inline(MODULE)));
    let status = namespace.run_in("change", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.pod_name.as_deref(), Some("change-apply"));
    let job = status.job.unwrap();
    assert_eq!(job.plan_service_account.as_deref(), Some("planner"));
    assert_eq!(job.apply_service_account.as_deref(), Some("applier"));
    for (pod, expect) in [("change", "planner"), ("change-apply", "applier")] {
        let spec = namespace.api::<Pod>().get(pod).await.unwrap().spec.unwrap();
        assert_eq!(spec.service_account_name.as_deref(), Some(expect), "{pod}");
    }
}
