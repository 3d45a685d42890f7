//! What is reviewed is what runs: frozen jobs, and pods that are the Run's own.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster::{Operator, World, apply, approval, digest, ends, plans, waits_for};
use http::{Method, Request, Response};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount},
};
use knoll_api::{
    Approval, Run, Workspace,
    names::{condition, reason},
    run::{RunApproval, RunPhase, RunSpec},
};
use knoll_core::{conditions, frozen::PodTemplate, policy::Supplied};
use knoll_storage::{FreezeError, Storage};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use serde_json::json;

/// The reason and the message of the Run's Ready condition.
fn ready(run: &Run) -> (String, String) {
    let ready = conditions::find(&run.status.as_ref().unwrap().conditions, condition::READY).unwrap();
    (ready.reason.clone(), ready.message.clone())
}

/// Waits until the Run has another pod than the one of `uid`.
async fn gets_its_own_pod(world: &World, name: &str, uid: &str) -> Pod {
    let own = |run: &Run| run.status.as_ref().is_some_and(|status| status.pod_name.as_deref() == Some(name));
    let status = world.run_until("one", "it has a pod of its own", own).await.status.unwrap();
    assert_ne!(status.pod_uid.as_deref(), Some(uid), "the pod of a user is never the run's");
    let pod: Pod = world.api().get(name).await.unwrap();
    assert_eq!(pod.uid(), status.pod_uid);
    pod
}

