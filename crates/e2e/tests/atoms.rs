//! Atoms through the CLI: successful and failing updates, and their results.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use knoll_api::Atom;
use knoll_api::atom::{AtomPhase, AtomStatus};
use knoll_e2e::{Namespace, World};
use serde_json::Value;

const IMAGE: &str = "knoll/box:1";

/// A directory with the objects of one version.
struct Folder {
    _home: tempfile::TempDir,
    path: PathBuf,
}

fn folder(objects: &[&str]) -> Folder {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("web");
    std::fs::create_dir(&path).unwrap();
    for (number, object) in objects.iter().enumerate() {
        std::fs::write(path.join(format!("{number}.yaml")), object).unwrap();
    }
    Folder { _home: home, path }
}

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{k: \"{value}\"}}\n")
}

/// A ConfigMap that never becomes ready.
const HOPELESS: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: h, annotations: {knoll.dev/ready-when: self.data.k}}\ndata: {k: a}\n";

fn secret(name: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{k: v}}\n")
}

/// A Deployment with one pod that runs a command.
fn deployment(image: &str, command: &str, extra: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  selector: {{matchLabels: {{app: web}}}}\n{extra}  template:\n    metadata: {{labels: {{app: web}}}}\n    spec:\n      terminationGracePeriodSeconds: 0\n      containers:\n        - {{name: web, image: \"{image}\", command: [sh, -c, \"{command}\"]}}\n"
    )
}

const SERVICE: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n";

fn job(name: &str, command: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, annotations: {{knoll.dev/replace: \"true\"}}}}\nspec:\n  backoffLimit: 0\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{{name: job, image: \"{IMAGE}\", command: [sh, -c, \"{command}\"]}}]\n"
    )
}

/// Applies the objects as the next version of the Atom `web`, waits for the end of the update, and returns the exit
/// code.
#[track_caller]
fn apply(namespace: &Namespace, objects: &[&str], flags: &[&str]) -> Option<i32> {
    let folder = folder(objects);
    let path = folder.path.display().to_string();
    namespace.knoll(&[&["atom", "apply", "-f", &path, "--wait"], flags].concat()).code
}

/// A namespace whose Atoms may edit what is in it.
async fn with_rights() -> Namespace {
    let namespace = World::get().namespace().await;
    let account = format!("--serviceaccount={}:default", namespace.name);
    let _ = namespace.kubectl(&["create", "rolebinding", "default-edit", "--clusterrole=edit", &account]).ok();
    namespace
}

async fn status(namespace: &Namespace) -> AtomStatus {
    namespace.api::<Atom>().get("web").await.unwrap().status.unwrap()
}

/// A field of an object.
#[track_caller]
fn get(namespace: &Namespace, object: &str, path: &str) -> String {
    namespace.kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")]).ok()
}

#[track_caller]
fn is_there(namespace: &Namespace, object: &str) -> bool {
    !namespace.kubectl(&["get", object, "--ignore-not-found", "-o", "name"]).ok().trim().is_empty()
}

#[tokio::test]
async fn versions_come_and_go_by_the_users_commands() {
    let namespace = with_rights().await;
    let (a1, a2, old) = (config_map("a", "1"), config_map("a", "2"), config_map("old", "1"));
    assert_eq!(apply(&namespace, &[&a1, &old], &[]), Some(0));
    let first = status(&namespace).await.current_version.unwrap();
    assert_eq!(apply(&namespace, &[&a2, HOPELESS], &[]), Some(1));
    let shown = namespace.knoll(&["atom", "status", "web"]);
    assert_eq!(shown.code, Some(1));
    assert!(
        shown.stdout.contains("ConfigMap a  ready") && shown.stdout.contains("neither true nor false"),
        "{}",
        shown.stdout
    );
    assert_eq!((get(&namespace, "cm/a", ".data.k"), is_there(&namespace, "cm/h")), ("1".to_owned(), false));

    let next = folder(&[&a2]);
    let path = next.path.display().to_string();
    let diff = namespace.knoll(&["atom", "diff", "-f", &path]);
    assert_eq!(diff.code, Some(1));
    assert!(
        diff.stdout.contains("-  k: \"1\"\n+  k: \"2\"") || diff.stdout.contains("-  k: '1'\n+  k: '2'"),
        "{}",
        diff.stdout
    );
    assert!(diff.stdout.contains("+++ /dev/null"), "what would be pruned is shown: {}", diff.stdout);
    assert_eq!(apply(&namespace, &[&a2], &[]), Some(0));
    assert_eq!(namespace.knoll(&["atom", "diff", "-f", &path]).code, Some(0));
    assert!(!is_there(&namespace, "cm/old"));

    // A pruned object is restored by a rollback.
    assert_eq!(namespace.knoll(&["atom", "rollback", "web", "--wait"]).code, Some(0));
    assert_eq!(status(&namespace).await.current_version, Some(first.clone()));
    assert_eq!((get(&namespace, "cm/a", ".data.k"), is_there(&namespace, "cm/old")), ("1".to_owned(), true));
    let history = namespace.knoll(&["atom", "history", "web"]).ok();
    assert!(history.lines().count() == 4 && history.contains(&first), "{history}");
    assert!(namespace.knoll(&["atom", "list"]).ok().contains("Running"));
    assert!(namespace.knoll(&["atom", "cancel", "web"]).refused().contains("no update in progress"));
    let _ = namespace.kubectl(&["delete", "atom", "web", "--timeout=60s"]).ok();
    assert!(!is_there(&namespace, "cm/a"));
}

#[tokio::test]
async fn an_update_that_may_not_prune_is_undone_and_what_was_pruned_is_back() {
    let namespace = with_rights().await;
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: deployer}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: deployer}\nrules:\n  - {apiGroups: [\"\"], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}\n  - {apiGroups: [\"\"], resources: [secrets], verbs: [get, list, watch, create, patch]}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: deployer}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}\nsubjects: [{kind: ServiceAccount, name: deployer}]\n";
    let _ = namespace.kubectl_with(account, &["create", "-f", "-"]).ok();
    let (a1, a2, old) = (config_map("a", "1"), config_map("a", "2"), config_map("old", "1"));
    let as_deployer = ["--service-account", "deployer"];
    assert_eq!(apply(&namespace, &[&a1, &old, &secret("s")], &as_deployer), Some(0));
    let uid = get(&namespace, "cm/old", ".metadata.uid");
    assert_eq!(apply(&namespace, &[&a2], &as_deployer), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert_eq!(failure.reason, "Forbidden");
    assert!(failure.message.contains("cannot delete resource \"secrets\""), "{}", failure.message);
    assert_eq!(
        (get(&namespace, "cm/a", ".data.k"), get(&namespace, "cm/old", ".data.k")),
        ("1".to_owned(), "1".to_owned())
    );
    assert_ne!(get(&namespace, "cm/old", ".metadata.uid"), uid, "it was pruned, and made anew");
    // A missing permission of the account is reported before anything is written.
    let claim = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: s}\n";
    assert_eq!(apply(&namespace, &[&a2, claim], &as_deployer), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert!(failure.reason == "Forbidden" && failure.message.contains("serviceaccounts"), "{}", failure.message);
    assert_eq!(get(&namespace, "cm/a", ".data.k"), "1");
    // Rights in the namespace are none outside of it.
    let elsewhere = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: default}\n";
    let folder = folder(&[elsewhere]);
    let words = ["atom", "apply", "out", "-f", folder.path.to_str().unwrap(), "--wait"];
    assert_eq!(namespace.knoll(&words).code, Some(1));
}

#[tokio::test]
async fn an_atom_without_an_account_reaches_nothing_that_its_namespace_does_not_grant() {
    let namespace = World::get().namespace().await;
    let theirs = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: theirs}\n";
    let _ = namespace.kubectl_with(theirs, &["create", "-f", "-"]).ok();
    let uid = get(&namespace, "secret/s", ".metadata.uid");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: \"{IMAGE}\", securityContext: {{privileged: true}}}}]}}\n"
    );
    for object in [secret("s"), config_map("a", "1"), pod] {
        assert_eq!(apply(&namespace, &[&object], &[]), Some(1), "{object}");
        let failure = status(&namespace).await.failure.unwrap();
        assert_eq!(failure.reason, "Forbidden", "{}", failure.message);
        let command = format!(
            "`kubectl create rolebinding {0}-default-edit --clusterrole=edit --serviceaccount={0}:default --namespace={0}`",
            namespace.name
        );
        assert!(failure.message.contains(&command), "{}", failure.message);
    }
    let _ = namespace.kubectl(&["delete", "atom", "web", "--timeout=60s"]).ok();
    let left = [".metadata.uid", ".data.k"].map(|field| get(&namespace, "secret/s", field));
    assert_eq!(left, [uid.clone(), "dGhlaXJz".to_owned()]);
    assert!(!is_there(&namespace, "pod/p"));

    // With the command of the message, it may write what is not there; the Secret is still not its own.
    let account = format!("--serviceaccount={}:default", namespace.name);
    let _ = namespace.kubectl(&["create", "rolebinding", "default-edit", "--clusterrole=edit", &account]).ok();
    assert_eq!(apply(&namespace, &[&secret("s"), &config_map("a", "1")], &["--force"]), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert_eq!(failure.reason, "ObjectConflict", "{}", failure.message);
    assert!(failure.message.contains("/s` exists and is not the Atom's own"), "{}", failure.message);
    assert!(failure.message.contains("knoll.dev/adopt: \"true\""), "{}", failure.message);
    assert!(!is_there(&namespace, "cm/a"));
    // Adopted, it is written, and outlives the Atom.
    let adopting = secret("s").replace("{name: s}", "{name: s, annotations: {knoll.dev/adopt: \"true\"}}");
    assert_eq!(apply(&namespace, &[&adopting, &config_map("a", "1")], &["--force"]), Some(0));
    assert_eq!(get(&namespace, "secret/s", ".data.k"), "dg==");
    let _ = namespace.kubectl(&["delete", "atom", "web", "--timeout=60s"]).ok();
    assert_eq!(get(&namespace, "secret/s", ".metadata.uid"), uid);
    assert!(!is_there(&namespace, "cm/a"));
}

/// Each of them once became a header of the operator's requests, or a part of one.
#[tokio::test]
async fn an_account_whose_name_changes_a_request_is_refused() {
    let namespace = with_rights().await;
    let long = "a".repeat(300);
    let names = [
        "x\n",
        "x\nImpersonate-Group: system:masters",
        "x\t",
        "dé",
        "..",
        "../x",
        "a/b",
        "a:b",
        "a b",
        "",
        long.as_str(),
    ];
    for name in names {
        let atom = serde_json::json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "Atom", "metadata": {"name": "web"},
            "spec": {"version": "v1", "serviceAccountName": name},
        });
        let said = namespace.kubectl_with(&atom.to_string(), &["create", "-f", "-"]).refused();
        assert!(said.contains("spec.serviceAccountName"), "{name:?}: {said}");
        let policy = serde_json::json!({
            "apiVersion": "knoll.dev/v1alpha1", "kind": "Policy", "metadata": {"name": format!("{}-x", namespace.name)},
            "spec": {"defaults": {"atom": {"serviceAccountName": name}}},
        });
        let said = namespace.kubectl_with(&policy.to_string(), &["create", "--dry-run=server", "-f", "-"]).refused();
        assert!(said.contains("spec.defaults.atom.serviceAccountName"), "{name:?}: {said}");
    }
    assert!(!is_there(&namespace, "atom/web"));
}

