//! Stacks with real terraform, from their inputs to their destruction.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{condition, reason};
use knoll_api::run::RunPhase;
use knoll_api::stack::{StackPhase, StackStatus};
use knoll_api::{Stack, Workspace};
use knoll_e2e::{Namespace, World};
use serde_json::{Value, json};

/// A module with a number of resources and a sensitive output.
const MODULE: &str = r#"
variable "size" { type = number }
variable "word" {
  type      = string
  sensitive = true
}
resource "terraform_data" "a" {
  count = var.size
  input = var.word
}
output "size" { value = length(terraform_data.a) }
output "word" {
  value     = var.word
  sensitive = true
}
output "list" { value = [1, "b"] }
"#;

fn apply(namespace: &Namespace, object: &Value) {
    let _ = namespace.kubectl_with(&object.to_string(), &["apply", "-f", "-"]).ok();
}

fn stack(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": name}, "spec": spec})
}

fn secret(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
}

fn inline(text: &str) -> Value {
    json!({"inline": {"main.tf": text}})
}

fn of(stack: &Stack) -> StackStatus {
    stack.status.clone().unwrap_or_default()
}

fn message(stack: &Stack, kind: &str) -> String {
    let found = of(stack).conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map(|condition| condition.message).unwrap_or_default()
}

async fn phase(namespace: &Namespace, name: &str, phase: StackPhase) -> Stack {
    namespace.until(name, &format!("was {}", phase.as_str()), |stack| of(stack).phase == phase).await
}

/// Waits until this many Runs have finished and the Stack is Ready.
async fn settled(namespace: &Namespace, name: &str, runs: u32) -> Stack {
    let is_so = |stack: &Stack| of(stack).phase == StackPhase::Ready && of(stack).settled >= runs;
    namespace.until(name, &format!("was Ready after {runs} runs"), is_so).await
}

/// Waits for the plan of the Run with this number, and approves it.
async fn approved(namespace: &Namespace, name: &str, number: u32) {
    let is_so = |stack: &Stack| of(stack).phase == StackPhase::Review && of(stack).runs == number;
    let stack: Stack = namespace.until(name, &format!("waited for a decision on run {number}"), is_so).await;
    let _ = namespace.knoll(&["approve", &of(&stack).last_run.unwrap(), "--yes"]).ok();
}

async fn key(namespace: &Namespace, secret: &str, key: &str) -> String {
    let secret: Secret = namespace.api().get(secret).await.unwrap();
    String::from_utf8(secret.data.unwrap()[key].0.clone()).unwrap()
}

fn gone(namespace: &Namespace, name: &str) {
    let _ = namespace.kubectl(&["wait", "--for=delete", &format!("stack/{name}"), "--timeout=120s"]).ok();
}

#[tokio::test]
async fn a_stack_is_reviewed_follows_its_inputs_and_is_destroyed_without_them() {
    let namespace = World::get().namespace().await;
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "module"}, "data": {"main.tf": MODULE}});
    apply(&namespace, &map);
    apply(&namespace, &secret("vars", json!({"word": "hunter2", "size.tfvars": "size = 2\n"})));
    let spec = |approval: &str| {
        json!({
            "source": {"configMap": {"name": "module"}},
            "variablesFrom": [{"secretRef": {"name": "vars"}}],
            "approval": approval,
            "outputs": {"secretName": "out", "exclude": ["list"]},
        })
    };
    apply(&namespace, &stack("net", spec("Manual")));
    approved(&namespace, "net", 1).await;
    let first = of(&settled(&namespace, "net", 1).await);
    assert_eq!(json!(first.outputs), json!({"size": 2}), "the sensitive one and the excluded one are not shown");
    assert_eq!(key(&namespace, "out", "outputs.json").await, r#"{"size":2,"word":"hunter2"}"#);
    assert_eq!(key(&namespace, "out", "size").await, "2");

    apply(&namespace, &secret("vars", json!({"word": "better"})));
    approved(&namespace, "net", 2).await;
    settled(&namespace, "net", 2).await;
    assert_eq!(key(&namespace, "out", "word").await, "better");
    let everything = namespace.kubectl(&["get", "stacks,runs,workspaces,events", "-o", "json"]).ok();
    assert!(!everything.contains("hunter2") && !everything.contains("better"), "a secret value is in an object");

    let columns = namespace.kubectl(&["get", "stacks"]).ok();
    let heading: Vec<&str> = columns.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["NAME", "READY", "PHASE", "REASON", "REVISION", "DRIFTED", "LAST-RUN", "AGE"]);

    apply(&namespace, &stack("net", spec("Auto")));
    let _ = namespace.kubectl(&["delete", "configmap/module", "secret/vars"]).ok();
    phase(&namespace, "net", StackPhase::Waiting).await;
    let _ = namespace.kubectl(&["delete", "stack", "net", "--wait=false"]).ok();
    gone(&namespace, "net");
    let left = namespace.kubectl(&["get", "runs,workspaces,secrets", "-l", "knoll.dev/stack=net", "-o", "name"]).ok();
    assert_eq!(left, "run.knoll.dev/net-3-destroy\n");
}

