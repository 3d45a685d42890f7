//! The file, the limits, and what is done without being asked.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;

use super::super::record::{META, META_FORMAT};
use super::super::{Error, LARGEST_WRITE, List, Options, Store, Write};
use super::disk::{Disk, Op};
use super::{create, run, update, within};

#[test]
fn a_file_keeps_what_was_written() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let store = Store::open(&path, Options::default()).unwrap();
        assert_eq!(store.revision(), 1);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(store.write(create("k", "v")).await.unwrap(), 2);
        assert!(matches!(Store::open(&path, Options::default()), Err(Error::Locked)));
        store.close().await;
        let store = Store::open(&path, Options::default()).unwrap();
        assert_eq!(store.revision(), 2);
        assert_eq!(&store.get("k").unwrap().unwrap().value[..], b"v");
        drop(store);
        let store = Store::open(&path, Options::default()).expect("dropping it is closing it");
        assert_eq!(store.write(update("k", 2, "w")).await.unwrap(), 3);
    });
}

#[test]
fn a_file_of_another_format_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(Store::open(&path, Options::default()).unwrap());
    {
        let db = redb::Database::open(&path).unwrap();
        let transaction = db.begin_write().unwrap();
        transaction.open_table(META).unwrap().insert(META_FORMAT, 7).unwrap();
        transaction.commit().unwrap();
    }
    let error = Store::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, Error::Format { found: 7, known: 3 }), "{error}");
    assert!(error.to_string().contains("format 7"), "{error}");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "my notes").unwrap();
    let error = Store::open(&path, Options::default()).unwrap_err();
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"my notes");
    let missing = folder.path().join("no/such/folder.db");
    assert!(matches!(Store::open(&missing, Options::default()), Err(Error::Open { .. })));
}

#[test]
fn the_largest_write_is_that_of_etcd() {
    run(async {
        let store = Store::memory();
        let write = |bytes| Write::Create { key: "key".to_owned(), value: Bytes::from(vec![1; bytes]) };
        let error = store.write(write(LARGEST_WRITE - 2)).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { size: 1_572_865, limit: 1_572_864 }));
        assert!(error.to_string().contains("1572864"), "{error}");
        store.write(write(LARGEST_WRITE - 3)).await.unwrap();
        assert_eq!(store.get("key").unwrap().unwrap().value.len(), LARGEST_WRITE - 3);
    });
}

#[test]
fn concurrent_writes_share_an_fsync_and_refused_ones_need_none() {
    run(async {
        let disk = Disk::default();
        let syncs = || disk.ops().iter().filter(|(_, op)| matches!(op, Op::Sync)).count();
        let store = disk.store(Options::default()).unwrap();
        let before = syncs();
        let writes = (0..400).map(|n| store.write(create(&n.to_string(), "v")));
        let revisions: Vec<_> = join_all(writes).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(revisions, (2..402).collect::<Vec<_>>());
        assert!(syncs() - before < 40, "{} fsyncs for 400 writes", syncs() - before);
        let before = syncs();
        assert!(matches!(store.write(create("0", "v")).await, Err(Error::Exists)));
        assert!(matches!(store.write(update("0", 1, "v")).await, Err(Error::Conflict { current: Some(2) })));
        assert!(matches!(store.write(update("no", 1, "v")).await, Err(Error::Conflict { current: None })));
        assert_eq!(syncs(), before);
    });
}

#[test]
fn compaction_may_follow_a_write_into_the_same_commit() {
    run(async {
        let store = Store::memory();
        let (first, second, compacted, too_far) = tokio::join!(
            store.write(create("a", "v")),
            store.write(create("b", "v")),
            store.compact(3),
            store.compact(4),
        );
        assert_eq!((first.unwrap(), second.unwrap()), (2, 3));
        compacted.unwrap();
        assert!(matches!(too_far, Err(Error::Future { asked: 4, newest: 3 })));
        assert!(matches!(store.watch("", 2), Err(Error::Compacted { oldest: 3 })));
        store.watch("", 3).unwrap();
    });
}

#[test]
fn history_is_dropped_without_being_asked() {
    let few = Options { keep_revisions: 64, ..Options::default() };
    let small = Options { keep_bytes: 16_000, ..Options::default() };
    let short = Options { keep_for: Duration::from_millis(20), ..Options::default() };
    for options in [few, small, short] {
        run(async {
            let store = Store::with_backend(redb::backends::InMemoryBackend::new(), None, options.clone()).unwrap();
            let mut revision = store.write(create("k", "v")).await.unwrap();
            for _ in 0..300 {
                revision = store.write(update("k", revision, "v")).await.unwrap();
            }
            within(async {
                while !matches!(store.watch("", 2), Err(Error::Compacted { .. }))
                    || store.inner.shared.snapshot().unwrap().history_len() > 200
                {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            assert_eq!(store.get("k").unwrap().unwrap().revision, revision);
            assert_eq!(store.list(List { prefix: "k", ..List::default() }).unwrap().entries.len(), 1);
        });
    }
}

#[test]
fn history_does_not_make_the_file_grow_for_ever() {
    run(async {
        let disk = Disk::default();
        let options = Options { keep_revisions: 64, ..Options::default() };
        let store = disk.store(options).unwrap();
        let value = "v".repeat(20_000);
        let mut revision = store.write(create("k", &value)).await.unwrap();
        let mut sizes = Vec::new();
        for _ in 0..2 {
            for _ in 0..400 {
                revision = store.write(update("k", revision, &value)).await.unwrap();
            }
            sizes.push(disk.content().concat().len());
        }
        assert!(sizes[1] <= sizes[0], "{sizes:?}");
    });
}
