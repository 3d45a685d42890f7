//! Atoms on the embedded API server: what is written, what is refused, and what comes back.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use cluster::{
    World,
    atoms::{Life, config_map, documents},
};
use knoll_api::atom::AtomPhase;
use serde_json::json;

#[tokio::test]
async fn a_version_is_written_and_a_bad_one_is_undone() {
    let world = World::start().await;
    let _operator = world.operator();
    let life = Life::new(&world, "web");
    life.version("v1", &documents(&[config_map("a", "1"), config_map("gone", "1")])).await;
    life.wants("v1").await;
    let status = life.ends(AtomPhase::Running).await;
    assert_eq!(status.last_good_version.as_deref(), Some("v1"));
    assert_eq!(life.data("a").await, Some(json!({"k": "1"})));

    // Nothing of a set is written when the API refuses one object of it.
    let bad = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": 1}});
    life.version("bad", &documents(&[config_map("a", "2"), bad])).await;
    life.wants("bad").await;
    let status = life.ends(AtomPhase::Reverted).await;
    assert_eq!(status.current_version.as_deref(), Some("v1"));
    let failure = status.failure.unwrap();
    assert_eq!((failure.phase, failure.reason.as_str()), (AtomPhase::Error, "TemplateInvalid"));
    assert!(failure.message.contains("`ConfigMap default/b`"), "{}", failure.message);
    assert_eq!(life.data("a").await, Some(json!({"k": "1"})));

    // One that is never ready is undone: fields, objects and all.
    let never = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "b", "annotations": {"knoll.dev/ready-when": "self.data.k == '2'"}}, "data": {"k": "1"},
    });
    life.version("v2", &documents(&[config_map("a", "2"), never])).await;
    life.wants("v2").await;
    let status = life.ends(AtomPhase::Reverted).await;
    assert_eq!(status.failure.unwrap().phase, AtomPhase::Deadline);
    assert_eq!(life.data("a").await, Some(json!({"k": "1"})));
    assert_eq!(life.data("b").await, None);
    assert_eq!(life.data("gone").await, Some(json!({"k": "1"})));

    life.version("v3", &documents(&[config_map("a", "3")])).await;
    life.wants("v3").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!(life.data("a").await, Some(json!({"k": "3"})));
    assert_eq!(life.data("gone").await, None);

    life.delete().await;
    assert_eq!(life.data("a").await, None);
}
