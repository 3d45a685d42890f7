//! The operator and the hub crash during a Run.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{condition, reason};
use knoll_api::run::{Run, RunPhase};
use knoll_api::workspace::Workspace;
use knoll_e2e::World;
use knoll_e2e::manifests::{MODULE, inline, run, workspace};

/// Each test ends the operator, and has it for itself.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// An apply that takes longer than the restart of the operator.
const LONG: &str = "variable \"word\" {}\nresource \"terraform_data\" \"a\" { input = var.word }\nresource \"terraform_data\" \"b\" {\n  depends_on = [terraform_data.a]\n  provisioner \"local-exec\" { command = \"sleep 6\" }\n}\n";

#[tokio::test]
async fn the_run_goes_on_and_delivers() {
    let _alone = ALONE.lock().await;
    let world = World::get();
    let namespace = world.namespace().await;
    namespace.create(&workspace("w"));
    namespace.create(&run("long", "w", &inline(LONG)));
    // The first resource exists and is in the state, so the run is in the middle of its apply.
    namespace.until::<Secret>("knoll-state-w", "was there", |_| true).await;
    world.crash_the_operator();
    namespace.create(&run("next", "w", &inline(MODULE)));
    let status = namespace.run_in("long", RunPhase::Succeeded).await.status.unwrap();
    assert_eq!(status.exit_code, Some(0));
    namespace.run_in("next", RunPhase::Succeeded).await;
    let settled = |workspace: &Workspace| {
        let status = workspace.status.as_ref();
        status.is_some_and(|status| {
            status.active.is_none()
                && status.queue.is_empty()
                && status.state.as_ref().is_some_and(|s| s.resources == 1)
        })
    };
    namespace.until::<Workspace>("w", "had what the last run left", settled).await;
}

/// A Run whose plan waits for the hook of a test: it does not end by itself.
const SLOW: &str = "  hooks: [{name: wait, step: pre-plan, script: \"until [ -e /tmp/never ]; do sleep 1; done\"}]\n";

#[tokio::test]
async fn slots_are_those_of_the_runs_that_have_a_pod() {
    let _alone = ALONE.lock().await;
    let world = World::get();
    let namespace = world.namespace().await;
    let policy = format!("{}-slots", namespace.name);
    let manifest = format!(
        "apiVersion: knoll.dev/v1alpha1\nkind: Policy\nmetadata: {{name: {policy}}}\nspec: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {}}}}}, limits: {{runs: {{namespace: 2}}}}}}\n",
        namespace.name
    );
    let _ = namespace.kubectl_with(&manifest, &["apply", "-f", "-"]).ok();
    let known = |found: &Workspace| found.status.as_ref().is_some_and(|status| !status.policy.is_empty());
    let names = ["a", "b", "c", "d"];
    for name in names {
        namespace.create(&workspace(name));
        namespace.until::<Workspace>(name, "showed the Policy", known).await;
    }
    let waits = |run: &Run| {
        let conditions = run.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.type_ == condition::READY && found.reason == reason::WAITING_FOR_SLOT)
    };
    for name in ["a", "b"] {
        namespace.create(&format!("{}{SLOW}", run(name, name, &inline(MODULE))));
        namespace.run_in(name, RunPhase::Running).await;
    }
    namespace.create(&run("c", "c", &inline(MODULE)));
    namespace.until::<Run>("c", "waited for a slot", waits).await;
    world.crash_the_operator();
    // One that is new asks the operator that has just started.
    namespace.create(&run("d", "d", &inline(MODULE)));
    namespace.until::<Run>("d", "waited for a slot", waits).await;
    for name in ["c", "d"] {
        let status = namespace.api::<Run>().get(name).await.unwrap().status.unwrap();
        assert_eq!(status.pod_name, None, "`{name}` had a pod beside two others");
    }
    let _ = namespace.knoll(&["cancel", "a", "--now"]).ok();
    namespace.run_in("c", RunPhase::Succeeded).await;
    namespace.run_in("d", RunPhase::Succeeded).await;
    let _ = namespace.knoll(&["cancel", "b", "--now"]);
    let _ = namespace.kubectl(&["delete", "policy.knoll.dev", &policy, "--ignore-not-found"]);
}
