#![allow(clippy::unwrap_used, reason = "tests")]

use knoll_api::{approval::ApprovalSpec, run::RunSpec, workspace::WorkspaceSpec};
use knoll_core::{
    identity::Subject,
    pod::{Platform, Runner, ToolImage},
};
use serde_json::json;

use super::*;
use crate::{
    approval::Approvals,
    context::{Caches, ContextParts, Writers},
    driver::{Observation, Reconciler},
    events::Recorder,
    index::Target,
    metrics::Metrics,
    run::Runs,
    workspace::Workspaces,
};

/// How many Runs there are; each tenth has its Workspace to itself with nine others.
const RUNS: usize = 10_000;
const A_WORKSPACE: usize = 10;

/// A context whose client answers no request.
fn context() -> (Arc<Context>, Writers, Requests) {
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        Err::<http::Response<kube::client::Body>, std::io::Error>(std::io::Error::other(request.uri().to_string()))
    });
    let client = Client::new(service, "default");
    let image = || ToolImage { repository: "tool".to_owned(), version: "1".to_owned() };
    let platform = Platform {
        knoll_image: "knoll".to_owned(),
        runner: Runner::Container("knoll"),
        terraform: image(),
        tofu: image(),
        hub_url: "https://hub".to_owned(),
        hub_ca: String::new(),
        plugin_cache: None,
    };
    let (caches, writers) = Caches::new();
    let (ask, requests) = Triggers::new();
    let (events, _) = Recorder::start(client.clone(), None);
    let fetch = knoll_storage::FetchSettings { local: true, ..Default::default() };
    let parts = ContextParts { client, platform, fetch, caches, ask, events, metrics: Metrics::default() };
    (Arc::new(Context::new(parts)), writers, requests)
}

fn feed<K: Resource<DynamicType = ()> + Clone + std::fmt::Debug>(
    writer: Writer<K>,
    cache: &Cache<K>,
    on_change: fn(&Context, &Triggers, &K),
) -> Feed<K> {
    let config = watcher::Config::default();
    Feed { writer, cache: cache.clone(), config, decoding: Decoding::Guarded, strip: |_| {}, on_change }
}

fn stored<K: Resource>(mut object: K, uid: usize) -> K {
    object.meta_mut().namespace = Some("default".to_owned());
    object.meta_mut().uid = Some(uid.to_string());
    object
}

#[tokio::test]
async fn a_reconcile_touches_what_it_is_about_however_many_objects_there_are() {
    let (context, writers, _requests) = context();
    let caches = &context.caches;
    let mut runs = feed(writers.runs, &caches.runs, crate::on_run);
    let mut workspaces = feed(writers.workspaces, &caches.workspaces, crate::on_workspace);
    let mut approvals = feed(writers.approvals, &caches.approvals, crate::on_approval);
    for number in 0..RUNS {
        let workspace = format!("w{}", number / A_WORKSPACE);
        let run = Run::new(&format!("r{number}"), RunSpec { workspace: workspace.clone(), ..RunSpec::default() });
        runs.take(&context, Event::Apply(Ok(stored(run, number))));
        let spec = ApprovalSpec { run: format!("r{number}"), ..ApprovalSpec::default() };
        approvals.take(&context, Event::Apply(Ok(stored(Approval::new(&format!("a{number}"), spec), number))));
        if number % A_WORKSPACE == 0 {
            let workspace = Workspace::new(&workspace, WorkspaceSpec::default());
            workspaces.take(&context, Event::Apply(Ok(stored(workspace, number))));
        }
    }
    let touched = || caches.runs.touched() + caches.workspaces.touched() + caches.approvals.touched();

    let before = touched();
    let run = Subject::new(caches.runs.named("default", "r77").unwrap()).unwrap();
    assert!(matches!(Runs::observe(&context, &run).await, Ok(Observation::Complete(_))));
    assert_eq!(touched() - before, 3, "the run, its Workspace and its Approval");

    let before = touched();
    let workspace = Subject::new(caches.workspaces.named("default", "w7").unwrap()).unwrap();
    assert!(matches!(Workspaces::observe(&context, &workspace).await, Ok(Observation::Complete(_))));
    assert_eq!(touched() - before, 1 + A_WORKSPACE as u64, "the Workspace and its Runs");

    let before = touched();
    let approval = Subject::new(caches.approvals.named("default", "a77").unwrap()).unwrap();
    assert!(matches!(Approvals::observe(&context, &approval).await, Ok(Observation::Complete(_))));
    assert_eq!(touched() - before, 4, "the Approval, its Run, its Workspace and the Approvals of the Run");

    let before = touched();
    runs.take(&context, Event::Apply(Ok(Run::clone(&run))));
    workspaces.take(&context, Event::Apply(Ok(Workspace::clone(&workspace))));
    assert!(touched() - before < 20, "an event touches what depends on its object");
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_skipped_and_counted() {
    let (context, writers, _requests) = context();
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