/// A pod as a user makes it: with the Run as its owner, all of its labels and annotations, and a command of their own.
async fn foreign_pod(world: &World, run: &Run, name: &str) -> String {
    let owner = json!([{"apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "name": "one", "uid": run.uid(), "controller": true}]);
    let labels = json!({"knoll.dev/run": "one", "knoll.dev/workspace": "net", "app.kubernetes.io/managed-by": "knoll"});
    let pod = json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner},
        "spec": {"containers": [{"name": "runner", "image": "mine", "command": ["mine"]}]},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    world.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap().uid().unwrap()
}

#[tokio::test]
async fn a_pod_that_a_user_made_for_a_run_is_never_adopted() {
    let world = World::start().await;
    world.workspace("net").await;
    let run = world.run("one", RunSpec { approval: RunApproval::Manual, ..apply("net") }).await;
    // Before the first pod, and while the run waits for the second one.
    let first = foreign_pod(&world, &run, "one").await;
    let operator = world.operator();
    gets_its_own_pod(&world, "one", &first).await;
    world.report("one", &plans(digest('a'))).await;
    let reviewed = waits_for(&world.phase("one", RunPhase::Review).await);
    let second = foreign_pod(&world, &run, "one-apply").await;
    world.api::<Approval>().create(&PostParams::default(), &approval("yes", "one", reviewed)).await.unwrap();
    gets_its_own_pod(&world, "one-apply", &second).await;
    operator.stop().await;
}

#[tokio::test]
async fn the_apply_pod_is_made_from_what_was_planned_with() {
    let world = World::start().await;
    let operator = world.operator();
    let settings = json!({"image": "tool:1", "pod": {
        "env": [{"name": "PATH", "value": "/bin"}],
        "plan": {"serviceAccountName": "reader"},
        "envFrom": [{"configMapRef": {"name": "settings"}}],
    }});
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "reader"}})).unwrap();
    world.api::<ServiceAccount>().create(&PostParams::default(), &account).await.unwrap();
    let workspace = Workspace::new("net", serde_json::from_value(settings).unwrap());
    world.api::<Workspace>().create(&PostParams::default(), &workspace).await.unwrap();
    let map = json!({"metadata": {"name": "settings"}, "data": {"A": "1"}});
    let maps: Api<ConfigMap> = world.api();
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    for name in ["one", "two"] {
        world.run(name, RunSpec { approval: RunApproval::Manual, ..apply("net") }).await;
    }
    world.phase("one", RunPhase::Starting).await;
    world.report("one", &plans(digest('a'))).await;
    let waiting = world.phase("one", RunPhase::Review).await;
    let job = waiting.status.as_ref().unwrap().job.clone().unwrap();
    assert_eq!((job.image.as_str(), job.plan_service_account.as_deref()), ("tool:1", Some("reader")));
    assert_eq!(job.references, ["ConfigMap/settings"]);

    let patch = json!({"spec": {"image": "evil:1", "pod": {"env": [{"name": "PATH", "value": "/evil"}], "apply": {"serviceAccountName": "admin"}}}});
    world.api::<Workspace>().patch("net", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    world.api::<Approval>().create(&PostParams::default(), &approval("yes", "one", waits_for(&waiting))).await.unwrap();
    let spec = gets_its_own_pod(&world, "one-apply", "").await.spec.unwrap();
    let runner = spec.containers.iter().find(|container| container.name == "runner").unwrap();
    assert_eq!(runner.image.as_deref(), Some("tool:1"));
    assert_eq!(runner.env.as_ref().unwrap()[0].value.as_deref(), Some("/bin"));
    assert_eq!(spec.service_account_name.as_deref(), Some("default"));
    // A kubelet reads it some time after this, when a user could have changed the ConfigMap once more.
    let from = &runner.env_from.as_ref().unwrap()[0];
    assert_eq!(from.config_map_ref, None);
    let copy = world.api::<Secret>().get(&from.secret_ref.as_ref().unwrap().name).await.unwrap();
    assert_eq!(copy.name_any(), format!("{}-0", knoll_api::names::job_secret("one", &job.digest)));
    assert_eq!((copy.immutable, copy.owner_references()[0].uid.clone()), (Some(true), waiting.uid().unwrap()));
    assert_eq!(copy.data.unwrap(), [("A".to_owned(), k8s_openapi::ByteString(b"1".to_vec()))].into());
    world.report("one", &ends(0)).await;
    world.phase("one", RunPhase::Succeeded).await;

    // Whoever revokes what pods take by name stops the runs that wait with it.
    world.phase("two", RunPhase::Starting).await;
    world.report("two", &plans(digest('a'))).await;
    let waiting = world.phase("two", RunPhase::Review).await;
    let patch = Patch::Merge(json!({"data": {"A": "2"}}));
    maps.patch("settings", &PatchParams::default(), &patch).await.unwrap();
    world.api::<Approval>().create(&PostParams::default(), &approval("go", "two", waits_for(&waiting))).await.unwrap();
    let failed = world.phase("two", RunPhase::Failed).await;
    let (why, message) = ready(&failed);
    assert_eq!(why, reason::CHANGED_SINCE_PLANNED);
    assert!(message.contains("`ConfigMap/settings`") && message.contains("plan again"), "{message}");
    operator.stop().await;
}

/// What is not there cannot be frozen; somebody could create it later, with any content.
#[tokio::test]
async fn a_run_whose_pods_need_something_that_is_missing_is_not_reviewed() {
    let world = World::start().await;
    let operator = world.operator();
    for (name, optional) in [("one", false), ("two", true)] {
        let settings = json!({"image": "tool:1", "pod": {"env": [{"name": "A", "valueFrom":
            {"secretKeyRef": {"name": "missing", "key": "a", "optional": optional}}}]}});
        let workspace = Workspace::new(name, serde_json::from_value(settings).unwrap());
        world.api::<Workspace>().create(&PostParams::default(), &workspace).await.unwrap();
        world.run(name, RunSpec { approval: RunApproval::Manual, ..apply(name) }).await;
    }
    let (_, message) = ready(&world.phase("one", RunPhase::Failed).await);
    assert!(message.contains("`Secret/missing/a`") && message.contains("create it"), "{message}");
    // Where a pod starts without it, it never comes: the copy is empty.
    world.phase("two", RunPhase::Starting).await;
    let spec = world.api::<Pod>().get("two").await.unwrap().spec.unwrap();
    let runner = spec.containers.iter().find(|container| container.name == "runner").unwrap();
    let key = runner.env.as_ref().unwrap()[0].value_from.as_ref().unwrap().secret_key_ref.clone().unwrap();
    assert!(key.name.starts_with("knoll-job-two-") && key.optional == Some(true), "{key:?}");
    let copy = world.api::<Secret>().get(&key.name).await.unwrap();
    assert_eq!(copy.data.unwrap_or_default(), Default::default());
    operator.stop().await;
}

