//! A state that was copied becomes the current one again, unless it would replace a newer or another one.
#![allow(clippy::unwrap_used, reason = "tests")]

use jiff::Timestamp;
use knoll_embedded::Cluster;
use knoll_storage::states::{RestoredState, Taken};
use knoll_storage::{Error, Owner, StateFile, States, Storage};

const NAMESPACE: &str = "default";

fn owner() -> Owner {
    Owner { workspace: "net".to_owned(), reference: None, keep: 3, copied: None, is_held: false }
}

fn copied(serial: u64, lineage: &str) -> RestoredState {
    RestoredState {
        content: StateFile::empty(serial, lineage).into(),
        run: format!("run-{serial}"),
        written_at: Timestamp::from_second(i64::try_from(serial).unwrap()).unwrap(),
        lock: Some("# lock".to_owned()),
    }
}

async fn restore(states: &States, state: RestoredState, force: bool) -> Result<Taken, Error> {
    let restoration = states.prepare_restore(NAMESPACE, owner(), state, force).await?;
    let taken = restoration.taken();
    states.restore(NAMESPACE, restoration).await.map(|()| taken)
}

async fn serials(states: &States) -> Vec<u64> {
    states.history(NAMESPACE, "net").await.unwrap().iter().map(|version| version.serial).collect()
}

#[tokio::test]
async fn a_newer_or_another_state_is_replaced_by_force_only() {
    let cluster = Cluster::memory().await.unwrap();
    let states = Storage::new(cluster.client()).states();
    // What is restored, by force, whether it becomes the state, what is kept then.
    let rows: [(u64, &str, bool, Option<Taken>, &[u64]); 8] = [
        (5, "l", false, Some(Taken::Stored), &[5]),
        (5, "l", false, Some(Taken::Known), &[5]),
        (4, "l", false, None, &[5]),
        (9, "other", false, None, &[5]),
        (7, "l", false, Some(Taken::Stored), &[7, 5]),
        (4, "l", true, Some(Taken::Stored), &[4, 7, 5]),
        (9, "other", true, Some(Taken::Stored), &[9, 4, 7]),
        (9, "other", true, Some(Taken::Known), &[9, 4, 7]),
    ];
    for (serial, lineage, force, expect, kept) in rows {
        let result = restore(&states, copied(serial, lineage), force).await;
        let what = format!("{serial} {lineage} {force}: {result:?}");
        match (expect, result) {
            (Some(expect), Ok(taken)) => assert_eq!(taken, expect, "{what}"),
            (None, Err(Error::Refused(_))) => {}
            _ => panic!("{what}"),
        }
        assert_eq!(serials(&states).await, kept, "{what}");
    }
    let head = states.head_of(NAMESPACE, "net").await.unwrap();
    let current = head.index.current.clone().unwrap();
    assert_eq!((current.run.as_str(), current.updated_at.as_str()), ("run-9", "1970-01-01T00:00:09Z"));
    assert_eq!(head.lock.as_deref(), Some(&b"# lock"[..]));
    let content = states.version_of(NAMESPACE, "net", &head, &current).await.unwrap().unwrap();
    assert_eq!(content, StateFile::empty(9, "other"));
}

#[tokio::test]
async fn a_pod_that_claims_the_head_in_between_makes_a_restore_fail() {
    let cluster = Cluster::memory().await.unwrap();
    let states = Storage::new(cluster.client()).states();
    restore(&states, copied(1, "l"), false).await.unwrap();
    let restoration = states.prepare_restore(NAMESPACE, owner(), copied(2, "l"), false).await.unwrap();
    states.claim(NAMESPACE, &owner(), "pod").await.unwrap();
    let result = states.restore(NAMESPACE, restoration).await;
    assert!(matches!(result, Err(Error::Busy)), "{result:?}");
    assert_eq!(serials(&states).await, [1]);
}

#[tokio::test]
async fn a_pod_of_before_writes_nothing_over_a_restored_state() {
    let cluster = Cluster::memory().await.unwrap();
    let hub = Storage::new(cluster.client()).states();
    let claim = hub.claim(NAMESPACE, &owner(), "pod").await.unwrap();
    let states = Storage::new(cluster.client()).states();
    restore(&states, copied(5, "l"), false).await.unwrap();
    let late = hub.put(NAMESPACE, &owner(), &claim, "late", StateFile::empty(6, "l").into(), false).await;
    assert!(matches!(late, Err(Error::Superseded)), "{late:?}");
    assert_eq!(serials(&states).await, [5]);
}

#[tokio::test]
async fn what_is_no_state_is_not_restored() {
    let cluster = Cluster::memory().await.unwrap();
    let states = Storage::new(cluster.client()).states();
    let state = RestoredState { content: "{}".into(), ..copied(1, "l") };
    let result = restore(&states, state, true).await;
    assert!(matches!(result, Err(Error::NoState(_))), "{result:?}");
}