#[tokio::test]
async fn a_secrets_value_in_an_invalid_label_is_told_nowhere() {
    let namespace = with_rights().await;
    let value = "hunter2-\"quoted\"-\\slash";
    let password = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}, "stringData": {"k": value},
    });
    let template = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"token": "x-${input.password}"}},
    });
    let version = serde_json::json!({
        "apiVersion": "knoll.dev/v1alpha1", "kind": "AtomVersion", "metadata": {"name": "v1"},
        "spec": {"template": template.to_string()},
    });
    let atom = serde_json::json!({
        "apiVersion": "knoll.dev/v1alpha1", "kind": "Atom", "metadata": {"name": "web"},
        "spec": {"version": "v1", "inputs": [{"name": "password", "secretKeyRef": {"name": "password", "key": "k"}}]},
    });
    for object in [password, version, atom] {
        let _ = namespace.create(&object.to_string());
    }
    let ends = |atom: &Atom| atom.status.as_ref().is_some_and(|status| status.phase == AtomPhase::Reverted);
    let atom: Atom = namespace.until("web", "was refused", ends).await;
    let failure = atom.status.unwrap().failure.unwrap();
    assert_eq!(failure.reason, "TemplateInvalid", "{}", failure.message);
    assert!(failure.message.contains("metadata.labels"), "it is said where to look: {}", failure.message);
    for kinds in ["atoms,atomversions,events,configmaps", "events.events.k8s.io"] {
        let all = namespace.kubectl(&["get", kinds, "-o", "json"]).ok();
        for part in ["hunter", "quoted", "slash"] {
            assert!(!all.contains(part), "{part}: {all}");
        }
    }
}

