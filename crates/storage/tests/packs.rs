//! The credentials of packs of rules, in the operator's own namespace.
#![allow(clippy::unwrap_used, reason = "tests")]

use k8s_openapi::api::core::v1::Secret;
use knoll_api::policy::RulePack;
use knoll_embedded::Cluster;
use knoll_storage::{FetchSettings, Storage};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

/// Whoever wrote a Policy had the token of any Secret of the operator sent to a server of their own.
#[tokio::test]
async fn a_policy_sent_the_content_of_every_secret_of_the_operator_to_a_server_of_its_choice() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::memory().await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
    let rows = [
        ("unmarked", json!({})),
        ("unset", json!({"knoll.dev/credentials": "false"})),
        ("marked", json!({"knoll.dev/credentials": "true"})),
    ];
    for (name, labels) in &rows {
        let secret = json!({"metadata": {"name": name, "labels": labels}, "stringData": {"token": "hunter2"}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let packs = Storage::new(cluster.client()).packs(FetchSettings::default(), "default");
    // Nothing may be fetched from loopback, which is said before anything is sent.
    let used = "loopback";
    for (name, expect) in
        [("missing", "no Secret"), ("unmarked", "no Secret"), ("unset", "no Secret"), ("marked", used)]
    {
        let git =
            json!({"url": "https://127.0.0.1:1/rules.git", "commit": "1".repeat(40), "secretRef": {"name": name}});
        let oci = json!({"repository": "127.0.0.1:1/rules", "digest": format!("sha256:{}", "1".repeat(64)), "secretRef": {"name": name}});
        for pack in [json!({"name": "p", "git": git}), json!({"name": "p", "oci": oci})] {
            let pack: RulePack = serde_json::from_value(pack).unwrap();
            let error = packs.texts(&pack).await.unwrap_err().to_string();
            assert!(error.contains(expect), "{name}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
