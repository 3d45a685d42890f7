//! What a watcher sees when it is slow, idle, late or cut off.

use std::time::Duration;

use super::super::{Error, Options, Store};
use super::{create, delete, drain, run, update, within};

fn store(recent_bytes: usize) -> Store {
    let options = Options { recent_bytes, ..Options::default() };
    Store::with_backend(redb::backends::InMemoryBackend::new(), None, options).unwrap()
}

async fn fill(store: &Store, prefix: &str, count: usize) {
    for n in 0..count {
        store.write(create(&format!("{prefix}{n}"), "value")).await.unwrap();
    }
}

#[test]
fn a_slow_watcher_reads_the_file() {
    run(async {
        let store = store(1_000);
        let mut watch = store.watch("a/", 1).unwrap();
        fill(&store, "a/", 600).await;
        fill(&store, "b/", 10).await;
        let events = drain(&mut watch).unwrap();
        assert_eq!(events.len(), 600);
        assert!(events.iter().enumerate().all(|(n, event)| event.revision == n as u64 + 2));
        store.write(create("a/next", "value")).await.unwrap();
        assert_eq!(within(watch.next()).await.unwrap()[0].key, "a/next");
    });
}

#[test]
fn a_watcher_slower_than_compaction_is_told() {
    run(async {
        let store = store(0);
        let mut watch = store.watch("", 1).unwrap();
        fill(&store, "a/", 10).await;
        store.compact(8).await.unwrap();
        assert!(matches!(within(watch.next()).await, Err(Error::Compacted { oldest: 8 })));
        assert!(matches!(within(watch.next()).await, Err(Error::Compacted { oldest: 8 })), "and again");
    });
}

#[test]
fn an_idle_watcher_never_falls_behind() {
    run(async {
        let store = store(0);
        let mut idle = store.watch("idle/", 1).unwrap();
        fill(&store, "busy/", 50).await;
        assert_eq!(idle.progress(), store.revision());
        store.compact(store.revision()).await.unwrap();
        fill(&store, "idle/", 1).await;
        assert_eq!(idle.progress(), store.revision() - 1, "a bookmark must not pass the event");
        assert_eq!(within(idle.next()).await.unwrap().len(), 1);
        assert_eq!(idle.progress(), store.revision());
    });
}

#[test]
fn a_watcher_that_waits_is_woken() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = store(1 << 20);
        let mut watch = store.watch("", 1).unwrap();
        let waiting = tokio::spawn(async move { watch.next().await });
        store.write(create("k", "v")).await.unwrap();
        let events = within(waiting).await.unwrap().unwrap();
        assert_eq!(events[0].revision, 2);
    });
}

#[test]
fn a_next_that_is_cut_off_loses_nothing() {
    run(async {
        for recent_bytes in [0, 1 << 20] {
            let store = store(recent_bytes);
            let mut watch = store.watch("", 1).unwrap();
            for n in 0..20 {
                assert!(tokio::time::timeout(Duration::ZERO, watch.next()).await.is_err());
                store.write(create(&n.to_string(), "v")).await.unwrap();
                assert_eq!(within(watch.next()).await.unwrap()[0].key, n.to_string());
            }
        }
    });
}

#[test]
fn events_carry_what_was_there_before() {
    run(async {
        for recent_bytes in [0, 1 << 20] {
            let store = store(recent_bytes);
            let mut watch = store.watch("", 1).unwrap();
            store.write(create("k", "one")).await.unwrap();
            store.write(update("k", 2, "two")).await.unwrap();
            store.write(delete("k", 3)).await.unwrap();
            store.write(create("k", "new")).await.unwrap();
            let events = drain(&mut watch).unwrap();
            let previous: Vec<_> = events
                .iter()
                .map(|event| event.previous.as_ref().map(|entry| (entry.revision, entry.created, &entry.value[..])))
                .collect();
            assert_eq!(previous, [None, Some((2, 2, &b"one"[..])), Some((3, 2, &b"two"[..])), None]);
            let values: Vec<_> = events.iter().map(|event| &event.value[..]).collect();
            assert_eq!(values, [&b"one"[..], b"two", b"two", b"new"]);
        }
    });
}

#[test]
fn closing_ends_watches_after_what_they_have_to_see() {
    run(async {
        let store = store(1 << 20);
        let mut behind = store.watch("", 1).unwrap();
        let mut idle = store.watch("idle", 1).unwrap();
        fill(&store, "k", 1).await;
        let other = store.clone();
        store.close().await;
        assert_eq!(within(behind.next()).await.unwrap().len(), 1);
        assert!(matches!(within(behind.next()).await, Err(Error::Closed)));
        assert!(matches!(within(idle.next()).await, Err(Error::Closed)));
        assert!(matches!(other.get("k"), Err(Error::Closed)));
        assert!(matches!(other.write(create("x", "")).await, Err(Error::Closed)));
        other.close().await;
    });
}

#[test]
fn a_watcher_knows_how_many_see_what_it_sees() {
    run(async {
        let store = store(1 << 20);
        let [first, second, other] = ["a/", "a/", "b/"].map(|prefix| store.watch(prefix, 1).unwrap());
        let company = || [&first, &second, &other].map(super::Watch::company);
        assert_eq!(company(), [0, 0, 0]);
        store.write(create("a/1", "")).await.unwrap();
        assert_eq!(company(), [2, 2, 0]);
        store.write(create("b/1", "")).await.unwrap();
        assert_eq!(company(), [2, 2, 1]);
    });
}
