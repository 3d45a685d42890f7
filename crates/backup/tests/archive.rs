//! The archive in a folder, and in a bucket that is cut off and comes back.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use knoll_api::Digest;
use knoll_backup::{Archive, ArchiveError, ObjectAddress, Pruned, Record, Retention, StoredObject, Target};
use knoll_e2e::Bucket;
use serde_json::{Value, json};

fn folder() -> (tempfile::TempDir, Archive) {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::new(Target::open(&format!("file://{}", folder.path().display())).unwrap());
    (folder, archive)
}

fn bucket() -> (Bucket, Archive) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bucket = Bucket::start();
    let archive = Archive::new(Target::open_with(&bucket.url("a/b"), &bucket.environment()).unwrap());
    (bucket, archive)
}

fn version(workspace: &str, serial: u64, second: i64) -> (Record, Bytes) {
    let content = format!("state {serial} of {workspace} {}", "x".repeat(100_000));
    let record = Record {
        namespace: "team".to_owned(),
        workspace: workspace.to_owned(),
        serial,
        lineage: "l".to_owned(),
        digest: Digest::of(&content),
        size: content.len() as u64,
        resources: 3,
        written_at: Timestamp::from_second(second).unwrap(),
        run: "run".to_owned(),
        requested_by: Some("alice".to_owned()),
        lock: Some("# lock".to_owned()),
    };
    (record, content.into())
}

async fn what_is_put_comes_back(archive: &Archive) {
    assert_eq!(archive.namespaces().await.unwrap(), Vec::<String>::new());
    assert_eq!(archive.versions("team", "net").await.unwrap(), []);
    for (serial, second) in [(1, 10), (2, 20), (3, 30)] {
        let (record, content) = version("net", serial, second);
        archive.put(&record, &content).await.unwrap();
        // A repeated write changes nothing.
        archive.put(&record, &content).await.unwrap();
    }
    let (other, content) = version("app", 1, 5);
    archive.put(&other, &content).await.unwrap();
    assert_eq!(archive.namespaces().await.unwrap(), ["team"]);
    assert_eq!(archive.workspaces("team").await.unwrap(), ["app", "net"]);
    let versions = archive.versions("team", "net").await.unwrap();
    assert_eq!(versions.iter().map(|name| name.serial).collect::<Vec<_>>(), [3, 2, 1]);
    for name in &versions {
        let record = archive.record("team", "net", name).await.unwrap();
        let (expected, content) = version("net", name.serial, name.written_at.as_second());
        assert_eq!(record, expected);
        assert_eq!(archive.content(&record).await.unwrap(), content);
    }
    let retention = Retention { versions: 1, age: Duration::from_secs(15) };
    let now = Timestamp::from_second(40).unwrap();
    let listed = archive.listed("team", "net").await.unwrap();
    let pruned = archive.prune("team", "net", listed, &retention, now).await.unwrap();
    assert_eq!(pruned, Pruned { versions: 2, is_crowded: false });
    let versions = archive.versions("team", "net").await.unwrap();
    assert_eq!(versions.iter().map(|name| name.serial).collect::<Vec<_>>(), [3]);
    let (gone, _) = version("net", 1, 10);
    assert!(matches!(archive.content(&gone).await, Err(ArchiveError::Missing(_))));
}

