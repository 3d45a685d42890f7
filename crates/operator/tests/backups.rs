//! States are copied to a bucket, which is cut off and comes back.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::time::Duration;

use cluster::{DEADLINE, Operator, World, apply};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::names::{condition, reason};
use knoll_api::workspace::BackupStatus;
use knoll_api::{Digest, Run, Workspace};
use knoll_backup::{Archive, ObjectAddress, Retention, Target, kinds};
use knoll_e2e::Bucket;
use knoll_operator::{BackupSettings, metrics::Metrics};
use knoll_storage::{Owner, StateFile, Storage};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

/// How many Workspaces and how many versions of each are written while the bucket is away: a thousand together.
const WORKSPACES: usize = 40;
const VERSIONS: u64 = 25;

fn target(bucket: &Bucket) -> Target {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Target::open_with(&bucket.url("knoll"), &bucket.environment()).unwrap()
}

fn settings(target: &Target) -> BackupSettings {
    let retention = Retention { versions: 100, age: Duration::from_secs(3600) };
    BackupSettings { target: target.clone(), retention }
}

fn content(workspace: &str, serial: u64) -> Vec<u8> {
    StateFile::empty(serial, &format!("lineage-of-{workspace}"))
}

/// Writes one version as the hub does for a runner.
async fn write(world: &World, name: &str, serial: u64) {
    let workspace: Workspace = world.api().get(name).await.unwrap();
    let run = format!("{name}-{serial}");
    let owner = Owner::of(&workspace, &Run::new(&run, apply(name)));
    let states = Storage::new(world.client.clone()).states();
    let claim = states.claim("default", &owner, &run).await.unwrap();
    states.put("default", &owner, &claim, &run, content(name, serial).into(), false).await.unwrap();
}

fn backup(workspace: &Workspace) -> Option<&BackupStatus> {
    workspace.status.as_ref()?.backup.as_ref()
}

fn backed_up(workspace: &Workspace) -> Option<&Condition> {
    let conditions = &workspace.status.as_ref()?.conditions;
    conditions.iter().find(|known| known.type_ == condition::BACKED_UP)
}

fn is_copied(workspace: &Workspace, serial: u64) -> bool {
    let is_good = backed_up(workspace).is_some_and(|condition| condition.status == "True");
    is_good && backup(workspace).is_some_and(|backup| backup.serial == Some(serial) && backup.behind == 0)
}