/// The Workspace and the Stack show the small outputs, and name the large one.
#[tokio::test]
async fn an_output_that_was_too_large_hid_every_output_after_it() {
    let namespace = World::get().namespace().await;
    let module = r#"
output "a" { value = join("", [for i in range(1000) : join("", [for j in range(200) : "x"])]) }
output "b" { value = "small" }
"#;
    apply(&namespace, &stack("net", json!({"source": inline(module)})));
    let net = settled(&namespace, "net", 1).await;
    assert_eq!(json!(of(&net).outputs), json!({"b": "small"}));
    assert!(message(&net, condition::OUTPUTS_HIDDEN).contains("`a`"), "{:?}", of(&net).conditions);
    let is_shown = |workspace: &Workspace| {
        let status = workspace.status.clone().unwrap_or_default();
        let hidden = status.conditions.iter().find(|found| found.type_ == condition::OUTPUTS_HIDDEN);
        json!(status.outputs) == json!({"b": "small"}) && hidden.is_some_and(|hidden| hidden.message.contains("`a`"))
    };
    let _: Workspace = namespace.until("net", "showed the small output and named the large one", is_shown).await;

    apply(&namespace, &stack("net", json!({"source": inline("output \"b\" { value = \"small\" }")})));
    let net = settled(&namespace, "net", 2).await;
    assert_eq!(message(&net, condition::OUTPUTS_HIDDEN), "");
}

#[tokio::test]
async fn ten_edits_in_a_second_are_two_runs_at_most_and_the_last_one_counts() {
    let namespace = World::get().namespace().await;
    apply(&namespace, &secret("vars", json!({"word": "0"})));
    let text = "variable \"word\" {}\nresource \"terraform_data\" \"a\" { input = var.word }\noutput \"word\" { value = terraform_data.a.output }\n";
    let spec = json!({"source": inline(text), "variablesFrom": [{"secretRef": {"name": "vars"}}]});
    apply(&namespace, &stack("net", spec));
    settled(&namespace, "net", 1).await;
    let secrets = namespace.api::<Secret>();
    for number in 1..=10 {
        let patch = kube::api::Patch::Merge(json!({"stringData": {"word": number.to_string()}}));
        secrets.patch("vars", &kube::api::PatchParams::default(), &patch).await.unwrap();
    }
    let last =
        |stack: &Stack| of(stack).phase == StackPhase::Ready && json!(of(stack).outputs) == json!({"word": "10"});
    let stack: Stack = namespace.until("net", "had the last value", last).await;
    assert!(of(&stack).runs <= 3, "one to begin with, and two: {:?}", of(&stack));
}

