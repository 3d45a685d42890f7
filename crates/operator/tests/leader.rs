//! Of two operators one works, and the other one follows.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::time::Duration;

use cluster::{DEADLINE, Operator, World, apply};
use k8s_openapi::api::coordination::v1::Lease;
use knoll_api::run::RunPhase;
use knoll_operator::lease;
use kube::runtime::wait::await_condition;

fn settings(identity: &str) -> Option<lease::LeaseSettings> {
    let duration = Duration::from_secs(3);
    Some(lease::LeaseSettings { duration, ..lease::LeaseSettings::new("default", "knoll", identity) })
}

async fn leads(world: &World, identity: &str) {
    let holds = |lease: Option<&Lease>| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        spec.is_some_and(|spec| spec.holder_identity.as_deref() == Some(identity))
    };
    let held = await_condition(world.api::<Lease>(), "knoll", holds);
    tokio::time::timeout(DEADLINE, held).await.unwrap().unwrap();
}

#[tokio::test]
async fn another_operator_follows_one_that_stops_or_dies() {
    let world = World::start().await;
    world.workspace("net").await;
    let first = Operator::with(world.client.clone(), settings("first"));
    leads(&world, "first").await;
    let second = Operator::with(world.client.clone(), settings("second"));
    world.run("one", apply("net")).await;
    world.phase("one", RunPhase::Starting).await;

    // One that stops lets go of the Lease.
    first.stop().await;
    leads(&world, "second").await;
    world.run("two", apply("net")).await;
    world.phase("two", RunPhase::Queued).await;

    // One that dies does not, and is waited for.
    second.kill().await;
    let third = Operator::with(world.client.clone(), settings("third"));
    leads(&world, "third").await;
    world.run("three", apply("net")).await;
    world.phase("three", RunPhase::Queued).await;
    third.stop().await;
}
