//! What clients rely on beyond a first answer: versions, generations, status, expiry, tokens.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use axum::body::Body;
use cluster::TestCluster;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use knoll_embedded::Identity;
use serde_json::{Value, json};

/// Sends requests in process, as an administrator unless a token says otherwise.
struct Client<'a>(&'a TestCluster);

impl Client<'_> {
    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> (StatusCode, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let mut request = Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        request.extensions_mut().insert(Identity::admin("tester"));
        self.answer(request).await
    }

    async fn answer(&self, request: Request<Body>) -> (StatusCode, Value) {
        let response = self.0.cluster().server.handle(request).await;
        let code = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        // A watch answers in lines: the first one is enough here.
        let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
        (code, serde_json::from_slice(first).unwrap_or_default())
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send(Method::POST, path, "application/json", &body).await
    }

    async fn put(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.send(Method::PUT, path, "application/json", body).await
    }

    async fn merge(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.send(Method::PATCH, path, "application/merge-patch+json", &body).await
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.send(Method::GET, path, "", &Value::Null).await
    }

    /// The body of an answer, to be read piece by piece.
    async fn open(&self, path: &str) -> Body {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(Identity::admin("tester"));
        self.0.cluster().server.handle(request).await.into_body()
    }

    async fn delete(&self, path: &str) -> (StatusCode, Value) {
        self.send(Method::DELETE, path, "", &Value::Null).await
    }

    /// Installs the widgets and waits until they are served.
    async fn widgets(&self) {
        let crd: Value = serde_saphyr::from_str(include_str!("data/widgets.yaml")).unwrap();
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(self.post(path, crd).await.0, StatusCode::CREATED);
        while self.get(WIDGETS).await.0 != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/test.knoll.dev/v1/namespaces/default/widgets";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "test.knoll.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 3}, "status": {"x": 1}})
}

fn check<F: Future<Output = ()>>(test: impl FnOnce(&'static TestCluster) -> F) {
    // The cluster lives as long as the test's process: futures may borrow it freely.
    let cluster: &'static TestCluster = Box::leak(Box::new(TestCluster::start()));
    cluster.block_on(test(cluster));
}

#[test]
fn a_stale_version_is_a_conflict_and_a_write_that_changes_nothing_is_none() {
    check(async |cluster| {
        let client = Client(cluster);
        let (_, first) = client.post(MAPS, map("a")).await;
        let path = format!("{MAPS}/a");
        let (code, same) = client.put(&path, &first).await;
        assert_eq!(
            (code, &same["metadata"]["resourceVersion"]),
            (StatusCode::OK, &first["metadata"]["resourceVersion"])
        );
        let (_, second) = client.merge(&path, json!({"data": {"a": "2"}})).await;
        assert_ne!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
        let mut stale = first.clone();
        stale["data"]["a"] = "3".into();
        let (code, status) = client.put(&path, &stale).await;
        assert_eq!((code, &status["reason"]), (StatusCode::CONFLICT, &"Conflict".into()));
        let (code, _) = client.merge(&path, json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "4"}})).await;
        assert_eq!(code, StatusCode::CONFLICT);
        stale["metadata"]["resourceVersion"] = Value::Null;
        assert_eq!(client.put(&path, &stale).await.0, StatusCode::OK, "without a version the last writer wins");
        let (code, _) = client.post(MAPS, map("a")).await;
        assert_eq!(code, StatusCode::CONFLICT);
        let (code, made) = client.post(MAPS, json!({"metadata": {"generateName": "run-"}})).await;
        assert_eq!(code, StatusCode::CREATED);
        assert!(made["metadata"]["name"].as_str().unwrap().starts_with("run-"));
    });
}

/// Some find it missing and some find it there; none of them is told that it exists already.
#[test]
fn of_those_who_apply_the_same_new_object_at_once_one_creates_it_and_all_have_applied() {
    check(async |cluster| {
        let client = Client(cluster);
        for round in 0..20 {
            let name = format!("round-{round}");
            let answers = futures::future::join_all((0..8).map(async |number| {
                let path = format!("{MAPS}/{name}?fieldManager=m{number}");
                let mut applied = map(&name);
                applied["data"] = json!({number.to_string(): "x"});
                client.send(Method::PATCH, &path, "application/apply-patch+yaml", &applied).await
            }))
            .await;
            let count = |code: StatusCode| answers.iter().filter(|answer| answer.0 == code).count();
            assert_eq!((count(StatusCode::CREATED), count(StatusCode::OK)), (1, 7), "{answers:?}");
            let (_, whole) = client.get(&format!("{MAPS}/{name}")).await;
            assert_eq!(whole["data"].as_object().unwrap().len(), 8, "{whole}");
        }
    });
}

