//! One tenant's load, garbage or mistake stops nobody else.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use knoll_api::names::{self, condition};
use knoll_api::run::{Run, RunPhase};
use knoll_api::wire;
use knoll_e2e::manifests::{MODULE, approval, inline, run, workspace};
use knoll_e2e::{Namespace, World};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// As many requests as once held the hub for ever.
const HALF_OPEN: usize = 300;

/// The address of the hub, as the pods of Runs have it.
async fn hub(namespace: &Namespace, run: &str) -> String {
    let pod: Pod = namespace.api().get(run).await.unwrap();
    let containers = pod.spec.unwrap().containers.into_iter();
    let mut env = containers.flat_map(|container| container.env.unwrap_or_default());
    let url = env.find(|variable| variable.name == wire::env::HUB_URL).unwrap().value.unwrap();
    url.strip_prefix("https://").unwrap().trim_end_matches('/').to_owned()
}

#[tokio::test]
async fn half_open_connections_to_the_hub_hold_up_no_run() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    namespace.create(&run("one", "w", &inline(MODULE)));
    namespace.run_in("one", RunPhase::Succeeded).await;
    let hub = hub(&namespace, "one").await;
    // The beginning of a handshake, and nothing more.
    let mut held = Vec::new();
    for _ in 0..HALF_OPEN {
        let connected = tokio::time::timeout(Duration::from_secs(30), TcpStream::connect(&hub)).await.unwrap();
        let mut stream = connected.unwrap();
        let _ = stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00]).await;
        held.push(stream);
    }
    namespace.create(&run("two", "w", &inline(MODULE)));
    namespace.run_in("two", RunPhase::Succeeded).await;
    drop(held);
}

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
        "apiVersion": "v1", "kind": "Secret", "type": names::secret_type::STATE,
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
    let ready = hit.conditions.iter().find(|found| found.type_ == condition::READY).unwrap();
    assert!(ready.message.contains("64 MiB"), "{}", ready.message);
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
