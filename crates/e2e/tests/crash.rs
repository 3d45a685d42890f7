//! The operator and the hub crash during a Run.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Secret;
use knoll_api::run::RunPhase;
use knoll_api::workspace::Workspace;
use knoll_e2e::World;
use knoll_e2e::manifests::{MODULE, inline, run, workspace};

/// An apply that takes longer than the restart of the operator.
const LONG: &str = "variable \"word\" {}\nresource \"terraform_data\" \"a\" { input = var.word }\nresource \"terraform_data\" \"b\" {\n  depends_on = [terraform_data.a]\n  provisioner \"local-exec\" { command = \"sleep 6\" }\n}\n";

#[tokio::test]
async fn the_run_goes_on_and_delivers() {
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
