//! What one client can hold of the hub, while others are served.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::run::RunPhase;
use knoll_api::wire::{HUB_AUDIENCE, LARGEST_CONTENT, path};
use knoll_e2e::manifests::{MODULE, inline, run, workspace};
use knoll_e2e::{Hub, Namespace, World};
use kube::ResourceExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// As many requests as once held the hub for ever.
const HALF_OPEN: usize = 300;
/// Two bodies of this size once filled the operator's memory.
const LARGE: u64 = 900 << 20;
/// What the operator may need for them, and for whatever else it does meanwhile.
const MEMORY: u64 = 300 << 20;
/// Longer than the hub lets anybody take for a handshake or for the head of a request.
const DEADLINE: Duration = Duration::from_secs(60);

/// A hook that does not end by itself.
const WAITS: &str = "  hooks: [{name: wait, step: pre-plan, script: \"until [ -e /tmp/never ]; do sleep 1; done\"}]\n";

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

#[tokio::test]
async fn half_open_connections_and_requests_to_the_hub_hold_up_no_run() {
    let namespace = World::get().namespace().await;
    namespace.create(&workspace("w"));
    namespace.create(&run("one", "w", &inline(MODULE)));
    namespace.run_in("one", RunPhase::Succeeded).await;
    let hub = Hub::of(&namespace.api().get("one").await.unwrap());
    // The beginning of a handshake, and nothing more.
    let mut handshakes = Vec::new();
    for _ in 0..HALF_OPEN {
        let mut stream = within("a connection", hub.connect()).await.unwrap();
        let _ = stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00]).await;
        handshakes.push(stream);
    }
    // The beginning of a request. The hub may refuse a part of those that come from one address.
    let mut requests = Vec::new();
    while requests.len() < HALF_OPEN / 10 {
        if let Ok(mut stream) = within("a handshake", hub.secure()).await {
            let _ = stream.write_all(b"GET /v1/job HTTP/1.1\r\nHost: ").await;
            requests.push(stream);
        }
    }
    namespace.create(&run("two", "w", &inline(MODULE)));
    namespace.run_in("two", RunPhase::Succeeded).await;
    let closed = async {
        for stream in &mut handshakes {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        for stream in &mut requests {
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    within("every half-open connection is closed", closed).await;
}

/// A token of the pod for the hub, as its runner has one.
fn token(namespace: &Namespace, pod: &Pod) -> String {
    let (name, uid) = (pod.name_any(), pod.uid().unwrap());
    let bound = ["--bound-object-kind", "Pod", "--bound-object-name", &name, "--bound-object-uid", &uid];
    let said = namespace.kubectl(&[&["create", "token", "default", "--audience", HUB_AUDIENCE], &bound[..]].concat());
    said.ok().trim().to_owned()
}

/// The head of a request that hands in a state of this size.
fn head(token: &str, length: u64) -> String {
    let path = path::STATE;
    format!("PUT {path} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n")
}

/// Sends a state of this size as far as it is taken, and returns the first line of the answer.
async fn answer(hub: &Hub, token: &str, length: u64) -> String {
    let (mut from, mut to) = tokio::io::split(hub.secure().await.unwrap());
    to.write_all(head(token, length).as_bytes()).await.unwrap();
    let sending = async {
        let piece = vec![b' '; 1 << 20];
        for _ in 0..length >> 20 {
            if to.write_all(&piece).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut answer = vec![0; 256];
    let count = tokio::select! {
        count = from.read(&mut answer) => count.unwrap_or_default(),
        () = sending => 0,
    };
    String::from_utf8_lossy(&answer[..count]).lines().next().unwrap_or_default().to_owned()
}

/// The memory of the operator, of the largest replica.
async fn memory() -> u64 {
    let metrics = tokio::task::spawn_blocking(|| World::get().metrics()).await.unwrap();
    let values = metrics.lines().filter_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    values.map(|value| value.trim().parse().unwrap()).max().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_bodies_of_900_megabytes_are_refused_and_others_are_served() {
    let world = World::get();
    let (namespace, other) = tokio::join!(world.namespace(), world.namespace());
    namespace.create(&workspace("w"));
    namespace.create(&format!("{}{WAITS}", run("large", "w", &inline(MODULE))));
    namespace.run_in("large", RunPhase::Running).await;
    let pod: Pod = namespace.api().get("large").await.unwrap();
    let (hub, token) = (Hub::of(&pod), token(&namespace, &pod));
    let before = memory().await;
    let grows = async {
        loop {
            let now = memory().await;
            if now > before + MEMORY {
                return now;
            }
        }
    };
    let answers = join_all((0..2).map(|_| answer(&hub, &token, LARGE)));
    let answers = tokio::select! {
        answers = answers => answers,
        now = grows => panic!("the operator has {now} bytes of memory, and had {before}"),
    };
    assert!(answers.iter().all(|answer| answer.contains(" 413 ")), "{answers:?}");
    assert!(memory().await < before + MEMORY, "it had {before} before");

    // The largest that it takes, of which only the beginning comes.
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = hub.secure().await.unwrap();
        stream.write_all(head(&token, LARGEST_CONTENT).as_bytes()).await.unwrap();
        stream.write_all(b"{").await.unwrap();
        held.push(stream);
    }
    other.create(&workspace("w"));
    other.create(&run("served", "w", &inline(MODULE)));
    other.run_in("served", RunPhase::Succeeded).await;
    drop(held);
    let _ = namespace.knoll(&["cancel", "large", "--now"]).ok();
    namespace.run_in("large", RunPhase::Cancelled).await;
}
