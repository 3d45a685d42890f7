//! A disk that fails: nothing is shown that is not durable, and the file can be opened again.

use super::super::{Error, List, Options};
use super::disk::Disk;
use super::model::Model;
use super::{create, run, update};

#[test]
fn a_commit_that_fails_is_not_shown_and_stops_all_writing() {
    run(async {
        let disk = Disk::default();
        let store = disk.store(Options::default()).unwrap();
        let first = disk.now();
        let mut revision = store.write(create("k", "0")).await.unwrap();
        for n in 1..5 {
            revision = store.write(update("k", revision, &n.to_string())).await.unwrap();
        }
        let length = disk.now() - first;
        store.close().await;
        for fails_at in 0..length {
            check(fails_at).await;
        }
    });
}

async fn check(fails_at: usize) {
    let disk = Disk::default();
    let store = disk.store(Options::default()).unwrap();
    disk.fail_at(disk.now() + fails_at);
    let mut model = Model::new();
    let mut watch = store.watch("", 1).unwrap();
    let error = loop {
        let write = match model.current().get("k") {
            None => create("k", "0"),
            Some(entry) => update("k", entry.revision, &entry.revision.to_string()),
        };
        match store.write(write.clone()).await {
            Ok(revision) => assert_eq!(revision, model.write(&write).unwrap()),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::Failed { reason } if reason.contains("broken")), "{error}");
    let seen = super::drain(&mut watch).unwrap();
    assert_eq!(seen, model.events("", 1));
    assert_eq!(store.revision(), model.revision());
    assert_eq!(watch.progress(), model.revision());
    // Reads go on as far as the disk lets them, and never show more.
    if let Ok(page) = store.list(List::default()) {
        assert_eq!(page.entries, model.list("", model.revision()));
    }
    let again = store.write(create("other", "")).await.unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
    assert!(matches!(store.compact(1).await, Err(Error::Failed { .. })));
    store.close().await;
    assert!(matches!(watch.next().await, Err(Error::Closed)));

    // What failed may have become durable, what was answered has.
    let store = Disk::with(disk.content()).store(Options::default()).unwrap();
    let found = store.revision();
    assert!(found == model.revision() || found == model.revision() + 1, "{found}");
    if found == model.revision() {
        model.check(&store, &[""]);
    }
}