#[tokio::test]
async fn a_rollback_can_be_cancelled_and_blocks_no_version() {
    let namespace = with_rights().await;
    assert_eq!(apply(&namespace, &[&config_map("a", "1")], &["--rollback-deadline", "10m"]), Some(0));
    let held = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n";
    let next = folder(&[&config_map("a", "2"), held, HOPELESS]);
    let _ = namespace.knoll(&["atom", "apply", "-f", next.path.to_str().unwrap()]).ok();
    let rolls_back = |atom: &Atom| atom.status.as_ref().is_some_and(|status| status.phase == AtomPhase::Rollback);
    namespace.until::<Atom>("web", "rolled back", rolls_back).await;
    let cancelled = namespace.knoll(&["atom", "cancel", "web", "--wait"]);
    assert_eq!(cancelled.code, Some(2), "{}", cancelled.stderr);
    assert!(cancelled.stdout.contains("the rollback of atom `web`"), "{}", cancelled.stdout);
    let failed = status(&namespace).await;
    assert_eq!(failed.phase, AtomPhase::Failure);
    let told = failed.conditions.iter().find(|told| told.type_ == "Stalled").unwrap();
    assert!(told.message.contains("was cancelled"), "{}", told.message);
    // With kubectl alone: nobody takes the cancellation back.
    let version = "apiVersion: knoll.dev/v1alpha1\nkind: AtomVersion\nmetadata: {name: v3}\nspec: {template: \"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: '3'}}\"}\n";
    let _ = namespace.create(version);
    let _ = namespace.kubectl(&["patch", "atom", "web", "--type=merge", "-p", r#"{"spec":{"version":"v3"}}"#]).ok();
    let runs = |atom: &Atom| {
        atom.status
            .as_ref()
            .is_some_and(|status| status.phase == AtomPhase::Running && status.target_version.as_deref() == Some("v3"))
    };
    namespace.until::<Atom>("web", "ran", runs).await;
    assert_eq!(get(&namespace, "cm/a", ".data.k"), "3");
    let free = ["patch", "cm/held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#];
    let _ = namespace.kubectl(&free).ok();
}

#[tokio::test]
async fn an_expression_that_never_ends_holds_no_other_atom() {
    let namespace = with_rights().await;
    let opened: String = (0..9).map(|level| format!("[0,1,2,3,4,5,6,7,8,9].all(v{level},")).collect();
    let expression = format!("{opened}true{}", ")".repeat(9));
    let endless = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: e, annotations: {{knoll.dev/ready-when: \"{expression}\"}}}}\n"
    );
    let held = folder(&[&endless]);
    let _ = namespace.knoll(&["atom", "apply", "slow", "-f", held.path.to_str().unwrap(), "--deadline", "5m"]).ok();
    assert_eq!(apply(&namespace, &[&config_map("a", "1")], &[]), Some(0));
    let ends = |atom: &Atom| atom.status.as_ref().is_some_and(|status| status.phase == AtomPhase::Reverted);
    let slow: Atom = namespace.until("slow", "failed", ends).await;
    let failure = slow.status.unwrap().failure.unwrap();
    assert!(failure.message.contains("too expensive"), "{}", failure.message);
}

/// The spec of an object, byte for byte.
#[track_caller]
fn spec(namespace: &Namespace, object: &str) -> String {
    get(namespace, object, ".spec")
}

#[tokio::test]
async fn a_pod_that_cannot_start_says_why() {
    let namespace = with_rights().await;
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{terminationGracePeriodSeconds: 0, containers: [{{name: web, image: \"{IMAGE}\", command: [nosuchprogram]}}]}}\n"
    );
    assert_eq!(apply(&namespace, &[&pod], &["--deadline", "8s"]), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert_eq!(failure.phase, AtomPhase::Deadline, "{}", failure.message);
    assert!(failure.message.contains("nosuchprogram"), "{}", failure.message);
}

/// A Deployment was only "not ready in time" where the account of its Atom could not look at pods.
#[tokio::test]
async fn an_account_without_pods_hid_why_a_deployment_was_not_ready() {
    if !World::get().is_real() {
        // Needs the workload controllers.
        return;
    }
    let namespace = World::get().namespace().await;
    let account = format!("--serviceaccount={}:default", namespace.name);
    let _ = namespace.kubectl(&["create", "role", "deployer", "--verb=*", "--resource=deployments.apps"]).ok();
    let _ = namespace.kubectl(&["create", "rolebinding", "deployer", "--role=deployer", &account]).ok();
    let bad = deployment("knoll/none:1", "sleep 3600", "  replicas: 1\n");
    assert_eq!(apply(&namespace, &[&bad], &["--deadline", "8s"]), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert_eq!(failure.phase, AtomPhase::Deadline, "{}", failure.message);
    assert!(failure.message.contains("service account may not list pods"), "{}", failure.message);
}

#[tokio::test]
async fn workloads_that_do_not_come_up_are_undone_to_the_byte() {
    if !World::get().is_real() {
        // Needs the workload controllers.
        return;
    }
    let namespace = with_rights().await;
    let good = deployment(IMAGE, "sleep 3600", "  replicas: 1\n");
    let settings = config_map("settings", "1");
    // A failing first version leaves nothing behind.
    // Without a minimum, Kubernetes calls a container available in the moment between its start and its exit.
    let crash = deployment(IMAGE, "echo no database; exit 3", "  progressDeadlineSeconds: 600\n  minReadySeconds: 5\n");
    assert_eq!(apply(&namespace, &[&crash, SERVICE, &settings], &["--deadline", "10s"]), Some(1));
    let failed = status(&namespace).await;
    let failure = failed.failure.unwrap();
    assert_eq!((failure.phase, failed.last_good_version), (AtomPhase::Deadline, None));
    assert!(failure.message.contains("no database"), "the last line of the log is told: {}", failure.message);
    for object in ["deployment/web", "service/web", "cm/settings"] {
        assert!(!is_there(&namespace, object), "{object}");
    }

    assert_eq!(
        apply(&namespace, &[&good, SERVICE, &settings, &job("migrate", "true")], &["--deadline", "60s"]),
        Some(0)
    );
    let specs = || ["deployment/web", "service/web"].map(|object| spec(&namespace, object));
    let before = specs();

    // A bad image fails at the deadline, and the failure includes the pod's reason.
    let bad = deployment("knoll/none:1", "sleep 3600", "  replicas: 1\n  minReadySeconds: 1\n");
    let other = SERVICE.replace("port: 80", "port: 81");
    assert_eq!(apply(&namespace, &[&bad, &other, &config_map("settings", "2")], &["--deadline", "8s"]), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert_eq!(failure.phase, AtomPhase::Deadline);
    assert!(
        failure.message.contains("ImagePullBackOff") || failure.message.contains("ErrImagePull"),
        "{}",
        failure.message
    );
    assert_eq!(specs(), before);
    assert_eq!(
        (get(&namespace, "cm/settings", ".data.k"), is_there(&namespace, "job/migrate")),
        ("1".to_owned(), true)
    );

    // The Deployment's own condition ends the update long before the deadline.
    let early = deployment("knoll/none:1", "sleep 3600", "  replicas: 1\n  progressDeadlineSeconds: 3\n");
    assert_eq!(apply(&namespace, &[&early, &other], &["--deadline", "10m"]), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert_eq!((failure.phase, failure.reason.as_str()), (AtomPhase::Error, "ObjectFailed"));
    assert!(failure.message.contains("ProgressDeadlineExceeded"), "{}", failure.message);
    assert_eq!(specs(), before);

    // A failing Job ends the update at once, and the Job that it replaced is created again.
    let job_before = get(&namespace, "job/migrate", ".spec.template.spec.containers[0].command");
    assert_eq!(apply(&namespace, &[&good, SERVICE, &settings, &job("migrate", "exit 4")], &[]), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert!(
        failure.reason == "ObjectFailed" && failure.message.contains("BackoffLimitExceeded"),
        "{}",
        failure.message
    );
    assert_eq!(get(&namespace, "job/migrate", ".spec.template.spec.containers[0].command"), job_before);
    assert_eq!(specs(), before);
}

#[tokio::test]
async fn what_others_do_to_workloads_is_left_alone_or_named() {
    if !World::get().is_real() {
        return;
    }
    let namespace = with_rights().await;
    let without = deployment(IMAGE, "sleep 3600", "");
    assert_eq!(apply(&namespace, &[&without], &["--deadline", "60s"]), Some(0));
    // As an autoscaler does it.
    let _ = namespace.kubectl(&["scale", "deployment/web", "--replicas=2"]).ok();
    let bad = deployment("knoll/none:1", "sleep 3600", "");
    assert_eq!(apply(&namespace, &[&bad], &["--deadline", "6s"]), Some(1));
    assert_eq!(get(&namespace, "deployment/web", ".spec.replicas"), "2");

    // A field of another manager is a conflict that names the manager.
    let tuned = ["patch", "deployment/web", "--field-manager=tuner", "-p", r#"{"spec":{"minReadySeconds":2}}"#];
    let _ = namespace.kubectl(&tuned).ok();
    let three = deployment(IMAGE, "sleep 3600", "  minReadySeconds: 3\n");
    assert_eq!(apply(&namespace, &[&three], &[]), Some(1));
    let failure = status(&namespace).await.failure.unwrap();
    assert_eq!(failure.reason, "FieldConflict");
    assert!(
        failure.message.contains(".spec.minReadySeconds") && failure.message.contains("`tuner`"),
        "{}",
        failure.message
    );
    // Taken over by force, and given back when the update fails.
    let forced = deployment("knoll/none:1", "sleep 3600", "  minReadySeconds: 3\n");
    assert_eq!(apply(&namespace, &[&forced], &["--force", "--deadline", "6s"]), Some(1));
    let both = [".spec.minReadySeconds", ".spec.replicas"].map(|field| get(&namespace, "deployment/web", field));
    assert_eq!(both, ["2", "2"]);

    // Cancelled while it is waiting.
    let slow = folder(&[&deployment("knoll/none:2", "sleep 3600", "")]);
    let _ = namespace.knoll(&["atom", "apply", "-f", slow.path.to_str().unwrap(), "--deadline", "10m"]).ok();
    let waits = |atom: &Atom| {
        let status = atom.status.clone().unwrap_or_default();
        status.phase == AtomPhase::Updating && status.objects.iter().any(|object| object.message.is_some())
    };
    namespace.until::<Atom>("web", "waited", waits).await;
    assert_eq!(namespace.knoll(&["atom", "cancel", "web", "--wait"]).code, Some(1));
    let cancelled = status(&namespace).await;
    assert_eq!(cancelled.failure.unwrap().phase, AtomPhase::Cancelled);
    assert_eq!(get(&namespace, "deployment/web", ".spec.template.spec.containers[0].image"), IMAGE);
}

#[tokio::test]
async fn what_cannot_be_undone_ends_with_two_and_names_what_is_not_back() {
    let namespace = with_rights().await;
    assert_eq!(apply(&namespace, &[&config_map("a", "1")], &["--rollback-deadline", "2s"]), Some(0));
    let held = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.com/hold]}\n";
    assert_eq!(apply(&namespace, &[&config_map("a", "2"), held, HOPELESS], &[]), Some(2));
    assert_eq!(status(&namespace).await.phase, AtomPhase::Failure);
    let shown = namespace.knoll(&["atom", "status", "web"]);
    assert_eq!(shown.code, Some(2));
    let not_back = format!("Not restored: `ConfigMap {}/held`: It is still being deleted.", namespace.name);
    assert!(shown.stdout.contains(&not_back), "{}", shown.stdout);
    assert_eq!(get(&namespace, "cm/a", ".data.k"), "1");
    let free = ["patch", "cm/held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#];
    let _ = namespace.kubectl(&free).ok();
    assert_eq!(apply(&namespace, &[&config_map("a", "3")], &[]), Some(0));
}

#[tokio::test]
async fn an_atom_waits_for_another() {
    let namespace = with_rights().await;
    let late = "apiVersion: knoll.dev/v1alpha1\nkind: AtomVersion\nmetadata: {name: late-1}\nspec: {template: \"{apiVersion: v1, kind: ConfigMap, metadata: {name: late}}\"}\n---\napiVersion: knoll.dev/v1alpha1\nkind: Atom\nmetadata: {name: late}\nspec: {version: late-1, dependsOn: [{kind: Atom, name: web}]}\n";
    let _ = namespace.kubectl_with(late, &["apply", "-f", "-"]).ok();
    let waits = |atom: &Atom| {
        let conditions = atom.status.clone().unwrap_or_default().conditions;
        conditions.iter().any(|said| said.type_ == "Ready" && said.message.contains("`web`"))
    };
    namespace.until::<Atom>("late", "named what it waits for", waits).await;
    assert!(!is_there(&namespace, "cm/late"));
    assert_eq!(apply(&namespace, &[&config_map("a", "1")], &[]), Some(0));
    let runs = |atom: &Atom| atom.status.as_ref().is_some_and(|status| status.phase == AtomPhase::Running);
    namespace.until::<Atom>("late", "ran", runs).await;
    assert!(is_there(&namespace, "cm/late"));
}

const STACK: &str = r#"apiVersion: knoll.dev/v1alpha1
kind: Stack
metadata: {name: net}
spec:
  source: {inline: {main.tf: 'output "size" { value = NUMBER }'}}
  rollbackWith: web
"#;

fn pair(number: &str, version: &str, ready: &str) -> String {
    let stack = STACK.replace("NUMBER", number);
    let template = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, annotations: {{knoll.dev/ready-when: \"{ready}\"}}}}\ndata: {{size: \"size-${{input.size}}\"}}\n"
    );
    let version = format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: AtomVersion\nmetadata: {{name: {version}}}\nspec:\n  template: {}\n---\napiVersion: knoll.dev/v1alpha1\nkind: Atom\nmetadata: {{name: web}}\nspec: {{version: {version}, deadline: 5m, inputs: [{{name: size, stackRef: {{name: net, output: size}}}}]}}\n",
        Value::String(template)
    );
    format!("{stack}---\n{version}")
}

#[tokio::test]
async fn a_stack_and_an_atom_go_back_together() {
    let namespace = with_rights().await;
    let apply = |text: &str| namespace.kubectl_with(text, &["apply", "-f", "-"]).ok();
    let _ = apply(&pair("1", "v1", "true"));
    let ends = |phase: AtomPhase, version: &'static str| {
        move |atom: &Atom| {
            let status = atom.status.clone().unwrap_or_default();
            status.phase == phase && status.target_version.as_deref() == Some(version) && status.journal.is_none()
        }
    };
    namespace.until::<Atom>("web", "ran", ends(AtomPhase::Running, "v1")).await;
    assert_eq!(get(&namespace, "cm/a", ".data.size"), "size-1");
    // A change of both: the Stack first, then the Atom with its new output.
    let _ = apply(&pair("2", "v2", "self.data.size == 'size-2'"));
    let second = |atom: &Atom| {
        let tried = |of: &AtomStatus| of.tried.as_ref().map(|tried| tried.stacks.clone());
        let status = atom.status.clone().unwrap_or_default();
        ends(AtomPhase::Running, "v2")(atom) && tried(&status) == status.good.as_ref().map(|good| good.stacks.clone())
    };
    namespace.until::<Atom>("web", "ran", second).await;
    assert_eq!(get(&namespace, "cm/a", ".data.size"), "size-2");
    // A change of both that fails in the Atom: both are rolled back.
    let _ = apply(&pair("3", "v3", "self.data.size"));
    namespace.until::<Atom>("web", "went back", ends(AtomPhase::Reverted, "v3")).await;
    let back = |stack: &knoll_api::Stack| {
        stack.status.as_ref().is_some_and(|status| status.phase == knoll_api::stack::StackPhase::Reverted)
    };
    let stack: knoll_api::Stack = namespace.until("net", "went back", back).await;
    let failure = stack.status.as_ref().unwrap().failure.clone().unwrap();
    assert_eq!(failure.reason, "AtomFailed");
    let outputs = |stack: &knoll_api::Stack| {
        stack.status.as_ref().is_some_and(|status| status.outputs.get("size") == Some(&Value::from(2)))
    };
    namespace.until::<knoll_api::Stack>("net", "had its old outputs", outputs).await;
    assert_eq!(get(&namespace, "cm/a", ".data.size"), "size-2");
    let atom = status(&namespace).await;
    assert_eq!((atom.phase, atom.current_version.as_deref()), (AtomPhase::Reverted, Some("v2")));
}
