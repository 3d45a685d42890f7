//! `knoll operator`, killed with SIGKILL after any single write of an Atom's update or rollback: the next one comes to the
//! same end, and nothing is made or deleted once more for it.
//!
//! The API server is one of this process, so that each write passes through the test's hands.
#![allow(clippy::unwrap_used, reason = "tests")]

mod knoll;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::response::Response;
use futures::TryStreamExt;
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::RoleBinding;
use knoll::{Home, PATIENCE};
use knoll_api::Atom;
use knoll_api::names::label;
use knoll_embedded::Cluster;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A proxy to the API server that stops responding after a number of writes.
struct Way {
    client: Client,
    last: usize,
    writes: AtomicUsize,
    cut: CancellationToken,
}

impl Way {
    /// Serves the proxy, and returns a kubeconfig for it.
    async fn open(home: &Home, client: &Client, namespace: &str, last: usize) -> (PathBuf, CancellationToken) {
        let cut = CancellationToken::new();
        let way = Way { client: client.clone(), last, writes: AtomicUsize::new(0), cut: cut.clone() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(pass).with_state(Arc::new(way));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "way",
            "contexts": [{"name": "way", "context": {"cluster": "way", "user": "way", "namespace": namespace}}],
            "clusters": [{"name": "way", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "way", "user": {}}]});
        let path = home.folder.path().join(format!("{}.kubeconfig", address.port()));
        std::fs::write(&path, config.to_string()).unwrap();
        (path, cut)
    }
}

async fn pass(State(way): State<Arc<Way>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let dry = parts.uri.query().is_some_and(|query| query.contains("dryRun"));
    let aside = ["/events", "/leases"].iter().any(|aside| parts.uri.path().contains(aside));
    let number =
        if parts.method == Method::GET || dry || aside { 0 } else { way.writes.fetch_add(1, Ordering::SeqCst) + 1 };
    if number > way.last {
        std::future::pending::<()>().await;
    }
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    let answer = way.client.send(request).await.unwrap();
    if number == way.last {
        way.cut.cancel();
        std::future::pending::<()>().await;
    }
    answer.map(axum::body::Body::new)
}

/// `knoll operator` in its own process. It is killed on drop.
struct Operator(Child);

impl Operator {
    fn start(home: &Home, kubeconfig: &str, namespace: &str) -> Self {
        let words = ["operator", "--kubeconfig", kubeconfig, "--namespace", namespace, "--lease-namespace", namespace];
        // The same identity acquires the Lease at once, like a restarted container in its pod.
        let own = ["--identity", "one", "--hub-url", "https://127.0.0.1:1"];
        let ports = ["--hub-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--page-listen", "127.0.0.1:0"];
        let mut command = home.command(&[&words[..], &own, &ports].concat());
        Operator(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // On this platform `kill` sends SIGKILL.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// How often each ConfigMap of the Atom was created and deleted.
type Counts = Arc<Mutex<BTreeMap<String, (u32, u32)>>>;

async fn count(maps: Api<ConfigMap>, counts: Counts) {
    let ours = WatchParams::default().labels(label::ATOM);
    let mut events = std::pin::pin!(maps.watch(&ours, "0").await.unwrap());
    while let Some(event) = events.try_next().await.unwrap() {
        let mut counts = counts.lock().unwrap();
        match event {
            WatchEvent::Added(map) => counts.entry(map.name_any()).or_default().0 += 1,
            WatchEvent::Deleted(map) => counts.entry(map.name_any()).or_default().1 += 1,
            _ => {}
        }
    }
}

/// The files of three versions: a first one, one that prunes and replaces, and one that has to be rolled back.
fn write_versions(home: &Home) {
    let map = |name: &str, value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}});
    let fixed = |value: &str| {
        let mut map = map("fixed", value);
        map["immutable"] = true.into();
        map["metadata"]["annotations"] = json!({"knoll.dev/replace": "true"});
        map
    };
    let mut hopeless = map("hopeless", "1");
    hopeless["metadata"]["annotations"] = json!({"knoll.dev/ready-when": "self.data.k"});
    let versions = [
        vec![map("a", "1"), map("old", "1"), fixed("1")],
        vec![map("a", "2"), map("b", "2"), fixed("2")],
        vec![map("a", "3"), map("c", "3"), fixed("3"), hopeless],
    ];
    for (number, objects) in (1..).zip(versions) {
        let text: String = objects.iter().map(|object| format!("---\n{object}\n")).collect();
        home.write(&format!("v{number}/all.yaml"), &text);
    }
}

