//! Separation of roles: a user cannot approve, an approver cannot run, and a viewer can do neither.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Pod;
use knoll_api::run::RunPhase;
use knoll_e2e::World;
use knoll_e2e::manifests::{MODULE, approval, inline, run, workspace};

#[tokio::test]
async fn each_role_does_its_part_and_no_other() {
    let namespace = World::get().namespace().await;
    let user = namespace.person("uma", &["knoll-user"]);
    let approver = namespace.person("ann", &["knoll-approver"]);
    let viewer = namespace.person("vic", &["knoll-viewer"]);
    let editor = namespace.person("edy", &["knoll-editor"]);
    let nobody = namespace.person("nobody", &[]);

    let create = ["create", "-f", "-"];
    for who in [&user, &approver, &viewer, &nobody] {
        let said = who.kubectl_with(&workspace("w"), &create).refused();
        assert!(said.contains("cannot create resource \"workspaces\""), "{}: {said}", who.user);
    }
    let _ = editor.kubectl_with(&workspace("w"), &create).ok();
    let _ = user.kubectl_with(&format!("{}  approval: Manual\n", run("one", "w", &inline(MODULE))), &create).ok();
    let digest = namespace.run_in("one", RunPhase::Review).await.status.unwrap().review_digest.unwrap();
    for who in [&approver, &viewer, &nobody] {
        let said = who.kubectl_with(&run("two", "w", &inline(MODULE)), &create).refused();
        assert!(said.contains("cannot create resource \"runs\""), "{}: {said}", who.user);
    }
    for who in [&user, &editor, &viewer, &nobody] {
        let decision = approval("approve", "one", &digest, "Approve", &who.user);
        let said = who.kubectl_with(&decision, &create).refused();
        assert!(said.contains("cannot create resource \"approvals\""), "{}: {said}", who.user);
    }
    let _ = approver.kubectl_with(&approval("approve", "one", &digest, "Approve", &approver.user), &create).ok();
    namespace.run_in("one", RunPhase::Succeeded).await;
    // The node reports a container a moment after it has ended, and has no log of it before.
    let ended = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Succeeded"));
    namespace.until::<Pod>("one-apply", "ended", ended).await;

    for who in [&user, &approver, &viewer] {
        let log = who.kubectl(&["logs", "one-apply", "-c", "runner"]).ok();
        assert!(log.contains("Apply complete!"), "{}: {log}", who.user);
    }
    let said = nobody.kubectl(&["get", "runs"]).refused();
    assert!(said.contains("cannot list resource \"runs\""), "{said}");
}

/// Each of these Secrets would be taken for the operator's own, or stand in the way of it.
#[tokio::test]
async fn a_user_creates_no_secret_in_which_the_operator_stores_content() {
    let namespace = World::get().namespace().await;
    let user = namespace.person("uma", &["knoll-user"]);
    for name in ["knoll-state-w", "knoll-state-w-1-0123456789-0", "knoll-plan-one", "knoll-variables-s-01234567"] {
        let said = user.kubectl(&["create", "secret", "generic", name, "--from-literal=content=x"]).refused();
        assert!(said.contains("only the operator creates Secrets"), "{name}: {said}");
    }
    let generated = "apiVersion: v1\nkind: Secret\nmetadata: {generateName: knoll-state-}\n";
    let said = user.kubectl_with(generated, &["create", "-f", "-"]).refused();
    assert!(said.contains("only the operator creates Secrets"), "{said}");
    for name in ["knoll-input-one", "knoll-upload-one", "other"] {
        let _ = user.kubectl(&["create", "secret", "generic", name, "--from-literal=content=x"]).ok();
    }
    // An administrator restores a state from a backup.
    let _ = namespace.kubectl(&["create", "secret", "generic", "knoll-state-w", "--type=knoll.dev/state"]).ok();
}
