//! States on the embedded API server. Each [`States`] stands for a replica.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Mutex as Lock;

use k8s_openapi::api::core::v1::Namespace;
use knoll_embedded::Cluster;
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::*;
use crate::seal::Sink;
use crate::seal::tests::Reversed;

const NAMESPACE: &str = "default";
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

fn content(serial: u64) -> Bytes {
    json!({"version": 4, "serial": serial, "lineage": "l", "resources": [], "outputs": {}}).to_string().into()
}

async fn put(states: &States, claim: &Claim, serial: u64) -> Result<Taken, Error> {
    states.put(NAMESPACE, &owner(), claim, "r", content(serial), false).await
}

fn owner() -> Owner {
    Owner { workspace: "w".to_owned(), reference: None, keep: 10, copied: None, is_held: false }
}

#[tokio::test]
async fn a_write_that_is_under_way_does_not_land_behind_the_claim_of_the_next_run() {
    let cluster = Cluster::memory().await.unwrap();
    let states = || Storage::new(cluster.client()).states();
    let [ours, theirs] = [(); 2].map(|()| states());
    ours.open(NAMESPACE, &owner(), Some("first")).await.unwrap();
    let first = ours.claim(NAMESPACE, &owner(), "first").await.unwrap();
    assert_eq!(put(&ours, &first, 1).await.unwrap(), Taken::Stored);

    theirs.open(NAMESPACE, &owner(), Some("next")).await.unwrap();
    let next = theirs.claim(NAMESPACE, &owner(), "next").await.unwrap();
    assert_eq!(theirs.opened(NAMESPACE, "w", false).await.unwrap(), Some(content(1)));
    // To its replica the head is still the one that it wrote itself.
    assert!(matches!(put(&ours, &first, 2).await, Err(Error::Superseded)));
    assert_eq!(put(&theirs, &next, 2).await.unwrap(), Taken::Stored);

    // A claim of the first one that lands late is another one, and the next one claims the state back.
    states().open(NAMESPACE, &owner(), Some("first")).await.unwrap();
    assert!(matches!(put(&ours, &first, 3).await, Err(Error::Superseded)));
    assert!(matches!(put(&theirs, &next, 3).await, Err(Error::Superseded)));
    let again = theirs.claim(NAMESPACE, &owner(), "next").await.unwrap();
    assert!(again.since > next.since);
    assert_eq!(put(&theirs, &again, 3).await.unwrap(), Taken::Stored);
    assert_eq!(ours.read(NAMESPACE, "w").await.unwrap(), Some(content(3)));
    // Another replica takes the claim for what it is, and writes nothing to know of it.
    let before = ours.secret(NAMESPACE, "w").await.unwrap();
    let elsewhere = ours.claim(NAMESPACE, &owner(), "next").await.unwrap();
    assert_eq!(
        (elsewhere.writer.as_str(), ours.secret(NAMESPACE, "w").await.unwrap()),
        (again.writer.as_str(), before)
    );
    assert!(elsewhere.since > again.since, "it has to be confirmed there, too");
}

#[tokio::test]
async fn a_secret_that_no_state_can_be_written_into_is_named_before_terraform_starts() {
    let cluster = Cluster::memory().await.unwrap();
    let states = Storage::new(cluster.client()).states();
    for (name, secret_type, immutable, expect) in [
        ("typed", "Opaque", false, Some("it is of the type `Opaque`")),
        ("fixed", "knoll.dev/state", true, Some("it is immutable")),
        ("empty", "knoll.dev/state", false, None),
    ] {
        let secret =
            json!({"metadata": {"name": names::state_secret(name)}, "type": secret_type, "immutable": immutable});
        let secret = serde_json::from_value(secret).unwrap();
        states.api(NAMESPACE).create(&PostParams::default(), &secret).await.unwrap();
        let opened = states.open(NAMESPACE, &Owner { workspace: name.to_owned(), ..owner() }, Some("pod")).await;
        let said = opened.err().map(|error| error.to_string());
        assert_eq!(said.is_some(), expect.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().contains(expect.unwrap_or_default()), "{name}");
    }
}

