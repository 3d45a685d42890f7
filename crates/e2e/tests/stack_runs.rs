//! The Runs of a Stack are those that it has started, whatever users create beside them; and no run is cut off by the
//! deletion of its Workspace.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Instant;

use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{annotation, condition, label, reason};
use knoll_api::run::RunPhase;
use knoll_api::stack::{StackPhase, StackStatus};
use knoll_api::{Run, Stack, Workspace, names};
use knoll_e2e::{Namespace, TIMEOUT, World};
use kube::ResourceExt;
use serde_json::{Value, json};

fn of(stack: &Stack) -> StackStatus {
    stack.status.clone().unwrap_or_default()
}

fn stack(word: &str) -> String {
    let module = format!(
        "resource \"terraform_data\" \"a\" {{ input = \"{word}\" }}\noutput \"word\" {{ value = terraform_data.a.output }}\n"
    );
    let spec = json!({"source": {"inline": {"main.tf": module}}});
    json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "net"}, "spec": spec}).to_string()
}

fn run(name: &str, metadata: &Value, spec: &Value) -> String {
    let mut metadata = metadata.clone();
    metadata["name"] = json!(name);
    json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": metadata, "spec": spec}).to_string()
}

async fn applied(namespace: &Namespace, word: &str) -> Stack {
    let is_so =
        |stack: &Stack| of(stack).phase == StackPhase::Ready && json!(of(stack).outputs) == json!({"word": word});
    namespace.until("net", &format!("was Ready with `{word}`"), is_so).await
}

fn why(run: &Run) -> String {
    let conditions = run.status.clone().unwrap_or_default().conditions;
    conditions.into_iter().find(|found| found.type_ == condition::READY).map(|found| found.reason).unwrap_or_default()
}

/// Creates an object with the operator's name, so that no admission policy is in the way: the Stack is to be right even
/// where one does not hold.
fn create_as_operator(namespace: &Namespace, manifest: &str) -> String {
    let operator = World::get().operator_user();
    let words =
        ["--as", operator, "--as-group", "system:masters", "create", "-f", "-", "-o", "jsonpath={.metadata.name}"];
    namespace.kubectl_with(manifest, &words).ok()
}

#[tokio::test]
async fn a_users_run_with_the_labels_of_a_stacks_run_made_the_stack_ready_with_nothing_applied() {
    let namespace = World::get().namespace().await;
    let _ = namespace.kubectl_with(&stack("one"), &["apply", "-f", "-"]).ok();
    let before = applied(&namespace, "one").await;
    let own: Run = namespace.api().get(&of(&before).last_run.unwrap()).await.unwrap();

    // Everything that the Stack's own Run has, and a higher number.
    let mut annotations = own.annotations().clone();
    annotations.insert(annotation::NUMBER.to_owned(), "99".to_owned());
    let metadata = json!({"labels": own.labels(), "annotations": annotations});
    let spec = serde_json::to_value(&own.spec).unwrap();
    let eve = namespace.person("eve", &["knoll-user"]);
    let refused = |metadata: &Value, spec: &Value, why: &str| {
        let said = eve.kubectl_with(&run("net-99-forged", metadata, spec), &["create", "-f", "-"]).refused();
        assert!(said.contains(why), "{said}");
    };
    let plain = json!({"workspace": "net", "operation": "plan"});
    refused(&json!({"labels": own.labels()}), &plain, "only the operator marks the Runs of a Stack");
    refused(&json!({"annotations": annotations}), &plain, "only the operator marks the Runs of a Stack");
    refused(&json!({}), &spec, "only the operator starts the Runs of a Stack");

    let forged = create_as_operator(&namespace, &run("net-99-forged", &metadata, &spec));
    let discarded = namespace.run_in(&forged, RunPhase::Discarded).await;
    assert_eq!(why(&discarded), reason::NOT_OF_ITS_STACK);
    // The next name of the destruction, which everybody can tell.
    let said = eve.kubectl_with(&run("net-3-destroy", &json!({}), &plain), &["create", "-f", "-", "-o", "name"]).ok();
    assert_eq!(said.trim(), "run.knoll.dev/net-3-destroy");
    let squatter = "net-3-destroy".to_owned();

    let _ = namespace.kubectl_with(&stack("two"), &["apply", "-f", "-"]).ok();
    let after = of(&applied(&namespace, "two").await);
    assert_eq!((after.runs, after.settled), (2, 2));
    let second: Run = namespace.api().get(&after.last_run.clone().unwrap()).await.unwrap();
    assert_eq!(second.status.unwrap().phase, RunPhase::Succeeded, "the true Run is applied, not discarded");
    let names: Vec<&str> = after.started_runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names, [own.name_any(), after.last_run.unwrap()]);

    let _ = namespace.kubectl(&["delete", "stack", "net", "--wait=false"]).ok();
    let _ = namespace.kubectl(&["wait", "--for=delete", "stack/net", "--timeout=120s"]).ok();
    for name in [forged, squatter] {
        let left: Option<Run> = namespace.api().get_opt(&name).await.unwrap();
        assert!(left.is_some(), "`{name}` is not the Stack's to delete");
    }
    let own: Option<Run> = namespace.api().get_opt(&own.name_any()).await.unwrap();
    assert!(own.is_none());
}

