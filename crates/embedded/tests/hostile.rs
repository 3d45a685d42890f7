//! Hostile requests get a 4xx: never a panic, a hang or a 5xx.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::time::Duration;

use axum::body::Body;
use cluster::TestCluster;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use knoll_embedded::Identity;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

async fn send(cluster: &TestCluster, mut request: Request<Body>) -> (StatusCode, Vec<u8>) {
    request.extensions_mut().insert(Identity::admin("tester"));
    let answer = async {
        let response = cluster.cluster().server.handle(request).await;
        let code = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes().to_vec();
        (code, body)
    };
    tokio::time::timeout(Duration::from_secs(20), answer).await.expect("an answer")
}

fn post(path: &str, kind: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder().method(Method::POST).uri(path).header("content-type", kind).body(body.into()).unwrap()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn bad_bodies_are_refused() {
    let cluster = TestCluster::start();
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(100_000), close.repeat(100_000));
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"x\"}},\"data\":{open}1{close}}}"
        )
    };
    let huge = format!("{{\"data\":\"{}\"}}", "x".repeat(5 * 1024 * 1024));
    let large = |size: usize| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"x\"}},\"data\":{{\"a\":\"{}\"}}}}",
            "x".repeat(size)
        )
    };
    let rows: Vec<(&str, Vec<u8>, u16)> = vec![
        ("application/json", b"".to_vec(), 400),
        ("application/json", b"null".to_vec(), 422),
        ("application/json", b"[]".to_vec(), 400),
        ("application/json", b"{\"metadata\":5}".to_vec(), 400),
        ("application/json", b"{\"metadata\":{\"name\":5}}".to_vec(), 400),
        ("application/json", b"{\"metadata\":{\"name\":\"x\",\"labels\":{\"a\":1}}}".to_vec(), 400),
        ("application/json", b"{\"kind\":\"Pod\",\"metadata\":{\"name\":\"x\"}}".to_vec(), 400),
        ("application/json", b"{\"metadata\":{\"name\":\"../x\"}}".to_vec(), 422),
        ("application/json", b"{\"metadata\":{\"name\":\"x\"},\"data\":{\"../a\":\"b\"}}".to_vec(), 422),
        ("application/json", b"\xff\xfe\x00{}".to_vec(), 400),
        ("application/json", deep("[", "]").into_bytes(), 400),
        ("application/json", deep("{\"a\":", "}").into_bytes(), 400),
        ("application/json", huge.into_bytes(), 413),
        ("application/json", large(1_100_000).into_bytes(), 422),
        ("application/json", large(2_000_000).into_bytes(), 422),
        ("application/yaml", b"a: [".to_vec(), 400),
        ("application/yaml", format!("a: {}1{}", "[".repeat(50_000), "]".repeat(50_000)).into_bytes(), 400),
        ("application/yaml", b"a: &a [*a,*a]\nb: &b [*a,*a]\nc: &c [*b,*b]\n".to_vec(), 400),
        ("text/plain", b"{}".to_vec(), 415),
        ("application/vnd.kubernetes.protobuf", b"k8s\0garbage".to_vec(), 400),
    ];
    cluster.block_on(async {
        for (kind, body, expected) in rows {
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            let (code, _) = send(&cluster, post(MAPS, kind, body)).await;
            assert_eq!(code.as_u16(), expected, "{kind}: {shown}");
        }
        let (code, _) = send(&cluster, post(MAPS, "application/json", large(900_000))).await;
        assert_eq!(code, StatusCode::CREATED, "the server is still well");
    });
}

#[test]
fn bad_paths_and_queries_are_refused() {
    let cluster = TestCluster::start();
    cluster.block_on(async {
        for path in [
            "/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets",
            "/api/v1/namespaces/%2e%2e/configmaps",
            "/api/v1/namespaces/default/configmaps/%00",
            "/api/v1/namespaces/default/configmaps/%ff%fe",
            "/api/v1/namespaces/default/../../secrets",
            "//////",
            "/api/v1/namespaces/default/configmaps/a/b/c/d/e",
            "/api/v1/namespaces/default/configmaps?limit=99999999999999999999999",
            "/api/v1/namespaces/default/configmaps?continue=%00%00",
            "/api/v1/namespaces/default/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ+a2V5cy8ifQ",
            "/api/v1/namespaces/default/configmaps?labelSelector=%2f%2f%3d%3d%3d",
            "/api/v1/namespaces/default/configmaps?fieldSelector=spec.x%3d1",
            "/api/v1/namespaces/default/configmaps?resourceVersion=abc",
            "/~keys/cluster",
            "/apis/~keys/v1/x",
        ] {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let (code, body) = send(&cluster, request).await;
            assert!(code.is_client_error(), "{path}: {code} {}", String::from_utf8_lossy(&body));
        }
    });
}