#[tokio::test]
async fn a_run_that_only_reads_claims_nothing_and_leaves_the_claim_of_another_alone() {
    let cluster = Cluster::memory().await.unwrap();
    let states = Storage::new(cluster.client()).states();
    assert_eq!(states.open(NAMESPACE, &owner(), None).await.unwrap(), None);
    assert!(states.secret(NAMESPACE, "w").await.unwrap().is_none(), "to read is to write nothing");
    let writer = states.claim(NAMESPACE, &owner(), "writer").await.unwrap();
    states.open(NAMESPACE, &owner(), None).await.unwrap();
    states.put_lock(NAMESPACE, &owner(), b"lock").await.unwrap();
    states.close(NAMESPACE, "w", "reader").await;
    assert_eq!(states.claim(NAMESPACE, &owner(), "writer").await.unwrap().writer, writer.writer);
    assert_eq!(put(&states, &writer, 1).await.unwrap(), Taken::Stored);
    assert_eq!(states.open(NAMESPACE, &owner(), None).await.unwrap().as_deref(), Some("lock"));
}

/// Text that does not compress well.
fn noise(bytes: usize) -> String {
    let mut state = 88_172_645_463_325_252_u64;
    let letters = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from_digit((state % 36) as u32, 36).unwrap()
    });
    letters.take(bytes).collect()
}

/// Remembers the serials that it was told of.
#[derive(Debug, Default)]
struct Serials(Lock<Vec<(String, u64, usize)>>);

impl Sink for Serials {
    fn committed(&self, state: Committed) {
        self.0.lock().unwrap().push((state.workspace, state.version.serial, state.content.len()));
    }
}

#[tokio::test]
async fn every_stored_byte_goes_through_the_seal_and_every_version_to_the_sink() {
    let cluster = Cluster::memory().await.unwrap();
    let sink = Arc::new(Serials::default());
    let plain = Storage::new(cluster.client());
    let sealed = plain.clone().with_seal(Arc::new(Reversed)).with_sink(sink.clone());
    let states = sealed.states();
    let claim = states.claim(NAMESPACE, &owner(), "pod").await.unwrap();
    // Noise does not compress: the second state needs parts, and the first one moves out of the head.
    let noise: String = noise(1_000_000);
    let large = json!({"version": 4, "serial": 2, "lineage": "l", "resources": [], "noise": noise}).to_string();
    let small = content(1);
    for (run, content) in [("a", small.clone()), ("b", Bytes::from(large.clone())), ("b", Bytes::from(large.clone()))] {
        states.put(NAMESPACE, &owner(), &claim, run, content, false).await.unwrap();
    }
    assert_eq!(states.read(NAMESPACE, "w").await.unwrap(), Some(large.clone().into()));
    assert_eq!(states.version(NAMESPACE, "w", 1).await.unwrap(), small);
    let expect = [("w".to_owned(), 1, small.len()), ("w".to_owned(), 2, large.len())];
    assert_eq!(*sink.0.lock().unwrap(), expect, "the version that was known already is not told again");
    // Whoever has not the seal reads nothing.
    assert!(matches!(plain.states().read(NAMESPACE, "w").await, Err(Error::Damaged(_))));
    assert!(plain.states().version(NAMESPACE, "w", 1).await.is_err());
}

#[tokio::test]
async fn the_state_of_a_stack_is_kept_in_a_namespace_that_goes_until_it_is_released() {
    let cluster = Cluster::memory().await.unwrap();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "team"}})).unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let states = Storage::new(cluster.client()).states();
    let held = Owner { is_held: true, ..owner() };
    let write = async |run: &str, serial: u64| {
        let claim = states.claim("team", &held, run).await.unwrap();
        states.put("team", &held, &claim, run, content(serial), false).await.unwrap()
    };
    write("first", 1).await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let api: Api<Secret> = Api::namespaced(cluster.client(), "team");
    let going = |secret: Option<&Secret>| secret.is_none_or(|secret| secret.metadata.deletion_timestamp.is_some());
    tokio::time::timeout(DEADLINE, await_condition(api.clone(), "knoll-state-w", going)).await.unwrap().unwrap();

    assert_eq!(states.read("team", "w").await.unwrap(), Some(content(1)));
    // A run that ends meanwhile hands in its last state, and no version before it can be kept.
    assert_eq!(write("second", 2).await, Taken::Stored);
    assert_eq!(states.read("team", "w").await.unwrap(), Some(content(2)));
    states.release("team", "w").await.unwrap();
    let gone = await_condition(namespaces, "team", |namespace: Option<&Namespace>| namespace.is_none());
    tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();
}