/// A frozen job is in a Secret, and only its digest is anywhere else.
#[tokio::test]
async fn a_frozen_job_that_somebody_replaced_is_refused() {
    let world = World::start().await;
    let operator = world.operator();
    world.workspace("net").await;
    world.run("one", RunSpec { approval: RunApproval::Manual, ..apply("net") }).await;
    world.phase("one", RunPhase::Starting).await;
    world.report("one", &plans(digest('a'))).await;
    let waiting = world.phase("one", RunPhase::Review).await;
    let secrets: Api<Secret> = world.api();
    let job = waiting.status.as_ref().unwrap().job.clone().unwrap();
    let name = knoll_api::names::job_secret("one", &job.digest);
    let mut secret = secrets.get(&name).await.unwrap();
    assert_eq!(secret.immutable, Some(true));
    assert_eq!(secret.owner_references()[0].uid, waiting.uid().unwrap());
    secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    secret.metadata.resource_version = None;
    secret.metadata.uid = None;
    secret.data.as_mut().unwrap().insert("content".to_owned(), k8s_openapi::ByteString(b"{}".to_vec()));
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    world.api::<Approval>().create(&PostParams::default(), &approval("yes", "one", waits_for(&waiting))).await.unwrap();
    let failed = world.phase("one", RunPhase::Failed).await;
    assert_eq!(ready(&failed).0, reason::CHANGED_SINCE_PLANNED);
    assert_eq!(world.pods().await.len(), 1, "nothing was started");
    operator.stop().await;
}