async fn objects_are_replaced_and_marked(archive: &Archive) {
    let address = |name: &str, namespace: Option<&str>| ObjectAddress {
        kind: "stack".to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    let object = |n: u64| StoredObject { manifest: json!({ "spec": n }), status: Value::Null };
    let (net, all) = (address("net", Some("team")), address("all", None));
    for (address, n) in [(&net, 1), (&net, 1), (&net, 2), (&all, 3)] {
        archive.put_object(address, &object(n)).await.unwrap();
        assert_eq!(archive.object(address).await.unwrap(), object(n));
    }
    assert_eq!(archive.objects("stack", Some("team")).await.unwrap(), std::slice::from_ref(&net));
    assert_eq!(archive.objects("stack", None).await.unwrap(), [all]);
    assert_eq!(archive.object_namespaces().await.unwrap(), ["team"], "`_cluster` is none");
    archive.mark_deleted(&net).await.unwrap();
    archive.mark_deleted(&net).await.unwrap();
    assert_eq!(archive.objects("stack", Some("team")).await.unwrap(), []);
    assert!(matches!(archive.object(&net).await, Err(ArchiveError::Missing(_))));
    archive.put_object(&net, &object(2)).await.unwrap();
    assert_eq!(archive.object(&net).await.unwrap(), object(2), "it is there again");
}

#[tokio::test]
async fn a_folder_keeps_versions_and_objects() {
    let (_folder, archive) = folder();
    what_is_put_comes_back(&archive).await;
    objects_are_replaced_and_marked(&archive).await;
}

#[tokio::test]
async fn a_bucket_keeps_versions_and_objects() {
    let (_bucket, archive) = bucket();
    what_is_put_comes_back(&archive).await;
    objects_are_replaced_and_marked(&archive).await;
    archive.put_bundle(&Digest::of("b"), b"bundle".to_vec()).await.unwrap();
    assert!(archive.has_bundle(&Digest::of("b")).await.unwrap());
    assert!(!archive.has_bundle(&Digest::of("c")).await.unwrap());
    assert_eq!(archive.bundle(&Digest::of("b")).await.unwrap(), "bundle");
}

#[tokio::test]
async fn a_bucket_that_is_away_fails_with_its_address_and_no_credentials() {
    let (mut bucket, archive) = bucket();
    let (record, content) = version("net", 1, 10);
    bucket.cut();
    let error = archive.put(&record, &content).await.unwrap_err();
    assert!(matches!(error, ArchiveError::Target { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("`s3://backups/a/b` failed: "), "{text}");
    let environment = bucket.environment();
    assert!(!text.contains(&environment["AWS_SECRET_ACCESS_KEY"]), "{text}");
    bucket.back();
    archive.put(&record, &content).await.unwrap();
    assert_eq!(archive.content(&record).await.unwrap(), content);
}

#[tokio::test]
async fn wrong_credentials_are_refused_and_not_shown() {
    let (bucket, _) = bucket();
    let mut environment = bucket.environment();
    environment.insert("AWS_SECRET_ACCESS_KEY".to_owned(), "a-wrong-secret".to_owned());
    let archive = Archive::new(Target::open_with(&bucket.url("p"), &environment).unwrap());
    let text = archive.versions("team", "net").await.unwrap_err().to_string();
    assert!(text.contains("`s3://backups/p` failed") && !text.contains("a-wrong-secret"), "{text}");
    assert!(!text.contains('<') && !text.contains('\n'), "{text}");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[tokio::test]
async fn what_somebody_changed_in_the_target_is_not_restored() {
    let (folder, archive) = folder();
    let (record, content) = version("net", 1, 10);
    archive.put(&record, &content).await.unwrap();
    let name = record.name();
    let [packed, document] = files(folder.path()).try_into().unwrap();
    let good = (std::fs::read(&packed).unwrap(), std::fs::read(&document).unwrap());

    for bad in [b"junk".to_vec(), zstd::bulk::compress(b"another state", 0).unwrap(), Vec::new()] {
        std::fs::write(&packed, bad).unwrap();
        assert!(matches!(archive.content(&record).await, Err(ArchiveError::Damaged { .. })));
    }
    std::fs::write(&packed, &good.0).unwrap();
    let other = serde_json::to_vec(&version("app", 1, 10).0).unwrap();
    for bad in [b"{}".to_vec(), b"\"secret\"".to_vec(), other] {
        std::fs::write(&document, bad).unwrap();
        let error = archive.record("team", "net", &name).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Damaged { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    std::fs::write(&document, &good.1).unwrap();
    // Names that nobody at Kubernetes has are no Workspaces, and no versions.
    for path in ["states/team/..%2fx", "states/Team/a", "states/team/net/versions"] {
        let folder = folder.path().join(path);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("x.json"), "{}").unwrap();
    }
    assert_eq!(archive.namespaces().await.unwrap(), ["team"]);
    assert_eq!(archive.workspaces("team").await.unwrap(), ["net"]);
    assert_eq!(archive.versions("team", "net").await.unwrap(), [name]);
    for bad in ["..", "a/b", "", "A"] {
        assert!(matches!(archive.versions(bad, "net").await, Err(ArchiveError::Name(_))), "{bad}");
        assert!(matches!(archive.versions("team", bad).await, Err(ArchiveError::Name(_))), "{bad}");
    }
}
