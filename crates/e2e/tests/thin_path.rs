//! A Run from `kubectl create` to real terraform and back.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::{Pod, Secret};
use knoll_api::names::condition;
use knoll_api::run::{Run, RunPhase};
use knoll_api::step::StepState;
use knoll_api::workspace::Workspace;
use knoll_e2e::World;
use knoll_e2e::manifests::{MODULE, inline, run, workspace};
use serde_json::json;

const FIRST_RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/first-run");

fn has_output(word: &str) -> impl Fn(&Workspace) -> bool {
    move |workspace| workspace.status.as_ref().is_some_and(|status| status.outputs.get("word") == Some(&json!(word)))
}

#[tokio::test]
async fn the_example_of_the_readme_is_applied() {
    let namespace = World::get().namespace().await;
    let created = namespace.kubectl(&["create", "-f", FIRST_RUN, "-o", "name"]).ok();
    let name = created.lines().find_map(|line| line.strip_prefix("run.knoll.dev/")).unwrap();

    let status = namespace.run_in(name, RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.exit_code, Some(0));
    let steps: Vec<(&str, StepState)> = status.steps.iter().map(|step| (step.name.as_str(), step.state)).collect();
    let all = ["setup", "init", "plan", "apply", "outputs"];
    assert_eq!(steps, all.map(|name| (name, StepState::Succeeded)));
    let plan = status.plan.unwrap();
    assert_eq!((plan.add, plan.change, plan.destroy), (3, 0, 0));

    let written = |workspace: &Workspace| workspace.status.as_ref().is_some_and(|status| !status.outputs.is_empty());
    let status = namespace.until::<Workspace>("hello", "had outputs", written).await.status.unwrap();
    assert_eq!(status.outputs.get("network"), Some(&json!("knoll")));
    assert_eq!(status.outputs.get("subnets"), Some(&json!(["knoll-a", "knoll-b"])));
    assert_eq!((status.active, status.state.unwrap().resources), (None, 3));
    let secret = namespace.api::<Secret>().get("knoll-state-hello").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("knoll.dev/state"));
    // A run may finish before its node has reported its start, and until then there is no log.
    let begun = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() != Some("Pending"));
    namespace.until::<Pod>(name, "had begun by its node's word", begun).await;
    let log = namespace.kubectl(&["logs", "-f", name, "-c", "runner"]).ok();
    assert!(log.contains("Apply complete!"), "{log}");
    let waited = namespace.kubectl(&["wait", "run", name, "--for=condition=Ready", "--timeout=10s"]);
    let _ = waited.ok();
    // The Run is created before its Workspace, which is no problem.
    let warnings = ["get", "events", "--field-selector", "type=Warning,involvedObject.kind=Run", "-o", "name"];
    assert_eq!(namespace.kubectl(&warnings).ok(), "");
}

#[tokio::test]
async fn the_state_is_there_for_the_next_run() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    namespace.create(&run("first", "w", &inline(MODULE)));
    namespace.run_in("first", RunPhase::Succeeded).await;
    namespace.until::<Workspace>("w", "had the first output", has_output("first")).await;

    // The same module from a ConfigMap: the resource is updated, not created again.
    let _ = namespace.kubectl(&["create", "configmap", "module", &format!("--from-literal=main.tf={MODULE}")]).ok();
    namespace.create(&run("second", "w", "{configMap: {name: module}}"));
    let plan = namespace.run_in("second", RunPhase::Succeeded).await.status.unwrap().plan.unwrap();
    assert_eq!((plan.add, plan.change, plan.destroy), (0, 1, 0));
    namespace.until::<Workspace>("w", "had the second output", has_output("second")).await;
}

#[tokio::test]
async fn a_plan_that_fails_says_why_and_makes_way() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    namespace.create(&run("broken", "w", &inline("output \"x\" { value = nothing.here }")));
    let status = namespace.run_in("broken", RunPhase::Failed).await.status.unwrap();
    assert_eq!(status.exit_code, Some(1));
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert!(ready.message.contains("undeclared resource"), "{ready:?}");
    namespace.create(&run("next", "w", &inline(MODULE)));
    namespace.run_in("next", RunPhase::Succeeded).await;
}

#[tokio::test]
async fn bad_input_is_refused_where_the_user_looks() {
    let namespace = World::get().namespace().await;
    let bad = run("bad", "w", &inline(MODULE)).replace("operation: apply", "operation: aply");
    let said = namespace.kubectl_with(&bad, &["create", "-f", "-"]).refused();
    assert!(said.contains(r#"Unsupported value: "aply""#), "{said}");
    let none: Option<Run> = namespace.api().get_opt("bad").await.unwrap();
    assert!(none.is_none());
}

/// Issue: one output that was too large for the status hid all of those after it, and nothing said so.
#[tokio::test]
async fn an_output_that_is_too_large_hides_only_itself_and_is_named() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    let module = "output \"a_large\" { value = join(\"\", [for n in range(1024) : format(\"%0512d\", n)]) }\n\
                  output \"word\" { value = \"small\" }\n";
    namespace.create(&run("large", "w", &inline(module)).replace("  variables: {word: large}\n", ""));
    namespace.run_in("large", RunPhase::Succeeded).await;
    let status = namespace.until::<Workspace>("w", "had the small output", has_output("small")).await.status.unwrap();
    assert_eq!(status.outputs.get("a_large"), None);
    let hidden = status.conditions.iter().find(|found| found.type_ == condition::OUTPUTS_HIDDEN).unwrap();
    assert!(hidden.status == "True" && hidden.message.contains("`a_large`"), "{hidden:?}");
}

/// Issue: these fields were accepted and did nothing.
#[tokio::test]
async fn a_field_that_does_nothing_is_refused() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    for (field, value) in [("retry", "{setup: 2}"), ("timeouts", "{setup: 1m}")] {
        let manifest = format!("{}  {field}: {value}\n", run("r", "w", &inline(MODULE)));
        let said = namespace.kubectl_with(&manifest, &["create", "-f", "-"]).refused();
        assert!(said.contains(&format!("spec.{field}.setup")), "{said}");
    }
}