/// Runs the life of an Atom with `knoll`, while the operator is killed after write number `last`. Returns whether it
/// reached that write.
async fn check(home: &Home, client: &Client, last: usize) -> bool {
    let name = format!("after-{last}");
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let account = json!({"kind": "ServiceAccount", "name": "default", "namespace": name});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"});
    let binding = json!({"metadata": {"name": "default-edit"}, "roleRef": role, "subjects": [account]});
    let binding: RoleBinding = serde_json::from_value(binding).unwrap();
    Api::namespaced(client.clone(), &name).create(&PostParams::default(), &binding).await.unwrap();
    let (cut_off, cut) = Way::open(home, client, &name, last).await;
    let (open, _) = Way::open(home, client, &name, usize::MAX).await;
    let first = Operator::start(home, cut_off.to_str().unwrap(), &name);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
    let counts = Counts::default();
    let followed = async {
        cut.cancelled().await;
        drop(first);
        let _second = Operator::start(home, open.to_str().unwrap(), &name);
        std::future::pending::<()>().await;
    };
    let live = async {
        for (version, code) in [("v1", 0), ("v2", 0), ("v3", 1)] {
            let words = ["atom", "apply", "web", "-f", version, "--wait", "--kubeconfig", open.to_str().unwrap()];
            let mut command = home.command(&words);
            let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(code), "{version}, killed after write {last}: {said}");
        }
        let atoms: Api<Atom> = Api::namespaced(client.clone(), &name);
        let tidy = |atom: Option<&Atom>| {
            atom.and_then(|atom| atom.status.as_ref()).is_some_and(|status| status.journal.is_none())
        };
        await_condition(atoms, "web", tidy).await.unwrap();
    };
    tokio::select! {
        lived = tokio::time::timeout(PATIENCE, live) => lived.unwrap(),
        () = followed => unreachable!(),
        () = count(maps.clone(), counts.clone()) => unreachable!(),
    }
    let left = maps.list(&ListParams::default().labels(label::ATOM)).await.unwrap();
    let left: BTreeMap<String, Value> = left.items.into_iter().map(|map| (map.name_any(), json!(map.data))).collect();
    let found = |name: &str| (name.to_owned(), json!({"k": "2"}));
    assert_eq!(left, BTreeMap::from([found("a"), found("b"), found("fixed")]), "killed after write {last}");
    let counts = counts.lock().unwrap().clone();
    let expect =
        [("a", (1, 0)), ("b", (1, 0)), ("c", (1, 1)), ("fixed", (4, 3)), ("hopeless", (1, 1)), ("old", (1, 1))];
    let counts: Vec<(&str, (u32, u32))> = counts.iter().map(|(name, counts)| (name.as_str(), *counts)).collect();
    assert_eq!(counts, expect, "killed after write {last}");
    cut.is_cancelled()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_after_any_write_of_an_atom_is_followed_to_the_same_end() {
    let home = Home::empty();
    write_versions(&home);
    let cluster = Cluster::memory().await.unwrap();
    let client = cluster.client();
    for manifest in knoll_deploy::kinds() {
        let api: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &manifest.resource);
        let params = PatchParams::apply("test");
        api.patch(manifest.name(), &params, &Patch::Apply(&manifest.value)).await.unwrap();
        let definitions = Api::all(client.clone());
        await_condition(definitions, manifest.name(), conditions::is_crd_established()).await.unwrap();
    }
    // Four lives at a time, until one ends without a kill. Each write is tested, or without `--thorough` some of them.
    let step = if std::env::var_os("KNOLL_TEST_THOROUGH").is_some() { 1 } else { 3 };
    for first in (1..).step_by(4 * step) {
        assert!(first < 200, "an Atom's life takes no more writes than that");
        let lives = (0..4).map(|life| check(&home, &client, first + life * step));
        if futures::future::join_all(lives).await.contains(&false) {
            assert!(first > 36, "an Atom's life takes more writes than that");
            return;
        }
    }
}