#[tokio::test]
async fn a_graph_comes_in_order_and_goes_in_reverse() {
    let namespace = World::get().namespace().await;
    let base = |text: &str| stack("base", json!({"source": inline(text)}));
    let web = "variable \"id\" {}\nresource \"terraform_data\" \"a\" { input = var.id }\noutput \"id\" { value = terraform_data.a.output }\n";
    apply(&namespace, &base("output \"vpc\" { value = nonsense.of.it }\n"));
    let from = json!([{"stackRef": {"name": "base", "outputs": {"id": "vpc"}}}]);
    apply(&namespace, &stack("web", json!({"source": inline(web), "variablesFrom": from})));
    let told = |stack: &Stack| message(stack, condition::READY).contains("Stack `base`, which is stalled");
    namespace.until("web", "named the dependency that failed", told).await;
    apply(&namespace, &base("resource \"terraform_data\" \"a\" {}\noutput \"vpc\" { value = \"vpc-1\" }\n"));
    assert_eq!(json!(of(&settled(&namespace, "web", 1).await).outputs), json!({"id": "vpc-1"}));
    assert_eq!(namespace.knoll(&["stack", "graph"]).ok(), "base (Ready)\n  web (Ready)\n");

    // A dependency cycle is reported with its names.
    apply(&namespace, &stack("one", json!({"source": inline(""), "dependsOn": [{"name": "two"}]})));
    apply(&namespace, &stack("two", json!({"source": inline(""), "dependsOn": [{"name": "one"}]})));
    let circle = |stack: &Stack| message(stack, condition::STALLED).contains("`one` -> `two` -> `one`");
    namespace.until("one", "named the circle", circle).await;

    let _ = namespace.kubectl(&["delete", "stacks", "--all", "--wait=false"]).ok();
    let waits = |stack: &Stack| message(stack, condition::READY).contains("`web`");
    namespace.until("base", "waited for the one that needs it", waits).await;
    gone(&namespace, "web");
    gone(&namespace, "base");
}

#[tokio::test]
async fn drift_is_told_and_put_right() {
    let namespace = World::get().namespace().await;
    let text = "resource \"terraform_data\" \"a\" { input = 1 }\nresource \"terraform_data\" \"b\" { input = 1 }\n";
    let spec = |drift: Value| json!({"source": inline(text), "drift": drift});
    let ignore = json!([{"address": "terraform_data.b"}]);
    apply(&namespace, &stack("net", spec(json!({"interval": "10s", "ignore": ignore}))));
    settled(&namespace, "net", 1).await;
    // Both are deleted by hand.
    let _ = namespace.knoll(&["state", "rm", "-w", "net", "terraform_data.a", "terraform_data.b"]).ok();
    let drifted = |stack: &Stack| of(stack).drift.is_some_and(|drift| drift.since.is_some());
    let stack_now: Stack = namespace.until("net", "was Drifted", drifted).await;
    let said = message(&stack_now, condition::DRIFTED);
    assert_eq!(said, "1 to add, 0 to change, 0 to destroy: `terraform_data.a`.");
    assert_eq!(of(&stack_now).phase, StackPhase::Ready, "a report changes nothing");
    apply(&namespace, &stack("net", spec(json!({"interval": "10s", "action": "Apply"}))));
    let right = |stack: &Stack| {
        of(stack).phase == StackPhase::Ready && of(stack).drift.is_some_and(|drift| drift.since.is_none())
    };
    namespace.until::<Stack>("net", "was put right", right).await;
    assert_eq!(namespace.knoll(&["state", "list", "-w", "net"]).ok().lines().count(), 2);
}

