#![allow(clippy::unwrap_used, reason = "tests")]

mod scale;

use knoll_core::pod::{Platform, Runner, ToolImage};
use serde_json::json;

use super::*;
use crate::{
    context::{Caches, ContextParts, Writers},
    events::Recorder,
    index::Target,
    metrics::Metrics,
};

/// A client that answers no request.
fn silent() -> Client {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        Err::<http::Response<kube::client::Body>, std::io::Error>(std::io::Error::other(request.uri().to_string()))
    });
    Client::new(service, "default")
}

/// A context with this client.
pub(crate) fn context(client: Client) -> (Arc<Context>, Writers, Requests) {
    let image = || ToolImage { repository: "tool".to_owned(), version: "1".to_owned() };
    let platform = Platform {
        knoll_image: "knoll".to_owned(),
        runner: Runner::Container("knoll"),
        terraform: image(),
        tofu: image(),
        hub_url: "https://hub".to_owned(),
        hub_ca: String::new(),
        plugin_cache: None,
        pulls_images: true,
    };
    let (caches, writers) = Caches::new();
    let (ask, requests) = Triggers::new();
    let (events, _) = Recorder::start(client.clone(), None);
    let fetch = knoll_storage::FetchSettings { local: true, ..Default::default() };
    let metrics = Metrics::default();
    let rules = crate::RuleSettings::default();
    let parts = ContextParts { client, platform, fetch, rules, caches, ask, events, metrics, backups: None };
    (Arc::new(Context::new(parts)), writers, requests)
}

fn feed<K: Resource<DynamicType = ()> + Clone + std::fmt::Debug>(
    writer: Writer<K>,
    cache: &Cache<K>,
    on_change: fn(&Context, &Triggers, &ObjectId, &K),
) -> Feed<K> {
    let config = watcher::Config::default();
    Feed { writer, cache: cache.clone(), config, decoding: Decoding::Guarded, strip: |_| {}, on_change }
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_skipped_and_counted() {
    let (context, writers, _requests) = context(silent());
    let mut runs = feed(writers.runs, &context.caches.runs, crate::on_run);
    let decoded = |json: serde_json::Value| {
        let guard: DeserializeGuard<Run> = serde_json::from_value(json).unwrap();
        guard.0.map_err(|invalid| Box::new(invalid.metadata))
    };
    let object = |name: &str, operation: serde_json::Value| {
        decoded(json!({
            "apiVersion": "knoll.dev/v1alpha1",
            "kind": "Run",
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"workspace": "w", "operation": operation},
        }))
    };
    runs.take(&context, Event::Init);
    runs.take(&context, Event::InitApply(object("bad", json!(7))));
    runs.take(&context, Event::InitApply(object("good", json!("plan"))));
    runs.take(&context, Event::InitDone);
    assert!(context.caches.runs.named("default", "good").is_some());
    assert!(context.caches.runs.named("default", "bad").is_none());
    // It becomes readable, then unreadable again, and goes.
    runs.take(&context, Event::Apply(object("bad", json!("plan"))));
    assert!(context.caches.runs.named("default", "bad").is_some());
    runs.take(&context, Event::Apply(object("bad", json!(7))));
    runs.take(&context, Event::Delete(object("bad", json!(7))));
    assert!(context.caches.runs.named("default", "bad").is_none());
    assert_eq!(context.caches.runs.index().referrers(Target::Workspace, "default", "w"), ["good"]);
    let text = context.metrics.text();
    let line = r#"knoll_objects_skipped_total{kind="Run",reason="undecodable"} 2"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}
