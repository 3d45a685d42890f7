//! What one client can hold of the hub, with real sockets.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use knoll_hub::Running;
use kube::Client;
use kube::client::Body;
use reqwest::{Method, StatusCode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::with_runner;
use crate::world::{Runner, apply, state};

/// Every wait of these tests ends before.
const DEADLINE: Duration = Duration::from_secs(60);

fn connector(hub: &Running) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(hub.ca_pem.as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn connect(hub: &Running, connector: &TlsConnector) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(hub.addr).await.unwrap();
    connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap()
}

/// Sends the head of a request and none of its body; returns the first line of the answer.
async fn answer_to_head(hub: &Running, runner: &Runner, request: &str, headers: &str) -> String {
    let mut stream = connect(hub, &connector(hub)).await;
    let head = format!("{request} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {}\r\n{headers}\r\n", runner.token);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 256];
    let count = tokio::time::timeout(DEADLINE, stream.read(&mut answer)).await.expect("it is answered").unwrap();
    String::from_utf8_lossy(&answer[..count]).lines().next().unwrap_or_default().to_owned()
}

/// Once, two of them filled the operator's memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let (world, runner) = with_runner().await;
    let rows = [
        ("PUT /v1/state", "Content-Length: 943718400\r\n", "413"),
        ("PUT /v1/answer", "Content-Length: 943718400\r\n", "413"),
        ("PUT /v1/progress", "Content-Length: 4194304\r\n", "413"),
        ("POST /v1/log?offset=0", "Content-Length: 4194304\r\n", "413"),
        ("PUT /v1/lock", "Content-Length: 1048576\r\n", "413"),
        // A body of unknown length can be of any.
        ("PUT /v1/state", "Transfer-Encoding: chunked\r\n", "411"),
        ("PUT /v1/progress", "", "411"),
    ];
    for (request, headers, expect) in rows {
        let said = answer_to_head(&world.hub, &runner, request, headers).await;
        assert!(said.contains(expect), "{request} {headers:?}: {said}");
    }
    // A stranger is not even asked for its body.
    let stranger = runner.with_token("nobody");
    let said = answer_to_head(&world.hub, &stranger, "PUT /v1/state", "Content-Length: 10\r\n").await;
    assert!(said.contains("401"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_never_come_leave_room_for_reports_and_other_namespaces() {
    let (world, runner) = with_runner().await;
    let mut slow = connect(&world.hub, &connector(&world.hub)).await;
    let length = knoll_api::wire::LARGEST_CONTENT;
    let head = format!(
        "PUT /v1/state HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {}\r\nContent-Length: {length}\r\n\r\n{{",
        runner.token
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    // It holds all that its namespace may hold of states. Another one of it is sent away, to come again.
    let sent_away = async {
        loop {
            let (status, _) = runner.put("/v1/answer", "no answer").await;
            if status == StatusCode::SERVICE_UNAVAILABLE {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, sent_away).await.expect("the share of the namespace is used up");
    let (status, _) = runner.ask(Method::POST, "/v1/log?offset=0", "a line\n").await;
    assert_eq!(status, StatusCode::NO_CONTENT, "small requests have a budget of their own");
    drop(slow);
    let (status, _) = tokio::time::timeout(DEADLINE, async {
        loop {
            let answer = runner.put("/v1/state", state(1, "x")).await;
            if answer.0 != StatusCode::SERVICE_UNAVAILABLE {
                return answer;
            }
        }
    })
    .await
    .expect("what it held is free again");
    assert_eq!(status, StatusCode::NO_CONTENT);
}

/// A connection from an address of loopback.
async fn connect_from(hub: &Running, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    socket.connect(hub.addr).await.unwrap()
}

/// Once, they were held for ever.
#[tokio::test(flavor = "multi_thread")]
async fn half_open_requests_are_closed_and_runners_are_served_meanwhile() {
    let (world, runner) = with_runner().await;
    let connector = connector(&world.hub);
    let mut half = Vec::new();
    for last in [3, 4] {
        for _ in 0..75 {
            let stream = connect_from(&world.hub, last).await;
            let mut stream = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
            stream.write_all(b"GET /v1/job HTTP/1.1\r\nHost: ").await.unwrap();
            half.push(stream);
        }
    }
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(world.hub.addr).await.unwrap());
    }
    assert_eq!(runner.get("/v1/job").await.0, StatusCode::OK);
    let closed = async {
        for stream in &mut half {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        for stream in &mut silent {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::time::timeout(DEADLINE, closed).await.expect("every half-open request is closed");
    // The runner's own connection was idle for as long, so the hub may be closing it.
    let again = runner.from(&world.hub, [127, 0, 0, 1]);
    assert_eq!(again.get("/v1/job").await.0, StatusCode::OK);
}

/// Two addresses that showed no token took all connections.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_a_token_held_a_thousand_connections() {
    let (world, runner) = with_runner().await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(connect_from(&world.hub, 3).await);
    }
    // The hub speaks only when it is spoken to: an end that can be read is a connection that it has closed.
    let closed = async {
        let mut closed = 0;
        while closed < 300 - 128 {
            closed = silent
                .iter()
                .filter(
                    |stream| !matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock),
                )
                .count();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, closed).await.expect("most of them are closed at once");
    assert_eq!(runner.get("/v1/job").await.0, StatusCode::OK);
    // A runner behind the same address is let in as soon as the others are old enough to make room.
    let neighbour = runner.from(&world.hub, [127, 0, 0, 3]);
    let let_in = async {
        loop {
            if let Ok(answer) = neighbour.try_get("/v1/job").await {
                return answer;
            }
        }
    };
    let answer = tokio::time::timeout(DEADLINE, let_in).await.expect("the oldest make room");
    assert_eq!(answer, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_bad_tokens_is_not_reviewed_for_ever() {
    let (world, runner) = with_runner().await;
    assert_eq!(runner.get("/v1/job").await.0, StatusCode::OK);
    let forged = |number: u32| {
        let pod = format!(r#"{{"namespace":"default","pod":{{"name":"r","uid":"{}"}}}}"#, runner.uid);
        let claims = format!(r#"{{"aud":["knoll-hub"],"exp":9999999999,"jti":"{number}","kubernetes.io":{pod}}}"#);
        runner.with_token(&format!("e30.{}.e30", BASE64_URL_SAFE_NO_PAD.encode(claims)))
    };
    let mut answers = Vec::new();
    for number in 0..60 {
        answers.push(forged(number).get("/v1/job").await.0.as_u16());
    }
    assert_eq!(answers[0], 401);
    assert_eq!(answers.last(), Some(&429), "{answers:?}");
    // The runner is known, and a new one at another address is reviewed.
    assert_eq!(runner.get("/v1/job").await.0, StatusCode::OK);
    let other = world.runner("other", apply()).await.from(&world.hub, [127, 0, 0, 2]);
    assert_eq!(other.get("/v1/job").await.0, StatusCode::OK);
}

/// A client that counts the reviews of tokens.
fn counted(client: Client) -> (Client, Arc<AtomicUsize>) {
    let reviews: Arc<AtomicUsize> = Arc::default();
    let counted = reviews.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        if request.uri().path().ends_with("/tokenreviews") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        let client = client.clone();
        async move { client.send(request).await }
    });
    (Client::new(service, "default"), reviews)
}

/// Every pod of the cluster can have a token for the hub, and made the API server review it.
#[tokio::test(flavor = "multi_thread")]
async fn the_tokens_of_pods_that_no_run_has_were_reviewed() {
    let (world, runner) = with_runner().await;
    let (client, reviews) = counted(world.client.clone());
    let hub = world.hub_of(client).await;
    let stranger = world.pod("stranger").await.at(&hub);
    let elsewhere = world.pod("r-apply").await.at(&hub);
    for other in [&stranger, &elsewhere] {
        let (status, message) = other.refused(Method::GET, "/v1/job", "").await;
        assert_eq!(status, 403);
        assert!(message.contains(&other.uid), "{message}");
    }
    assert_eq!(reviews.load(Ordering::SeqCst), 0);
    assert_eq!(runner.at(&hub).get("/v1/job").await.0, StatusCode::OK);
    assert_eq!(reviews.load(Ordering::SeqCst), 1);
}