/// Every run of somebody's folder could replace or destroy what a Stack made, and the Stack stayed Ready.
#[tokio::test]
async fn a_run_from_elsewhere_destroyed_what_a_stack_made() {
    let namespace = World::get().namespace().await;
    let text = "resource \"terraform_data\" \"a\" { input = 1 }\nresource \"terraform_data\" \"b\" { input = 1 }\n";
    apply(&namespace, &stack("net", json!({"source": inline(text)})));
    settled(&namespace, "net", 1).await;
    let other = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "other"},
        "spec": {"workspace": "net", "operation": "apply", "source": inline("output \"x\" { value = 1 }")}});
    namespace.create(&other.to_string());
    let ended = namespace.run_in("other", RunPhase::Failed).await.status.unwrap();
    assert!(ended.conditions.iter().any(|found| found.reason == reason::BELONGS_TO_STACK), "{ended:?}");
    assert_eq!(namespace.knoll(&["state", "list", "-w", "net"]).ok().lines().count(), 2);

    // A command on the state is allowed, and the Stack notices it without a drift check.
    let _ = namespace.knoll(&["state", "rm", "-w", "net", "terraform_data.a"]).ok();
    let drifted = |stack: &Stack| message(stack, condition::DRIFTED).contains("changed the state");
    let noticed: Stack = namespace.until("net", "noticed the change", drifted).await;
    assert_eq!(of(&noticed).phase, StackPhase::Ready);
    let _ = namespace.knoll(&["stack", "apply", "net"]).ok();
    let clean = |stack: &Stack| of(stack).settled >= 2 && message(stack, condition::DRIFTED).is_empty();
    namespace.until::<Stack>("net", "was applied again", clean).await;
    assert_eq!(namespace.knoll(&["state", "list", "-w", "net"]).ok().lines().count(), 2);
}

/// The backend of a module was replaced by an empty state without a word.
#[tokio::test]
async fn a_stack_with_a_backend_built_everything_a_second_time() {
    let namespace = World::get().namespace().await;
    let text = "terraform {\n  backend \"s3\" {\n  }\n}\nresource \"terraform_data\" \"a\" {}\n";
    apply(&namespace, &stack("net", json!({"source": inline(text)})));
    let held = phase(&namespace, "net", StackPhase::Held).await;
    let said = message(&held, condition::STALLED);
    assert!(said.contains("declares `backend \"s3\"`") && said.contains("state: external"), "{said}");
    let _ = namespace.kubectl(&["delete", "stack", "net", "--wait=false"]).ok();
    gone(&namespace, "net");
}

/// `terraform.workspace` was `default` in every Workspace.
#[tokio::test]
async fn a_module_that_switches_on_its_terraform_workspace_changed() {
    let namespace = World::get().namespace().await;
    let text = "resource \"terraform_data\" \"a\" { input = terraform.workspace }\noutput \"in\" { value = terraform_data.a.output }\n";
    let spec = |approval: &str, workspace: Value| json!({"source": inline(text), "approval": approval, "workspace": workspace});
    apply(&namespace, &stack("net", spec("Auto", json!({}))));
    // The plan of one pod is applied in another.
    apply(&namespace, &stack("old", spec("Manual", json!({"terraformWorkspace": "default"}))));
    approved(&namespace, "old", 1).await;
    for (name, expect) in [("net", "net"), ("old", "default")] {
        settled(&namespace, name, 1).await;
        assert_eq!(namespace.knoll(&["output", "-w", name, "-raw", "in"]).ok().trim(), expect);
        let _ = namespace.kubectl(&["delete", "stack", name, "--wait=false"]).ok();
    }
    approved(&namespace, "old", 2).await;
    gone(&namespace, "net");
    gone(&namespace, "old");
}

#[tokio::test]
async fn a_broken_revision_is_rolled_back_and_a_broken_one_is_tried_again() {
    let namespace = World::get().namespace().await;
    let text = "variable \"size\" {}\nresource \"terraform_data\" \"a\" {\n  input = var.size\n  lifecycle {\n    postcondition {\n      condition = self.output < 5\n      error_message = \"too much of it\"\n    }\n  }\n}\noutput \"size\" { value = terraform_data.a.output }\n";
    let of_size = |name: &str, size: u32, on_failure: &str| {
        let spec = json!({"source": inline(text), "variables": {"size": size}, "onFailure": on_failure, "retryLimit": 1, "retryBackoff": "1s"});
        stack(name, spec)
    };
    apply(&namespace, &of_size("back", 1, "Rollback"));
    apply(&namespace, &of_size("again", 7, "Retry"));
    settled(&namespace, "back", 1).await;
    apply(&namespace, &of_size("back", 7, "Rollback"));
    let back = phase(&namespace, "back", StackPhase::Reverted).await;
    assert!(message(&back, condition::STALLED).contains("`back-2-"), "{}", message(&back, condition::STALLED));
    let state = namespace.knoll(&["output", "-w", "back", "-raw", "size"]).ok();
    assert_eq!(state.trim(), "1", "the last good revision is applied");
    let held = phase(&namespace, "again", StackPhase::Held).await;
    assert_eq!(of(&held).runs, 2);
    assert!(message(&held, condition::STALLED).starts_with("2 runs failed"), "{}", message(&held, condition::STALLED));
    apply(&namespace, &of_size("back", 2, "Rollback"));
    settled(&namespace, "back", 4).await;
}