#[test]
fn spec_and_status_are_written_apart_and_only_the_spec_counts() {
    check(async |cluster| {
        let client = Client(cluster);
        client.widgets().await;
        let path = format!("{WIDGETS}/w");
        let (_, made) = client.post(WIDGETS, widget("w")).await;
        assert_eq!(
            (&made["metadata"]["generation"], &made["status"], &made["spec"]["shape"]),
            (&1.into(), &Value::Null, &"round".into())
        );
        let (_, done) =
            client.merge(&format!("{path}/status"), json!({"spec": {"size": 9}, "status": {"ready": true}})).await;
        assert_eq!(
            (&done["metadata"]["generation"], &done["spec"]["size"], &done["status"]["ready"]),
            (&1.into(), &3.into(), &true.into())
        );
        let (_, grown) = client.merge(&path, json!({"spec": {"size": 4}, "status": {"ready": false}})).await;
        assert_eq!((&grown["metadata"]["generation"], &grown["status"]["ready"]), (&2.into(), &true.into()));
        let (_, labelled) = client.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await;
        assert_eq!(labelled["metadata"]["generation"], 2);
        let mut unversioned = labelled.clone();
        unversioned["metadata"]["resourceVersion"] = Value::Null;
        assert_eq!(client.put(&path, &unversioned).await.0, StatusCode::UNPROCESSABLE_ENTITY);
        let (code, _) = client.send(Method::PATCH, &path, "application/strategic-merge-patch+json", &json!({})).await;
        assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let big = json!({"status": {"x": "y".repeat(1_600_000)}});
        let (code, status) = client.merge(&format!("{path}/status"), big).await;
        assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE, "{}", status["message"]);
    });
}

#[test]
fn what_was_compacted_is_gone_and_says_so() {
    check(async |cluster| {
        let client = Client(cluster);
        for at in 0..5 {
            client.post(MAPS, map(&format!("m{at}"))).await;
        }
        let (_, page) = client.get(&format!("{MAPS}?limit=2")).await;
        let next = page["metadata"]["continue"].as_str().unwrap().to_owned();
        assert_eq!(page["metadata"]["remainingItemCount"], 4, "five maps and the root certificate");
        let old = page["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        client.merge(&format!("{MAPS}/m0"), json!({"data": {"a": "2"}})).await;
        let (code, rest) = client.get(&format!("{MAPS}?continue={next}")).await;
        assert_eq!((code, rest["items"].as_array().unwrap().len()), (StatusCode::OK, 4));
        let store = &cluster.cluster().server.store();
        store.compact(store.revision()).await.unwrap();
        let (code, status) = client.get(&format!("{MAPS}?continue={next}&limit=2")).await;
        assert_eq!((code, &status["reason"]), (StatusCode::GONE, &"Expired".into()));
        let (code, event) = client.get(&format!("{MAPS}?watch=1&resourceVersion={old}&timeoutSeconds=5")).await;
        assert_eq!((code, &event["type"], &event["object"]["code"]), (StatusCode::OK, &"ERROR".into(), &410.into()));
        let (code, _) = client.get(&format!("{MAPS}?resourceVersion=999999")).await;
        assert_eq!(code, StatusCode::GATEWAY_TIMEOUT, "the client knows more than the server: try again");
    });
}

#[test]
fn a_large_list_is_of_one_moment_however_slowly_it_is_read() {
    check(async |cluster| {
        let client = Client(cluster);
        let text = "x".repeat(40_000);
        let names: Vec<String> = (0..40).map(|at| format!("m{at:02}")).collect();
        for name in &names {
            let mut map = map(name);
            map["data"] = json!({"text": text});
            client.post(MAPS, map).await;
        }
        let mut list = client.open(MAPS).await;
        let mut watch = client.open(&format!("{MAPS}?watch=1")).await;
        // The first piece of each is read, and then nothing stays as it was.
        let first = async |body: &mut Body| {
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(piece.len() < 500_000, "{} of {} bytes at once", piece.len(), names.len() * text.len());
            piece.to_vec()
        };
        let (mut listed, mut seen) = (first(&mut list).await, first(&mut watch).await);
        for name in &names {
            client.delete(&format!("{MAPS}/{name}")).await;
            client.post(MAPS, map(&format!("new-{name}"))).await;
        }
        listed.extend(list.collect().await.unwrap().to_bytes());
        let listed: Value = serde_json::from_slice(&listed).unwrap();
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let mine = |name: &String| name.contains('m') && !name.starts_with("kube-root");
        let found: Vec<String> = listed["items"].as_array().unwrap().iter().map(name).filter(mine).collect();
        assert_eq!(found, names);
        // The watch shows the same, and then each change.
        while seen.iter().filter(|byte| **byte == b'\n').count() < names.len() * 3 + 1 {
            seen.extend(watch.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        let events = seen.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let events: Vec<Value> = events.map(|line| serde_json::from_slice(line).unwrap()).collect();
        let told: Vec<(String, String)> = events
            .iter()
            .map(|event| (event["type"].as_str().unwrap().to_owned(), name(&event["object"])))
            .filter(|(_, name)| mine(name))
            .collect();
        let added = names.iter().map(|name| ("ADDED".to_owned(), name.clone()));
        let changed = names
            .iter()
            .flat_map(|name| [("DELETED".to_owned(), name.clone()), ("ADDED".to_owned(), format!("new-{name}"))]);
        assert_eq!(told, added.chain(changed).collect::<Vec<_>>());
    });
}

/// A part of a list must not look like the whole of it.
#[test]
fn a_large_list_whose_moment_is_forgotten_is_broken_off() {
    check(async |cluster| {
        let client = Client(cluster);
        for at in 0..40 {
            let mut map = map(&format!("m{at:02}"));
            map["data"] = json!({"text": "x".repeat(40_000)});
            client.post(MAPS, map).await;
        }
        let (mut list, mut watch) = (client.open(MAPS).await, client.open(&format!("{MAPS}?watch=1")).await);
        assert!(list.frame().await.unwrap().is_ok() && watch.frame().await.unwrap().is_ok());
        client.delete(&format!("{MAPS}/m39")).await;
        let store = &cluster.cluster().server.store();
        store.compact(store.revision()).await.unwrap();
        assert!(list.collect().await.is_err(), "the client must see that there was more");
        let rest = watch.collect().await.unwrap().to_bytes();
        let last = rest.split(|byte| *byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
        let last: Value = serde_json::from_slice(last).unwrap();
        assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()));
    });
}

#[test]
fn a_page_of_a_selection_says_whether_there_is_anything_after_it() {
    check(async |cluster| {
        let client = Client(cluster);
        for (name, app) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
            let mut map = map(name);
            map["metadata"]["labels"] = json!({"app": app});
            client.post(MAPS, map).await;
        }
        // All but the root certificate come before it, so there is always something after them.
        for (path, names, goes_on) in [
            (format!("{MAPS}?labelSelector=app%3Dx&limit=2"), vec!["a", "c"], true),
            (format!("{MAPS}?labelSelector=app%3Dx&limit=4"), vec!["a", "c", "d"], false),
            (format!("{MAPS}?labelSelector=!app&limit=1"), vec!["kube-root-ca.crt"], false),
            (format!("{MAPS}?labelSelector=app%3Dy"), vec!["b"], false),
        ] {
            let (_, page) = client.get(&path).await;
            let found: Vec<&str> = page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["metadata"]["name"].as_str().unwrap())
                .collect();
            assert_eq!((found, page["metadata"]["continue"].is_string()), (names, goes_on), "{path}");
        }
    });
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_taken_off() {
    check(async |cluster| {
        let client = Client(cluster);
        let mut held = map("held");
        held["metadata"]["finalizers"] = json!(["x.test/y"]);
        client.post(MAPS, held).await;
        let path = format!("{MAPS}/held");
        let (code, going) = client.delete(&path).await;
        assert_eq!(code, StatusCode::OK);
        assert!(going["metadata"]["deletionTimestamp"].is_string());
        let (code, _) = client.merge(&path, json!({"metadata": {"finalizers": ["x.test/y", "x.test/z"]}})).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "no new finalizers on the way out");
        client.merge(&path, json!({"metadata": {"finalizers": null}})).await;
        assert_eq!(client.get(&path).await.0, StatusCode::NOT_FOUND);
        let (code, _) = client.delete(&path).await;
        assert_eq!(code, StatusCode::NOT_FOUND);
    });
}