#[test]
fn without_a_good_token_there_is_nothing() {
    let cluster = TestCluster::start();
    cluster.block_on(async {
        for (token, code) in [
            // Without a token one is somebody whom no role grants anything.
            (None, StatusCode::FORBIDDEN),
            (Some("Bearer nope"), StatusCode::UNAUTHORIZED),
            (Some("Basic YTpi"), StatusCode::UNAUTHORIZED),
            (Some("Bearer"), StatusCode::UNAUTHORIZED),
            (Some("Bearer a.b.c"), StatusCode::UNAUTHORIZED),
        ] {
            let mut request = Request::builder().uri(MAPS);
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            let response = cluster.cluster().server.handle(request.body(Body::empty()).unwrap()).await;
            assert_eq!(response.status(), code, "{token:?}");
        }
    });
}

/// Any path, any query, any body: an answer, and never one that blames the server.
#[test]
fn random_requests_never_break_the_server() {
    let cluster = TestCluster::start();
    let word = prop_oneof![
        Just("api".to_owned()),
        Just("apis".to_owned()),
        Just("v1".to_owned()),
        Just("namespaces".to_owned()),
        Just("default".to_owned()),
        Just("configmaps".to_owned()),
        Just("pods".to_owned()),
        Just("status".to_owned()),
        Just("log".to_owned()),
        Just("token".to_owned()),
        Just("serviceaccounts".to_owned()),
        Just("openapi".to_owned()),
        "[a-z0-9%.~_-]{0,12}",
    ];
    let path = proptest::collection::vec(word, 0..8).prop_map(|words| format!("/{}", words.join("/")));
    let key = prop_oneof![
        Just("limit"),
        Just("continue"),
        Just("labelSelector"),
        Just("fieldSelector"),
        Just("resourceVersion"),
        Just("dryRun"),
        Just("fieldManager"),
        Just("force"),
        Just("fieldValidation"),
        Just("gracePeriodSeconds"),
    ];
    let query = proptest::collection::vec((key, "[ -~]{0,10}"), 0..4);
    let method = prop_oneof![
        Just(Method::GET),
        Just(Method::POST),
        Just(Method::PUT),
        Just(Method::PATCH),
        Just(Method::DELETE),
        Just(Method::OPTIONS),
    ];
    let kind = prop_oneof![
        Just("application/json"),
        Just("application/json-patch+json"),
        Just("application/merge-patch+json"),
        Just("application/strategic-merge-patch+json"),
        Just("application/apply-patch+yaml"),
        Just("application/yaml"),
        Just("application/vnd.kubernetes.protobuf"),
    ];
    let body = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        "[{\\[]\"(metadata|op|kind|spec|\\$patch)\":[ -~]{0,60}".prop_map(String::into_bytes),
    ];
    let mut runner = TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() });
    let strategy = (method, path, query, kind, body);
    let result = runner.run(&strategy, |(method, path, query, kind, body)| {
        let query: Vec<String> = query.iter().map(|(k, v)| format!("{k}={}", escape(v))).collect();
        let uri = format!("{path}?{}", query.join("&"));
        let Ok(request) =
            Request::builder().method(method).uri(uri).header("content-type", kind).body(Body::from(body))
        else {
            return Ok(());
        };
        let (code, answer) = cluster.block_on(send(&cluster, request));
        // Some of what is wrong with a request is answered with 500 by Kubernetes itself, without a reason.
        let answer = String::from_utf8_lossy(&answer);
        let own = code == StatusCode::INTERNAL_SERVER_ERROR && !answer.contains("\"reason\"");
        prop_assert!(!code.is_server_error() || own, "{} {}", code, answer);
        Ok(())
    });
    result.unwrap();
}

fn escape(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}
