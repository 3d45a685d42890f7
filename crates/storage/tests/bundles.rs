//! Bundles in the ConfigMaps of an embedded cluster.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;

use http::{HeaderValue, Request};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use knoll_bundle::{Bundle, File, Files, pack};
use knoll_embedded::Cluster;
use knoll_storage::{BundleError, Storage, UNUSED_FOR};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

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

/// Each ConfigMap that a user may write under a name that the bundle needs.
async fn squat(client: &Client, bundle: &Bundle, names: &[String]) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let labels = json!({"knoll.dev/bundle": bundle.digest.short(63), "knoll.dev/content": "bundle"});
    for name in names {
        let map = json!({
            "metadata": {"name": name, "labels": labels, "annotations": {"knoll.dev/digest": bundle.digest.to_string()}},
            "immutable": true,
            "binaryData": {"bundle": "Z2FyYmFnZQ==", "parts": ""},
        });
        api.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
}

/// A user who may create and read ConfigMaps, as `knoll-user` may, and nothing else.
async fn user(cluster: &Cluster) -> Client {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create"]}]);
    let role = json!({"metadata": {"name": "creator"}, "rules": rules});
    let roles: Api<Role> = Api::default_namespaced(cluster.client());
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let binding = json!({
        "metadata": {"name": "creator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "creator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    });
    let bindings: Api<RoleBinding> = Api::default_namespaced(cluster.client());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let admin = cluster.client();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert("impersonate-user", HeaderValue::from_static("ann"));
        let admin = admin.clone();
        async move { admin.send(request).await }
    });
    Client::new(service, NAMESPACE)
}

/// A user could take the name of any bundle beforehand: nobody could use its files in that namespace any more.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_under_the_name_of_a_bundle_is_replaced() {
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    let bundles = Storage::new(client.clone()).bundles();
    for bytes in [0, 64 * 1024, 2 * 1024 * 1024] {
        let bundle = module(bytes);
        let head = knoll_api::names::bundle_config_map(bundle.digest.as_str());
        squat(&client, &bundle, &[head]).await;
        assert!(!bundles.is_stored(NAMESPACE, &bundle.digest).await.unwrap(), "{bytes}");
        let refused = bundles.fetch(NAMESPACE, &bundle.digest).await.unwrap_err();
        assert!(matches!(refused, BundleError::Damaged { .. }), "{refused}");
        bundles.store(NAMESPACE, &bundle).await.unwrap();
        assert_eq!(bundles.fetch(NAMESPACE, &bundle.digest).await.unwrap(), bundle.bytes);
        assert!(bundles.is_stored(NAMESPACE, &bundle.digest).await.unwrap());
    }
    // The same when most of it is said to be stored already, and when the names of parts are taken.
    for (bytes, again) in [(1024, true), (3 * 1024 * 1024, false)] {
        let bundle = module(bytes);
        let head = knoll_api::names::bundle_config_map(bundle.digest.as_str());
        let packed = knoll_api::Digest::of(&bundle.bytes);
        squat(&client, &bundle, &[format!("{head}-{}-1", packed.short(10)), head]).await;
        match again {
            true => bundles.store_again(NAMESPACE, &bundle).await.unwrap(),
            false => bundles.store(NAMESPACE, &bundle).await.unwrap(),
        }
        assert_eq!(bundles.fetch(NAMESPACE, &bundle.digest).await.unwrap(), bundle.bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_replace_garbage_stores_a_bundle_beside_it() {
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    let (operator, ann) = (Storage::new(client.clone()).bundles(), Storage::new(user(&cluster).await).bundles());
    for bytes in [0, 2 * 1024 * 1024] {
        let bundle = module(bytes);
        let head = knoll_api::names::bundle_config_map(bundle.digest.as_str());
        // Some of the garbage looks like copies, more than are listed at a time.
        let copies = (0..70).map(|number| format!("{head}-copy-{number:010}"));
        let taken: Vec<String> = std::iter::once(head.clone()).chain(copies).collect();
        squat(&client, &bundle, &taken).await;
        ann.store(NAMESPACE, &bundle).await.unwrap();
        assert_eq!(ann.fetch(NAMESPACE, &bundle.digest).await.unwrap(), bundle.bytes);
        assert_eq!(operator.fetch(NAMESPACE, &bundle.digest).await.unwrap(), bundle.bytes);
        assert!(operator.is_stored(NAMESPACE, &bundle.digest).await.unwrap());
        // Its parts are not swept before its head, and it is one bundle as any other.
        let referenced = async || Ok(HashSet::from([(NAMESPACE.to_owned(), bundle.digest.clone())]));
        let later = Timestamp::now() + UNUSED_FOR;
        operator.sweep(None, referenced, later).await.unwrap();
        assert_eq!(operator.fetch(NAMESPACE, &bundle.digest).await.unwrap(), bundle.bytes);
        operator.sweep(None, async || Ok(HashSet::new()), later).await.unwrap();
        assert_eq!(names(&client).await, Vec::<String>::new());
    }
}
