//! The metrics are served, and contain no names given by users.
#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::run::RunPhase;
use knoll_e2e::World;
use knoll_e2e::manifests::{inline, run, workspace};

#[tokio::test]
async fn a_run_is_counted_and_its_names_are_not_told() {
    let world = World::get();
    let namespace = world.namespace().await;
    namespace.create(&workspace("wordy-workspace"));
    let module = "variable \"word\" { sensitive = true }\nresource \"terraform_data\" \"a\" { input = var.word }\n";
    namespace.create(&run("wordy-run", "wordy-workspace", &inline(module)));
    namespace.run_in("wordy-run", RunPhase::Succeeded).await;

    let text = world.metrics();
    for start in [
        "knoll_build_info{",
        r#"knoll_runs{phase="Succeeded",operation="apply"} "#,
        "knoll_queue_length 0",
        "knoll_queue_wait_seconds_count ",
        r#"knoll_step_duration_seconds_count{step="apply",outcome="Succeeded"} "#,
        r#"knoll_api_requests_total{verb="create",resource="pods",code="201"} "#,
        r#"knoll_reconciles_total{controller="runs"} "#,
        r#"knoll_reconcile_errors_total{controller="workspaces"} "#,
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(start)), "no line begins with `{start}`:\n{text}");
    }
    for word in ["wordy", namespace.name.as_str()] {
        assert!(!text.contains(word), "`{word}` is a user's word:\n{text}");
    }
}