/// The Stack does not depend on the labels of its Runs either, which users may change.
#[tokio::test]
async fn a_stack_whose_runs_lost_their_labels_waited_for_ever() {
    let namespace = World::get().namespace().await;
    let module = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" { command = \"sleep 3\" }\n}\noutput \"word\" { value = \"one\" }\n";
    let spec = json!({"source": {"inline": {"main.tf": module}}});
    let object =
        json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Stack", "metadata": {"name": "net"}, "spec": spec});
    let _ = namespace.kubectl_with(&object.to_string(), &["apply", "-f", "-"]).ok();
    let launched: Stack = namespace.until("net", "started a run", |stack| of(stack).last_run.is_some()).await;
    let run = of(&launched).last_run.unwrap();
    let (stack, purpose) = (format!("{}-", label::STACK), format!("{}=destroy", label::PURPOSE));
    let as_operator = ["--as", World::get().operator_user(), "--as-group", "system:masters"];
    let change = |words: &[&str]| drop(namespace.kubectl(&[&as_operator[..], words].concat()).ok());
    change(&["label", "--overwrite", "run", &run, &stack, &purpose]);
    change(&["annotate", "--overwrite", "run", &run, &format!("{}=77", annotation::NUMBER)]);
    let ready = of(&applied(&namespace, "one").await);
    assert_eq!((ready.runs, ready.settled), (1, 1));
    assert!(ready.revision.is_some());
}

#[tokio::test]
async fn a_workspace_deleted_in_the_middle_of_an_apply_lost_the_state_of_the_rest() {
    let namespace = World::get().namespace().await;
    let workspace =
        json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "w"}, "spec": {}});
    namespace.create(&workspace.to_string());
    let module = r#"
resource "terraform_data" "a" {}
resource "terraform_data" "b" {
  depends_on = [terraform_data.a]
  provisioner "local-exec" { command = "sleep 8" }
}
"#;
    let apply = json!({"workspace": "w", "operation": "apply", "source": {"inline": {"main.tf": module}}});
    namespace.create(&run("first", &json!({}), &apply));
    let state = names::state_secret("w");
    let resources = |secret: &Secret| secret.annotations().get(annotation::RESOURCES).cloned().unwrap_or_default();
    let deadline = Instant::now() + TIMEOUT;
    while !namespace.knoll(&["logs", "first"]).stdout.contains("terraform_data.b: Provisioning") {
        assert!(Instant::now() < deadline, "`b` is never being made");
    }
    namespace.create(&run("queued", &json!({}), &apply));
    let said = namespace.knoll(&["workspace", "delete", "w", "--yes"]).ok();
    assert!(said.contains("once run `first` has ended"), "{said}");
    let waits = |workspace: &Workspace| {
        let conditions = workspace.status.clone().unwrap_or_default().conditions;
        conditions.iter().any(|found| found.reason == reason::DELETING && found.message.contains("`first`"))
    };
    let _: Workspace = namespace.until("w", "said what it waits for", waits).await;

    assert_eq!(why(&namespace.run_in("queued", RunPhase::Discarded).await), reason::WORKSPACE_DELETED);
    namespace.run_in("first", RunPhase::Succeeded).await;
    let _ = namespace.kubectl(&["wait", "--for=delete", "workspace/w", "--timeout=120s"]).ok();
    let left: Secret = namespace.api().get(&state).await.unwrap();
    assert_eq!(resources(&left), "2", "the state that stays has everything");
}