#[test]
fn a_service_account_token_is_good_for_its_audience_and_as_long_as_its_pod() {
    check(async |cluster| {
        let client = Client(cluster);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let (code, pod) = client.post("/api/v1/namespaces/default/pods", pod).await;
        assert_eq!(code, StatusCode::CREATED, "{pod}");
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]});
        let spec = json!({"audiences": ["knoll-hub"], "expirationSeconds": 600, "boundObjectRef": bound});
        let account = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let (code, answer) = client.post(account, json!({"spec": spec})).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        let token = answer["status"]["token"].as_str().unwrap().to_owned();
        let review = async |audience: &str| {
            let spec = json!({"token": token, "audiences": [audience]});
            client.post("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": spec})).await.1["status"].clone()
        };
        let good = review("knoll-hub").await;
        assert_eq!(
            (&good["authenticated"], &good["user"]["username"]),
            (&true.into(), &"system:serviceaccount:default:default".into())
        );
        assert_eq!(good["user"]["extra"]["authentication.kubernetes.io/pod-uid"][0], pod["metadata"]["uid"]);
        assert_ne!(review("somebody-else").await["authenticated"], true);
        let own = Request::builder().uri(MAPS).header("authorization", format!("Bearer {token}"));
        let (code, _) = client.answer(own.body(Body::empty()).unwrap()).await;
        assert_eq!(code, StatusCode::UNAUTHORIZED, "a token for the hub is none for the API");
        let (_, answer) = client.post(account, json!({"spec": {}})).await;
        let own = Request::builder()
            .uri(MAPS)
            .header("authorization", format!("Bearer {}", answer["status"]["token"].as_str().unwrap()));
        let (code, status) = client.answer(own.body(Body::empty()).unwrap()).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "known, and allowed nothing: {status}");
        client.delete("/api/v1/namespaces/default/pods/p").await;
        assert_ne!(review("knoll-hub").await["authenticated"], true, "the pod is gone, and its token with it");
    });
}
