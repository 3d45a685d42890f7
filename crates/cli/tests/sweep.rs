//! The sweep of what is stored, as the operator makes it each hour, on whole clusters.
#![allow(clippy::unwrap_used, reason = "tests")]

mod world;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use knoll_api::names::{self, content, label, secret_type};
use knoll_storage::{Storage, UNUSED_FOR, sweep_state_parts};
use kube::api::PostParams;
use serde_json::{Value, json};
use world::{Place, World};

/// A part of a state that no head names.
const PART: &str = "knoll-state-w-9-cut-0";

async fn create(place: &Place, secret: Value) {
    place.api::<Secret>().create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

/// Once, a Secret with a bad head ended the sweep for every namespace behind its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_head_ends_the_sweep_of_its_own_state_and_of_no_other() {
    let world = World::start().await;
    let mut places = Vec::new();
    // In the order of the sweep.
    for (name, kind, index, is_swept) in [
        ("a-garbled", secret_type::STATE, "no JSON", false),
        ("b-tenant", secret_type::STATE, "{}", true),
        ("c-garbled", "Opaque", "5", false),
        ("d-tenant", secret_type::STATE, "{}", true),
    ] {
        let place = world.place(name).await;
        let head =
            json!({"metadata": {"name": names::state_secret("w")}, "type": kind, "stringData": {"index": index}});
        let labels = json!({label::CONTENT: content::STATE_PART, label::WORKSPACE: "w"});
        create(&place, head).await;
        create(&place, json!({"metadata": {"name": PART, "labels": labels}, "type": secret_type::STATE})).await;
        places.push((place, is_swept));
    }
    let later = Timestamp::now() + UNUSED_FOR * 2;
    let swept = sweep_state_parts(&Storage::new(world.client.clone()), later).await.unwrap();
    for (place, is_swept) in places {
        let is_there = place.api::<Secret>().get_opt(PART).await.unwrap().is_some();
        assert_eq!(is_there, !is_swept, "{}: {swept:?}", place.namespace);
        let is_told = swept.bad_heads.iter().any(|head| head.namespace == place.namespace);
        assert_eq!(is_told, !is_swept, "{}: {swept:?}", place.namespace);
    }
}