/// A Workspace whose pods take the ConfigMap `settings` by name.
async fn workspace_with_settings(world: &World) {
    let map = json!({"metadata": {"name": "settings"}, "data": {"A": "1"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    world.api().create(&PostParams::default(), &map).await.unwrap();
    let spec = json!({"pod": {"envFrom": [{"configMapRef": {"name": "settings"}}]}});
    let workspace = Workspace::new("net", serde_json::from_value(spec).unwrap());
    world.api().create(&PostParams::default(), &workspace).await.unwrap();
}

/// Only the names of copies were in the pod, so whoever could delete and create Secrets chose what the apply ran with.
#[tokio::test]
async fn a_copy_that_somebody_replaced_was_mounted_by_the_apply() {
    type Change = fn(&mut Secret);
    let changes: [(&str, Option<Change>); 6] = [
        ("deleted", None),
        ("made again as it was", Some(|_| {})),
        (
            "of other content",
            Some(|copy| drop(copy.data.as_mut().unwrap().insert("A".to_owned(), ByteString(b"2".to_vec())))),
        ),
        (
            "with one key more",
            Some(|copy| drop(copy.data.as_mut().unwrap().insert("B".to_owned(), ByteString::default()))),
        ),
        ("that can be changed", Some(|copy| copy.immutable = None)),
        ("of another Run", Some(|copy| copy.metadata.owner_references.as_mut().unwrap()[0].uid = "other".to_owned())),
    ];
    let world = World::start().await;
    let operator = world.operator();
    workspace_with_settings(&world).await;
    let secrets: Api<Secret> = world.api();
    for (number, (what, change)) in changes.into_iter().enumerate() {
        let name = format!("run{number}");
        world.run(&name, RunSpec { approval: RunApproval::Manual, ..apply("net") }).await;
        world.phase(&name, RunPhase::Starting).await;
        world.report(&name, &plans(digest('a'))).await;
        let waiting = world.phase(&name, RunPhase::Review).await;
        let job = waiting.status.as_ref().unwrap().job.clone().unwrap();
        let copy = format!("{}-0", knoll_api::names::job_secret(&name, &job.digest));
        let mut forged = secrets.get(&copy).await.unwrap();
        secrets.delete(&copy, &DeleteParams::default()).await.unwrap();
        if let Some(change) = change {
            (forged.metadata.resource_version, forged.metadata.uid) = (None, None);
            change(&mut forged);
            secrets.create(&PostParams::default(), &forged).await.unwrap();
        }
        let yes = approval(&format!("yes{number}"), &name, waits_for(&waiting));
        world.api::<Approval>().create(&PostParams::default(), &yes).await.unwrap();
        let (why, message) = ready(&world.phase(&name, RunPhase::Failed).await);
        assert_eq!(why, reason::CHANGED_SINCE_PLANNED, "{what}");
        let named = message.contains(&format!("`{copy}`")) && message.contains("`ConfigMap/settings`");
        assert!(named && message.contains("plan again"), "{what}: {message}");
        let apply = world.api::<Pod>().get_opt(&format!("{name}-apply")).await.unwrap();
        assert!(apply.is_none(), "a copy {what} was mounted");
    }
    operator.stop().await;
}

/// A client whose first creations of pods fail, as with a webhook that does not answer.
fn without_pods(client: Client, failures: usize) -> Client {
    let (left, namespace) = (Arc::new(AtomicUsize::new(failures)), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, left) = (client.clone(), left.clone());
        async move {
            let creates = request.method() == Method::POST && request.uri().path().ends_with("/pods");
            let take = |left: usize| left.checked_sub(1);
            if creates && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                    "reason": "InternalError", "message": "failed calling webhook"});
                let answer = Response::builder().status(500).body(Body::from(status.to_string().into_bytes()));
                return Ok(answer.unwrap());
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// Each attempt left a job and its copies.
#[tokio::test]
async fn a_pod_that_could_not_be_created_left_a_frozen_job_for_each_attempt() {
    let world = World::start().await;
    let operator = Operator::start(without_pods(world.client.clone(), 3));
    workspace_with_settings(&world).await;
    world.run("one", RunSpec { approval: RunApproval::Manual, ..apply("net") }).await;
    let run = world.phase("one", RunPhase::Starting).await;
    let job = knoll_api::names::job_secret("one", &run.status.unwrap().job.unwrap().digest);
    let mut names: Vec<String> = world.frozen().await.iter().map(ResourceExt::name_any).collect();
    names.sort_unstable();
    assert_eq!(names, [job.clone(), format!("{job}-0")]);
    operator.stop().await;
}

/// What was frozen first is not what the status names in the end.
#[tokio::test]
async fn a_job_that_is_frozen_again_takes_the_place_of_the_one_before() {
    let world = World::start().await;
    workspace_with_settings(&world).await;
    let run = world.run("one", apply("net")).await;
    let jobs = Storage::new(world.client.clone()).frozen_jobs();
    let freeze = async |workspace: &Workspace| {
        let settings = workspace.spec.pod.clone().unwrap();
        let template = PodTemplate { settings, ..PodTemplate::default() };
        jobs.freeze(&run, workspace, template, &Supplied::default()).await.unwrap().1
    };
    let mut workspace: Workspace = world.api().get("net").await.unwrap();
    let first = freeze(&workspace).await;
    assert_eq!(freeze(&workspace).await, first, "the same content has the same names");
    // A process that ends between two writes leaves a part of them.
    let names = |digest: &str| knoll_api::names::job_secret("one", digest);
    world.api::<Secret>().delete(&format!("{}-0", names(&first.digest)), &DeleteParams::default()).await.unwrap();
    let again = freeze(&workspace).await;
    assert_eq!(again.digest, first.digest);
    assert_ne!(again.copies, first.copies, "the copy is another one");
    jobs.get(&run, &again).await.unwrap();
    assert!(matches!(jobs.get(&run, &first).await, Err(FreezeError::Changed(_))));

    workspace.spec.version = Some("1.2.3".to_owned());
    let second = freeze(&workspace).await;
    assert_ne!(second, first);
    jobs.get(&run, &second).await.unwrap();
    let stored = world.frozen().await;
    assert!(
        stored.len() == 2 && stored.iter().all(|it| it.name_any().starts_with(&names(&second.digest))),
        "{stored:?}"
    );
}
