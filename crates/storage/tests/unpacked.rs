//! Content that unpacks to far more than it has.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use knoll_api::Digest;
use knoll_embedded::Cluster;
use knoll_storage::Storage;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

/// Three gigabytes of nothing, packed.
fn packed(declared: bool) -> Vec<u8> {
    const MIB: usize = 1024 * 1024;
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    if declared {
        encoder.set_pledged_src_size(Some(3072 * MIB as u64)).unwrap();
    }
    let nothing = vec![0; MIB];
    for _ in 0..3072 {
        encoder.write_all(&nothing).unwrap();
    }
    encoder.finish().unwrap()
}

/// The most memory that this process has had, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Once, the operator unpacked it, and was killed for its memory.
#[tokio::test]
async fn a_small_secret_that_unpacks_to_gigabytes_is_refused() {
    let cluster = Cluster::memory().await.unwrap();
    let storage = Storage::new(cluster.client());
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
    for (workspace, declared) in [("declared", true), ("streamed", false)] {
        let content = packed(declared);
        assert!(content.len() < 1024 * 1024, "it fits into a Secret: {}", content.len());
        let version = json!({"serial": 1, "lineage": "l", "digest": Digest::of("x"), "resources": 0, "updatedAt": "", "run": "r"});
        let head = json!({"metadata": {"name": format!("knoll-state-{workspace}")}, "stringData": {"index": json!({"current": version}).to_string()}});
        let mut head: Secret = serde_json::from_value(head).unwrap();
        head.data = Some([("content".to_owned(), ByteString(content))].into());
        secrets.create(&PostParams::default(), &head).await.unwrap();
        let before = peak_memory();
        let error = storage.states().version("default", workspace, 1).await.unwrap_err().to_string();
        assert!(error.contains("more than 64 MiB") || error.contains("declare its size"), "{error}");
        let more = peak_memory() - before;
        assert!(more < 200 * 1024, "reading it took {more} KiB");
    }
}

/// One ConfigMap that names another half a million times kept the operator and the API server busy for minutes.
#[tokio::test]
async fn a_bundle_of_countless_parts_is_refused_before_they_are_read() {
    let cluster = Cluster::memory().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let digest = Digest::of("a module");
    let head = knoll_api::names::bundle_config_map(digest.as_str());
    for (name, parts) in [("p", String::new()), (head.as_str(), "p\n".repeat(5000))] {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let data = [("bundle".to_owned(), bytes("")), ("parts".to_owned(), bytes(&parts))];
        let mut map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        map.binary_data = Some(data.into());
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let error = Storage::new(cluster.client()).bundles().fetch("default", &digest).await.unwrap_err().to_string();
    assert!(error.contains("more than 64 MiB"), "{error}");
}
