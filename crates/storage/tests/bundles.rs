//! Bundles in the ConfigMaps of an embedded cluster.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_bundle::{Bundle, File, Files, pack};
use knoll_embedded::Cluster;
use knoll_storage::{BundleError, Storage, UNUSED_FOR};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};

const NAMESPACE: &str = "default";

/// A module with that many bytes that do not pack.
fn module(bytes: usize) -> Bundle {
    let mut state = 88_172_645_463_325_252_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .take(bytes / 8)
    .flatten()
    .collect();
    pack(&Files::from([("main.tf".into(), File::new("# main")), ("noise".into(), File::new(noise))])).unwrap()
}

async fn names(client: &Client) -> Vec<String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let mut names: Vec<String> =
        api.list(&ListParams::default()).await.unwrap().iter().map(|map| map.name_any()).collect();
    names.retain(|name| name.starts_with("knoll-bundle"));
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_of_any_size_is_kept_once_and_comes_back() {
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    let bundles = Storage::new(client.clone()).bundles();
    for (bytes, parts) in [(0, 1), (3 * 1024 * 1024, 7), (20 * 1024 * 1024, 41)] {
        let bundle = module(bytes);
        assert!(!bundles.is_stored(NAMESPACE, &bundle.digest).await.unwrap());
        let before = names(&client).await.len();
        bundles.store(NAMESPACE, &bundle).await.unwrap();
        bundles.store(NAMESPACE, &bundle).await.unwrap();
        assert_eq!(names(&client).await.len() - before, parts);
        assert!(bundles.is_stored(NAMESPACE, &bundle.digest).await.unwrap());
        assert_eq!(bundles.fetch(NAMESPACE, &bundle.digest).await.unwrap(), bundle.bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_or_damaged_is_told() {
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    let bundles = Storage::new(client.clone()).bundles();
    let bundle = module(2 * 1024 * 1024);
    let missing = bundles.fetch(NAMESPACE, &bundle.digest).await.unwrap_err();
    assert!(matches!(missing, BundleError::Missing { .. }), "{missing}");
    bundles.store(NAMESPACE, &bundle).await.unwrap();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let part = names(&client).await.into_iter().find(|name| name.ends_with("-2")).unwrap();
    api.delete(&part, &DeleteParams::default()).await.unwrap();
    let damaged = bundles.fetch(NAMESPACE, &bundle.digest).await.unwrap_err().to_string();
    assert!(damaged.contains(&format!("its part `{part}` is missing")), "{damaged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_nothing_has_referred_to_for_a_while_is_swept() {
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    let bundles = Storage::new(client.clone()).bundles();
    let (used, unused) = (module(0), module(2 * 1024 * 1024));
    bundles.store(NAMESPACE, &used).await.unwrap();
    bundles.store(NAMESPACE, &unused).await.unwrap();
    let references = async || Ok(HashSet::from([(NAMESPACE.to_owned(), used.digest.clone())]));
    let none = async || Ok(HashSet::new());
    let later = Timestamp::now() + UNUSED_FOR;
    assert_eq!(bundles.sweep(None, references, Timestamp::now()).await.unwrap().deleted, 0, "both are young");
    assert_eq!(bundles.sweep(None, references, later).await.unwrap().deleted, 5);
    assert!(bundles.is_stored(NAMESPACE, &used.digest).await.unwrap());
    assert!(!bundles.is_stored(NAMESPACE, &unused.digest).await.unwrap());
    // One that is used again is young again.
    bundles.store(NAMESPACE, &used).await.unwrap();
    assert_eq!(bundles.sweep(None, none, later - UNUSED_FOR / 2).await.unwrap().deleted, 0);
    assert_eq!(bundles.sweep(None, none, later + UNUSED_FOR).await.unwrap().deleted, 1);
}