#[tokio::test]
async fn a_rollback_that_fails_is_told_with_the_reason_of_the_failure_before() {
    let namespace = World::get().namespace().await;
    apply(&namespace, &secret("gate", json!({"is": "open"})));
    // Applied each time, but only while the gate is open. The gate is not part of the revision.
    let text = "variable \"size\" {}\nresource \"terraform_data\" \"a\" {\n  triggers_replace = timestamp()\n  provisioner \"local-exec\" { command = \"test $GATE = open\" }\n}\nresource \"terraform_data\" \"b\" {\n  input = var.size\n  lifecycle {\n    postcondition {\n      condition = self.output < 5\n      error_message = \"too much of it\"\n    }\n  }\n}\n";
    let gate = json!({"name": "GATE", "valueFrom": {"secretKeyRef": {"name": "gate", "key": "is"}}});
    let of_size = |size: u32| {
        let workspace = json!({"pod": {"env": [gate]}});
        stack(
            "net",
            json!({"source": inline(text), "variables": {"size": size}, "onFailure": "Rollback", "retryLimit": 1, "retryBackoff": "1s", "workspace": workspace}),
        )
    };
    apply(&namespace, &of_size(1));
    settled(&namespace, "net", 1).await;
    apply(&namespace, &secret("gate", json!({"is": "closed"})));
    apply(&namespace, &of_size(7));
    let failed = phase(&namespace, "net", StackPhase::Failure).await;
    let said = message(&failed, condition::STALLED);
    assert!(said.contains("`net-2-") && said.contains("`net-3-"), "both runs are named: {said}");
    // After a manual fix, the next revision continues.
    apply(&namespace, &secret("gate", json!({"is": "open"})));
    apply(&namespace, &of_size(2));
    settled(&namespace, "net", 4).await;
}