fn gauge(metrics: &Metrics, name: &str) -> f64 {
    let text = metrics.text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

async fn gauge_becomes(metrics: &Metrics, name: &str, expect: f64) {
    let deadline = Instant::now() + DEADLINE;
    while gauge(metrics, name) != expect {
        assert!(Instant::now() < deadline, "{name} is {} and never {expect}", gauge(metrics, name));
        tokio::task::yield_now().await;
    }
}

async fn event(world: &World, expect: &str) -> Event {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let events = world.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        if let Some(found) = events.into_iter().find(|event| event.reason.as_deref() == Some(expect)) {
            return found;
        }
        assert!(Instant::now() < deadline, "there is no event `{expect}`");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_states_that_are_written_without_the_bucket_are_copied_when_it_is_back() {
    let mut bucket = Bucket::start();
    let target = target(&bucket);
    let archive = Archive::new(target.clone());
    let world = World::start().await;
    let metrics = Metrics::default();
    let operator = Operator::backing_up(world.client.clone(), settings(&target), metrics.clone());
    let names: Vec<String> = (0..WORKSPACES).map(|number| format!("w{number}")).collect();
    for name in &names {
        world.workspace(name).await;
    }
    for name in &names {
        // From now on versions are kept until they are copied.
        world.workspace_until(name, |workspace| backup(workspace).is_some()).await;
    }
    write(&world, &names[0], 1).await;
    world.workspace_until(&names[0], |workspace| is_copied(workspace, 1)).await;

    bucket.cut();
    for serial in 1..=VERSIONS {
        for name in names.iter().filter(|name| serial > 1 || **name != names[0]) {
            write(&world, name, serial).await;
        }
    }
    let late =
        world.workspace_until(&names[7], |workspace| backed_up(workspace).is_some_and(|c| c.status == "False")).await;
    let told = backed_up(&late).unwrap();
    assert_eq!(told.reason, reason::BACKUP_FAILED, "{told:?}");
    assert!(told.message.contains("s3://backups/knoll") && !told.message.contains("not-secret"), "{told:?}");
    let behind = WORKSPACES * usize::try_from(VERSIONS).unwrap() - 1;
    gauge_becomes(&metrics, "knoll_backup_behind_versions", f64::from(u32::try_from(behind).unwrap())).await;
    gauge_becomes(&metrics, "knoll_backup_reachable", 0.0).await;
    assert!(gauge(&metrics, "knoll_backup_behind_seconds") > 0.0);
    assert_eq!(event(&world, reason::BACKUP_FAILED).await.type_.as_deref(), Some("Warning"));

    // What is left to copy is known to the next process, too.
    operator.kill().await;
    let metrics = Metrics::default();
    let operator = Operator::backing_up(world.client.clone(), settings(&target), metrics.clone());
    bucket.back();
    for name in &names {
        let copied = world.workspace_until(name, |workspace| is_copied(workspace, VERSIONS)).await;
        let expected = Digest::of(content(name, VERSIONS)).to_string();
        assert_eq!(backup(&copied).unwrap().digest.as_ref(), Some(&expected));
        let mut versions = archive.versions("default", name).await.unwrap();
        versions.sort_by_key(|version| version.serial);
        let serials: Vec<u64> = versions.iter().map(|version| version.serial).collect();
        assert_eq!(serials, (1..=VERSIONS).collect::<Vec<_>>(), "nothing of `{name}` is missing");
        for version in &versions {
            let record = archive.record("default", name, version).await.unwrap();
            assert_eq!(record.run, format!("{name}-{}", version.serial));
            assert_eq!(archive.content(&record).await.unwrap(), content(name, version.serial));
        }
    }
    gauge_becomes(&metrics, "knoll_backup_behind_versions", 0.0).await;
    gauge_becomes(&metrics, "knoll_backup_reachable", 1.0).await;

    // The history is as long as it has to be again.
    write(&world, &names[0], VERSIONS + 1).await;
    world.workspace_until(&names[0], |workspace| is_copied(workspace, VERSIONS + 1)).await;
    let kept = Storage::new(world.client.clone()).states().history("default", &names[0]).await.unwrap();
    assert_eq!(kept.len(), 10);
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_deleted_is_offered_from_its_backup() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::open(&format!("file://{}", folder.path().display())).unwrap();
    let archive = Archive::new(target.clone());
    let world = World::start().await;
    let operator = Operator::backing_up(world.client.clone(), settings(&target), Metrics::default());
    world.workspace("net").await;
    let run = knoll_api::run::RunSpec { requested_by: Some("alice".to_owned()), ..apply("net") };
    world.run("net-7", run).await;
    write(&world, "net", 7).await;
    world.workspace_until("net", |workspace| is_copied(workspace, 7)).await;
    let [version] = archive.versions("default", "net").await.unwrap().try_into().unwrap();
    let record = archive.record("default", "net", &version).await.unwrap();
    assert_eq!((record.run.as_str(), record.requested_by.as_deref()), ("net-7", Some("alice")));

    world.api::<Secret>().delete("knoll-state-net", &DeleteParams::default()).await.unwrap();
    let offered = world.workspace_until("net", |workspace| {
        backed_up(workspace).is_some_and(|condition| condition.reason == reason::BACKUP_FOUND)
    });
    let offered = offered.await;
    let message = &backed_up(&offered).unwrap().message;
    assert!(message.contains("serial 7") && message.contains("knoll restore -w net"), "{message}");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_copied_and_marked_when_they_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::open(&format!("file://{}", folder.path().display())).unwrap();
    let archive = Archive::new(target.clone());
    let world = World::start().await;
    let operator = Operator::backing_up(world.client.clone(), settings(&target), Metrics::default());
    world.workspace("net").await;
    let address = ObjectAddress {
        kind: kinds::WORKSPACE.to_owned(),
        namespace: Some("default".to_owned()),
        name: "net".to_owned(),
    };
    let becomes = async |expect: Option<u64>| {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let found = archive.object(&address).await.ok();
            let history = found.map(|object| object.manifest["spec"]["stateHistory"].as_u64().unwrap());
            if history == expect {
                return;
            }
            assert!(Instant::now() < deadline, "{history:?} is never {expect:?}");
            tokio::task::yield_now().await;
        }
    };
    becomes(Some(10)).await;
    let patch = Patch::Merge(json!({"spec": {"stateHistory": 3}, "metadata": {"labels": {"env": "test"}}}));
    world.api::<Workspace>().patch("net", &PatchParams::default(), &patch).await.unwrap();
    becomes(Some(3)).await;
    let object = archive.object(&address).await.unwrap();
    assert_eq!(object.manifest["metadata"]["labels"], json!({"env": "test"}));
    assert_eq!(object.manifest["kind"], "Workspace");
    world.api::<Workspace>().delete("net", &DeleteParams::default()).await.unwrap();
    becomes(None).await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_state_is_named_and_keeps_no_other_from_being_copied() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::open(&format!("file://{}", folder.path().display())).unwrap();
    let world = World::start().await;
    for name in ["bad", "good"] {
        world.workspace(name).await;
        write(&world, name, 1).await;
    }
    let damage = Patch::Merge(json!({"stringData": {"content": "junk"}}));
    world.api::<Secret>().patch("knoll-state-bad", &PatchParams::default(), &damage).await.unwrap();
    let operator = Operator::backing_up(world.client.clone(), settings(&target), Metrics::default());
    world.workspace_until("good", |workspace| is_copied(workspace, 1)).await;
    let bad = world.workspace_until("bad", |workspace| backed_up(workspace).is_some_and(|c| c.status == "False")).await;
    assert_eq!(backed_up(&bad).unwrap().reason, reason::BACKUP_FAILED);
    operator.stop().await;
}
