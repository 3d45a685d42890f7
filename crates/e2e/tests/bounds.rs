//! One tenant's load, garbage or mistake stops nobody else.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::names::{self, condition, reason, secret_type};
use knoll_api::run::{Run, RunPhase};
use knoll_e2e::World;
use knoll_e2e::manifests::{MODULE, approval, inline, run, workspace};
use serde_json::json;

/// 3 GB of nothing, packed to what fits into a Secret.
fn bomb() -> String {
    const MIB: usize = 1024 * 1024;
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.set_pledged_src_size(Some(3072 * MIB as u64)).unwrap();
    let nothing = vec![0; MIB];
    for _ in 0..3072 {
        encoder.write_all(&nothing).unwrap();
    }
    BASE64_STANDARD.encode(encoder.finish().unwrap())
}

/// Once, the operator unpacked such a Secret, and was killed for its memory again and again.
#[tokio::test]
async fn a_state_that_unpacks_to_gigabytes_fails_its_own_run_and_no_other() {
    let namespace = World::get().namespace().await;
    let digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let version = json!({"serial": 1, "lineage": "l", "digest": digest, "resources": 0, "updatedAt": "", "run": "r"});
    let index = json!({"current": version}).to_string();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": secret_type::STATE,
        "metadata": {"name": names::state_secret("bomb")},
        "data": {"content": bomb(), "index": BASE64_STANDARD.encode(index)},
    });
    namespace.create(&secret.to_string());
    namespace.create(&workspace("bomb"));
    namespace.create(&workspace("w"));
    namespace.create(&run("hit", "bomb", &inline(MODULE)));
    namespace.create(&run("well", "w", &inline(MODULE)));
    namespace.run_in("well", RunPhase::Succeeded).await;
    let hit = namespace.run_in("hit", RunPhase::Failed).await.status.unwrap();
    let ready = ready(&hit.conditions);
    assert!(ready.message.contains("64 MiB"), "{}", ready.message);
}

fn ready(conditions: &[Condition]) -> &Condition {
    conditions.iter().find(|found| found.type_ == condition::READY).unwrap()
}

/// A run whose state had a Secret of another type in its place asked for its job for ever.
#[tokio::test]
async fn a_secret_that_is_no_state_fails_the_runs_of_its_workspace_and_no_other() {
    let namespace = World::get().namespace().await;
    let rows = [
        ("garbled", secret_type::STATE, false, "it is no JSON"),
        ("typed", "Opaque", false, "it is of the type `Opaque`"),
        ("fixed", secret_type::STATE, true, "it is immutable"),
    ];
    for (name, secret_type, immutable, _) in rows {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": secret_type, "immutable": immutable,
            "metadata": {"name": names::state_secret(name)},
            "stringData": {"index": if name == "garbled" { "hunter2" } else { "{}" }},
        });
        namespace.create(&secret.to_string());
        namespace.create(&workspace(name));
        namespace.create(&run(name, name, &inline(MODULE)));
    }
    namespace.create(&workspace("w"));
    namespace.create(&run("well", "w", &inline(MODULE)));
    for (name, _, _, why) in rows {
        let status = namespace.run_in(name, RunPhase::Failed).await.status.unwrap();
        let Condition { reason, message, .. } = ready(&status.conditions);
        assert_eq!(reason, reason::STATE_UNREADABLE, "{name}: {message}");
        let secret = format!("the Secret `{}` is no state of Knoll's: {why}", names::state_secret(name));
        assert!(message.contains(&secret) && message.contains("move it away"), "{name}: {message}");
        assert!(!message.contains("hunter2"), "{name}: {message}");
    }
    namespace.run_in("well", RunPhase::Succeeded).await;
    // As the message says.
    let _ = namespace.kubectl(&["delete", "secret", &names::state_secret("typed")]).ok();
    namespace.create(&run("again", "typed", &inline(MODULE)));
    namespace.run_in("again", RunPhase::Succeeded).await;
}

/// A user could take the name of any bundle beforehand: nobody could use its files in that namespace any more.
#[tokio::test]
async fn garbage_under_the_name_of_a_bundle_stops_nobody() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    namespace.create(&run("first", "w", &inline(MODULE)));
    let bundle = namespace.run_in("first", RunPhase::Succeeded).await.status.unwrap().bundle.unwrap();
    let name = names::bundle_config_map(&bundle);
    let eve = namespace.person("eve", &["knoll-user"]);
    let garbage = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"knoll.dev/content": "bundle"}, "annotations": {"knoll.dev/digest": bundle}},
        "immutable": true,
        "binaryData": {"bundle": BASE64_STANDARD.encode("garbage"), "parts": ""},
    })
    .to_string();
    let squat = || {
        let _ = namespace.kubectl(&["delete", "configmap", &name]).ok();
        let _ = eve.kubectl_with(&garbage, &["create", "-f", "-"]).ok();
    };

    // The hub replaces it: the pod that applies fetches what is stored, in a run of its own files.
    squat();
    namespace.create(&format!("{}  approval: Manual\n", run("second", "w", &inline(MODULE))));
    let review: Run = namespace.run_in("second", RunPhase::Review).await;
    let ann = namespace.person("ann", &["knoll-approver"]);
    let digest = review.status.unwrap().review_digest.unwrap();
    let decision = approval("approve", "second", &digest, "Approve", &ann.user);
    let _ = ann.kubectl_with(&decision, &["create", "-f", "-"]).ok();
    let second = namespace.run_in("second", RunPhase::Succeeded).await;
    assert_eq!(second.status.unwrap().bundle.as_deref(), Some(bundle.as_str()));
    let stored: ConfigMap = namespace.api().get(&name).await.unwrap();
    assert_ne!(stored.binary_data.unwrap()["bundle"].0, b"garbage");
}