#[tokio::test]
async fn variables_come_from_config_maps_and_files_and_only_chosen_outputs_go_out() {
    let namespace = World::get().namespace().await;
    let map = |word: &str| {
        let data = json!({
            "word": word,
            "size.tfvars": "size = 2\n",
            "more.tfvars.json": r#"{"list": ["a", {"b": true}]}"#,
            "aside": "not a variable of the module",
        });
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vars"}, "data": data})
    };
    let text = "variable \"word\" {}\nvariable \"size\" { type = number }\nvariable \"list\" {}\nresource \"terraform_data\" \"a\" { input = var.word }\noutput \"word\" { value = terraform_data.a.output }\noutput \"size\" { value = var.size }\noutput \"list\" { value = var.list }\n";
    let keys = ["word", "size.tfvars", "more.tfvars.json"];
    let spec = json!({
        "source": inline(text),
        "variablesFrom": [{"configMapRef": {"name": "vars", "keys": keys}}],
        "outputs": {"secretName": "out", "include": ["list", "word"]},
    });
    apply(&namespace, &map("one"));
    apply(&namespace, &stack("net", spec));
    let first = of(&settled(&namespace, "net", 1).await);
    assert_eq!(json!(first.outputs), json!({"list": ["a", {"b": true}], "word": "one"}));
    apply(&namespace, &map("two"));
    settled(&namespace, "net", 2).await;
    assert_eq!(key(&namespace, "out", "outputs.json").await, r#"{"list":["a",{"b":true}],"word":"two"}"#);
}

#[tokio::test]
async fn only_what_destroys_waits_for_a_decision() {
    let namespace = World::get().namespace().await;
    let of_count = |count: u32| {
        let text = format!("resource \"terraform_data\" \"a\" {{ count = {count} }}\n");
        stack("net", json!({"source": inline(&text), "approval": "ManualOnDestroy"}))
    };
    apply(&namespace, &of_count(1));
    settled(&namespace, "net", 1).await;
    apply(&namespace, &of_count(2));
    settled(&namespace, "net", 2).await;
    apply(&namespace, &of_count(1));
    approved(&namespace, "net", 3).await;
    settled(&namespace, "net", 3).await;
    // The same for its end.
    let _ = namespace.kubectl(&["delete", "stack", "net", "--wait=false"]).ok();
    approved(&namespace, "net", 4).await;
    gone(&namespace, "net");
}

#[tokio::test]
async fn a_suspended_stack_waits_and_a_destruction_that_fails_can_be_let_go() {
    let namespace = World::get().namespace().await;
    let text = |number: u32| {
        format!(
            "resource \"terraform_data\" \"a\" {{\n  input = {number}\n  provisioner \"local-exec\" {{\n    when = destroy\n    command = \"echo it does not go; exit 1\"\n  }}\n}}\n"
        )
    };
    apply(&namespace, &stack("net", json!({"source": inline(&text(1))})));
    settled(&namespace, "net", 1).await;
    let _ = namespace.knoll(&["stack", "suspend", "net"]).ok();
    let spec = json!({"source": inline(&text(2)), "suspend": true});
    apply(&namespace, &stack("net", spec.clone()));
    let pending = |stack: &Stack| of(stack).phase == StackPhase::Suspended && of(stack).pending_revision.is_some();
    let waiting: Stack = namespace.until("net", "knew the newer revision", pending).await;
    assert_eq!(of(&waiting).runs, 1, "nothing was started");
    let _ = namespace.knoll(&["stack", "resume", "net"]).ok();
    settled(&namespace, "net", 2).await;

    let _ = namespace.kubectl(&["delete", "stack", "net", "--wait=false"]).ok();
    let failed = |stack: &Stack| of(stack).failure.is_some();
    let stuck: Stack = namespace.until("net", "said why it is still there", failed).await;
    let said = message(&stuck, condition::READY);
    assert!(said.contains("ended as Failed") && said.contains("knoll.dev/force-orphan"), "{said}");
    let _ = namespace.kubectl(&["annotate", "stack", "net", "knoll.dev/force-orphan=yes"]).ok();
    gone(&namespace, "net");
    assert!(namespace.api::<Secret>().get_opt("knoll-state-net").await.unwrap().is_some(), "its state stays");
}

#[tokio::test]
async fn every_example_is_accepted() {
    let namespace = World::get().namespace().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let folder = entry.path();
        // A Run with `generateName` can be created, but not applied.
        let _ = namespace.kubectl(&["create", "--dry-run=server", "-f", &folder.to_string_lossy()]).ok();
    }
}

#[tokio::test]
async fn a_run_takes_its_files_from_a_bundle_of_a_stack() {
    let namespace = World::get().namespace().await;
    let text = "resource \"terraform_data\" \"a\" {}\noutput \"done\" { value = true }\n";
    apply(&namespace, &stack("first", json!({"source": inline(text), "deletionPolicy": "Orphan"})));
    let digest = of(&settled(&namespace, "first", 1).await).bundle.unwrap();
    apply(&namespace, &stack("second", json!({"source": {"bundle": {"digest": digest}}})));
    assert_eq!(json!(of(&settled(&namespace, "second", 1).await).outputs), json!({"done": true}));
    // An orphaned Stack leaves everything.
    let _ = namespace.kubectl(&["delete", "stack", "first"]).ok();
    let _ = namespace.kubectl(&["get", "workspace/first", "secret/knoll-state-first"]).ok();
    let run = namespace.create(
        "apiVersion: knoll.dev/v1alpha1\nkind: Run\nmetadata: {name: look}\nspec: {workspace: first, operation: plan}\n",
    );
    let look = namespace.run_in(&run, RunPhase::Succeeded).await;
    assert!(!look.status.unwrap().plan.unwrap().changes);
}
