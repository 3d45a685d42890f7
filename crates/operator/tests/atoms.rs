//! Atoms on the embedded API server: what is written, what is refused, and what comes back.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use cluster::{
    DEADLINE, World,
    atoms::{Life, config_map, documents, hopeless, widgets},
};
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    events::v1::Event,
    rbac::v1::ClusterRoleBinding,
};
use knoll_api::{Atom, AtomVersion, atom::AtomPhase, names::reason};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

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

    // Its versions go with it, and one that was never of its history stays.
    let foreign = AtomVersion::new("foreign", serde_json::from_value(json!({"template": "{}"})).unwrap());
    world.api().create(&PostParams::default(), &foreign).await.unwrap();
    life.delete().await;
    assert_eq!(life.data("a").await, None);
    let left = world.api::<AtomVersion>().list(&ListParams::default()).await.unwrap();
    assert_eq!(left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["foreign"]);
}

#[tokio::test]
async fn each_rollback_has_an_event_of_its_own_and_leaves_its_mark() {
    let world = World::start().await;
    let _operator = world.operator();
    let life = Life::new(&world, "web");
    life.version("v1", &documents(&[config_map("a", "1")])).await;
    life.wants("v1").await;
    life.ends(AtomPhase::Running).await;
    for version in ["v2", "v3"] {
        life.version(version, &documents(&[hopeless("a")])).await;
        life.wants(version).await;
        life.ends(AtomPhase::Reverted).await;
        let marked = |version: Option<&AtomVersion>| {
            version.and_then(|version| version.status.as_ref()?.reverted_at.as_ref()).is_some()
        };
        let marked = await_condition(world.api::<AtomVersion>(), version, marked);
        tokio::time::timeout(DEADLINE, marked).await.unwrap().unwrap();
    }
    life.version("v4", &documents(&[config_map("a", "4")])).await;
    life.wants("v4").await;
    life.ends(AtomPhase::Running).await;

    let rolled_back = |events: &[Event]| -> Vec<String> {
        let of_reason = events.iter().filter(|event| event.reason.as_deref() == Some(reason::ROLLED_BACK));
        of_reason.filter_map(|event| event.note.clone()).collect()
    };
    let notes = tokio::time::timeout(DEADLINE, async {
        loop {
            let events = world.api::<Event>().list(&ListParams::default()).await.unwrap().items;
            // The last event of the Atom: those before it are there as well.
            if events.iter().any(|event| event.note.as_deref().is_some_and(|note| note.contains("`v4` is running"))) {
                return rolled_back(&events);
            }
            tokio::task::yield_now().await;
        }
    });
    let mut notes = notes.await.unwrap();
    notes.sort();
    assert_eq!(notes.len(), 2, "{notes:?}");
    for (note, version) in notes.iter().zip(["v2", "v3"]) {
        assert!(note.starts_with(&format!("Version `{version}` was rolled back to version `v1`.")), "{note}");
    }
}

#[tokio::test]
async fn a_first_version_that_fails_leaves_nothing_behind() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec = json!({"deadline": "30s", "rollbackDeadline": "20s", "serviceAccountName": "deployer"});
    life.account("deployer").await;
    // A namespace, a kind, an object of that kind and one that is hopeless.
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        widgets("1"),
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"}, "spec": {"size": 1}}),
        hopeless("h"),
    ];
    life.version("v1", &documents(&objects)).await;
    life.wants("v1").await;
    let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "ObjectFailed", "{}", failure.message);
    assert_eq!(life.data("h").await, None);
    assert!(!life.is_there("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com").await);
    assert!(!life.is_there("/api/v1/namespaces/shop").await);

    // Without the hopeless one all of it comes, and an object of the kind that the schema refuses changes nothing.
    life.version("v2", &documents(&objects[..3])).await;
    life.wants("v2").await;
    life.ends(AtomPhase::Running).await;
    let widget = "/apis/example.com/v1/namespaces/shop/widgets/w";
    assert_eq!(life.at(widget).await.unwrap()["spec"], json!({"size": 1}));
    let mut bad = objects[..3].to_vec();
    bad[2]["spec"]["size"] = json!("large");
    bad.push(config_map("new", "1"));
    life.version("v3", &documents(&bad)).await;
    life.wants("v3").await;
    let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "TemplateInvalid");
    assert!(failure.message.contains("Nothing was written."), "{}", failure.message);
    assert_eq!(life.data("new").await, None);
    // A kind and its objects can change together.
    let mut wider = objects[..3].to_vec();
    wider[1] = widgets("2");
    wider[2]["spec"] = json!({"size": 2, "colour": "red"});
    life.version("v4", &documents(&wider)).await;
    life.wants("v4").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!(life.at(widget).await.unwrap()["spec"], json!({"size": 2, "colour": "red"}));
    life.delete().await;
    assert!(!life.is_there("/api/v1/namespaces/shop").await);
}

#[tokio::test]
async fn what_others_own_is_left_alone_or_named() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec = json!({"deadline": "30s", "rollbackDeadline": "20s"});
    life.version("v1", &documents(&[config_map("a", "1")])).await;
    life.wants("v1").await;
    life.ends(AtomPhase::Running).await;
    life.somebody("autoscaler", "a", json!({"replicas": "5"})).await;

    // A field that the template does not have stays, through an update and through a rollback.
    life.version("v2", &documents(&[config_map("a", "2"), hopeless("h")])).await;
    life.wants("v2").await;
    life.ends(AtomPhase::Reverted).await;
    assert_eq!(life.data("a").await, Some(json!({"k": "1", "replicas": "5"})));

    // One that it has is a conflict that names object, field and manager.
    let mut both = config_map("a", "3");
    both["data"]["replicas"] = "1".into();
    life.version("v3", &documents(&[both.clone(), config_map("new", "1")])).await;
    life.wants("v3").await;
    let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "FieldConflict");
    for part in ["`ConfigMap default/a`", "`.data.replicas`", "`autoscaler`", "spec.force"] {
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
    assert_eq!(life.data("new").await, None);

    // With force it is taken over, and a rollback gives it back to its owner.
    life.spec["force"] = json!(true);
    life.version("v4", &documents(&[both.clone(), hopeless("h")])).await;
    life.wants("v4").await;
    life.ends(AtomPhase::Reverted).await;
    assert_eq!(life.data("a").await, Some(json!({"k": "1", "replicas": "5"})));
    let managers =
        life.at("/api/v1/namespaces/default/configmaps/a").await.unwrap()["metadata"]["managedFields"].clone();
    let owner = managers.as_array().unwrap().iter().find(|entry| entry["manager"] == "autoscaler").unwrap();
    assert_eq!(owner["fieldsV1"]["f:data"], json!({"f:replicas": {}}));
    life.version("v5", &documents(&[both])).await;
    life.wants("v5").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!(life.data("a").await, Some(json!({"k": "3", "replicas": "1"})));

    // An object of another Atom is refused, with its owner.
    let other = Life::new(&world, "other");
    other.version("o1", &documents(&[config_map("a", "9")])).await;
    other.wants("o1").await;
    let failure = other.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "ObjectConflict");
    assert!(failure.message.contains("belongs to the Atom `default/web`"), "{}", failure.message);
}

/// A ConfigMap that takes over one that exists.
fn adopting(name: &str, value: &str) -> Value {
    let mut map = config_map(name, value);
    map["metadata"]["annotations"] = json!({"knoll.dev/adopt": "true"});
    map
}

#[tokio::test]
async fn an_object_that_was_there_before_is_neither_overwritten_nor_deleted_with_the_atom() {
    let world = World::start().await;
    let _operator = world.operator();
    let life = Life::new(&world, "web");
    let theirs = async || life.at("/api/v1/namespaces/default/configmaps/theirs").await.unwrap();
    life.somebody("person", "theirs", json!({"x": "1"})).await;
    let before = theirs().await;

    life.version("v1", &documents(&[config_map("theirs", "1"), config_map("new", "1")])).await;
    life.wants("v1").await;
    let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "ObjectConflict");
    for part in ["`ConfigMap default/theirs` exists and is not the Atom's own", "knoll.dev/adopt: \"true\""] {
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
    assert_eq!((theirs().await, life.data("new").await), (before.clone(), None));

    // Adopted by an update that fails, it is given back.
    life.version("v2", &documents(&[adopting("theirs", "1"), hopeless("h")])).await;
    life.wants("v2").await;
    life.ends(AtomPhase::Reverted).await;
    let back = theirs().await;
    for field in ["/data", "/metadata/labels", "/metadata/annotations", "/metadata/uid"] {
        assert_eq!(back.pointer(field), before.pointer(field), "{field}");
    }

    // Adopted for good, it stays without its marks when a version does not have it any more.
    life.version("v3", &documents(&[adopting("theirs", "1"), config_map("own", "1")])).await;
    life.wants("v3").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!(life.data("theirs").await, Some(json!({"x": "1", "k": "1"})));
    life.version("v4", &documents(&[config_map("own", "2")])).await;
    life.wants("v4").await;
    life.ends(AtomPhase::Running).await;
    let released = theirs().await;
    assert_eq!(released["data"], json!({"x": "1", "k": "1"}));
    for field in ["/metadata/labels", "/metadata/annotations"] {
        assert_eq!(released.pointer(field).filter(|marks| **marks != json!({})), None, "{field}");
    }

    // Adopted once more, it stays when the Atom is deleted.
    life.wants("v3").await;
    life.ends(AtomPhase::Running).await;
    life.delete().await;
    assert_eq!(life.data("own").await, None);
    let left = theirs().await;
    assert_eq!((&left["data"], &left["metadata"]["uid"]), (&json!({"x": "1", "k": "1"}), &before["metadata"]["uid"]));
}

#[tokio::test]
async fn an_adopted_object_survives_its_atom() {
    let world = World::start().await;
    let _operator = world.operator();
    let life = Life::new(&world, "web");
    life.somebody("person", "theirs", json!({"x": "1"})).await;
    life.version("v1", &documents(&[adopting("theirs", "1"), config_map("own", "1")])).await;
    life.wants("v1").await;
    life.ends(AtomPhase::Running).await;
    // A later version need not say it again, and an update that fails leaves it adopted.
    life.version("v2", &documents(&[config_map("theirs", "2"), config_map("own", "1")])).await;
    life.wants("v2").await;
    life.ends(AtomPhase::Running).await;
    life.version("v3", &documents(&[hopeless("h")])).await;
    life.wants("v3").await;
    life.ends(AtomPhase::Reverted).await;
    assert_eq!(life.data("theirs").await, Some(json!({"x": "1", "k": "2"})));
    life.delete().await;
    assert_eq!((life.data("theirs").await, life.data("own").await), (Some(json!({"x": "1", "k": "2"})), None));
    let left = life.at("/api/v1/namespaces/default/configmaps/theirs").await.unwrap();
    assert_eq!(left["metadata"].get("labels").filter(|marks| **marks != json!({})), None);
}

#[tokio::test]
async fn an_atom_without_an_account_has_no_rights_but_those_of_its_namespace() {
    let cluster = World::start().await;
    let world = cluster.beside("shop").await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec = json!({"deadline": "30s", "rollbackDeadline": "20s"});
    life.version("v1", &documents(&[config_map("a", "1")])).await;
    life.wants("v1").await;
    let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "Forbidden", "{}", failure.message);
    let command = "`kubectl create rolebinding shop-default-edit --clusterrole=edit --serviceaccount=shop:default --namespace=shop`";
    for part in ["User \"system:serviceaccount:shop:default\" cannot", command] {
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
    // An input that the account may not read is not read for it.
    life.secret("password", json!({"k": "hunter2!"})).await;
    life.spec["inputs"] = json!([{"name": "password", "secretKeyRef": {"name": "password", "key": "k"}}]);
    life.version("v2", &documents(&[config_map("a", "${input.password}")])).await;
    life.wants("v2").await;
    let refused = |atom: &Atom| {
        let conditions = atom.status.iter().flat_map(|status| &status.conditions);
        let mut stalled = conditions.filter(|told| told.type_ == "Stalled" && told.status == "True");
        stalled.any(|told| told.reason == "Forbidden" && told.message.contains("cannot get resource \"secrets\""))
    };
    life.until("is refused", refused).await;
    // With the command, it goes on by itself.
    world.grant("default", "edit").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!(life.data("a").await, Some(json!({"k": "hunter2!"})));
}

#[tokio::test]
async fn no_message_of_the_api_has_a_value_of_a_secret() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec["inputs"] = json!([{"name": "password", "secretKeyRef": {"name": "password", "key": "k"}}]);
    life.secret("password", json!({"k": "hunter2 & \"more\""})).await;
    let mut labelled = config_map("a", "1");
    labelled["metadata"]["labels"] = json!({"token": "${input.password}"});
    life.version("v1", &documents(&[labelled])).await;
    life.wants("v1").await;
    let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "TemplateInvalid");
    for part in ["`ConfigMap default/a`", "metadata.labels", "not shown", "knoll atom diff"] {
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
    // A name, and an expression that is shown, are refused before anything is asked.
    for (version, object) in [
        ("v2", config_map("a-${input.password}", "1")),
        ("v3", {
            let mut map = config_map("a", "1");
            map["metadata"]["annotations"] = json!({"knoll.dev/ready-when": "self.data.k == '${input.password}'"});
            map
        }),
    ] {
        life.version(version, &documents(&[object])).await;
        life.wants(version).await;
        let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
        assert!(failure.message.contains("uses the secret input `password`"), "{}", failure.message);
    }
    let atom = serde_json::to_string(&life.atom().await).unwrap();
    let events = life.at("/apis/events.k8s.io/v1/namespaces/default/events").await.unwrap().to_string();
    for (what, text) in [("the Atom", atom), ("events", events)] {
        assert!(!text.contains("hunter"), "{what}: {text}");
    }
}

#[tokio::test]
async fn an_endless_expression_fails_its_own_atom_and_holds_no_other() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec = json!({"deadline": "60s", "rollbackDeadline": "20s"});
    let opened: String = (0..9).map(|level| format!("[0,1,2,3,4,5,6,7,8,9].all(v{level},")).collect();
    let mut endless = config_map("a", "1");
    let expression = format!("{opened}true{}", ")".repeat(9));
    endless["metadata"]["annotations"] = json!({"knoll.dev/ready-when": expression});
    life.version("v1", &documents(&[endless])).await;
    life.wants("v1").await;
    let other = Life::new(&world, "other");
    other.version("o1", &documents(&[config_map("b", "1")])).await;
    other.wants("o1").await;
    other.ends(AtomPhase::Running).await;
    let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "ObjectFailed");
    assert!(failure.message.contains("too expensive"), "{}", failure.message);
}

#[tokio::test]
async fn a_cancelled_rollback_is_a_failure_and_the_next_version_starts() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec = json!({"deadline": "30s", "rollbackDeadline": "10m"});
    life.version("v1", &documents(&[config_map("a", "1")])).await;
    life.wants("v1").await;
    life.ends(AtomPhase::Running).await;
    let mut held = config_map("held", "1");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    life.version("v2", &documents(&[config_map("a", "2"), held, hopeless("h")])).await;
    life.wants("v2").await;
    let rolls_back = |atom: &Atom| atom.status.as_ref().is_some_and(|status| status.phase == AtomPhase::Rollback);
    life.until("rolls back", rolls_back).await;
    life.spec["cancel"] = json!({"version": "v2", "rollback": true});
    life.wants("v2").await;
    let status = life.ends(AtomPhase::Failure).await;
    let said = status.conditions.iter().find(|said| said.type_ == "Stalled").unwrap();
    assert!(said.message.starts_with("The rollback of version `v2` was cancelled."), "{}", said.message);
    // Nobody takes the request back: it is about `v2`.
    life.version("v3", &documents(&[config_map("a", "3")])).await;
    life.wants("v3").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!((life.data("a").await, life.data("h").await), (Some(json!({"k": "3"})), None));
    life.release("held").await;
}

#[tokio::test]
async fn an_update_can_be_cancelled_and_superseded_and_is_never_gone_back_to() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec = json!({"deadline": "60s", "rollbackDeadline": "20s", "historyLimit": 1});
    let waiting = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "w", "annotations": {"knoll.dev/ready-when": "self.data.k == '9'"}}, "data": {"k": "1"},
    });
    life.version("v1", &documents(&[config_map("a", "1")])).await;
    life.wants("v1").await;
    life.ends(AtomPhase::Running).await;
    life.version("v2", &documents(&[config_map("a", "2"), waiting.clone()])).await;
    life.wants("v2").await;
    let waits = |atom: &Atom| {
        atom.status.as_ref().is_some_and(|status| status.objects.iter().any(|object| object.message.is_some()))
    };
    let atom = life.until("waits", waits).await;
    let told = atom.status.unwrap().objects.into_iter().find_map(|object| object.message).unwrap();
    assert_eq!(told, "`self.data.k == '9'` is not true yet.");

    // A newer version takes its place at once. When that fails, what was last proven comes back.
    life.version("v3", &documents(&[config_map("a", "3"), config_map("b", "3"), hopeless("h")])).await;
    life.wants("v3").await;
    let status = life.ends(AtomPhase::Reverted).await;
    assert_eq!((status.last_good_version.as_deref(), status.attempts), (Some("v1"), 3));
    assert_eq!(life.data("a").await, Some(json!({"k": "1"})));
    for name in ["w", "b", "h"] {
        assert_eq!(life.data(name).await, None, "{name}");
    }

    life.version("v4", &documents(&[config_map("a", "4"), waiting])).await;
    life.wants("v4").await;
    life.until("waits", waits).await;
    life.spec["cancel"] = json!({"version": "v4"});
    life.wants("v4").await;
    let status = life.ends(AtomPhase::Reverted).await;
    assert_eq!(status.failure.unwrap().phase, AtomPhase::Cancelled);
    assert_eq!(life.data("a").await, Some(json!({"k": "1"})));

    // A cancelled version is not begun again, and the next one is; of the old versions one is kept.
    let again = json!({"metadata": {"annotations": {"knoll.dev/reconcile": "again"}}});
    world.api::<Atom>().patch("web", &PatchParams::default(), &Patch::Merge(again)).await.unwrap();
    let stuck = |atom: &knoll_api::Atom| {
        let status = atom.status.as_ref();
        status.is_some_and(|status| status.conditions.iter().any(|said| said.message.contains("spec.cancel")))
    };
    life.until("says why it waits", stuck).await;
    life.version("v5", &documents(&[config_map("a", "5")])).await;
    life.wants("v5").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!(life.data("a").await, Some(json!({"k": "5"})));
    assert_eq!(life.versions().await, ["v4", "v5"]);
}

#[tokio::test]
async fn inputs_keep_their_types_and_new_ones_give_an_update() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.account("deployer").await;
    life.spec = json!({
        "deadline": "30s", "serviceAccountName": "deployer",
        "inputs": [
            {"name": "size", "configMapKeyRef": {"name": "settings", "key": "k"}, "type": "Number"},
            {"name": "token", "secretKeyRef": {"name": "secret", "key": "token"}},
            {"name": "colour", "value": "red"},
        ],
    });
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": "${input.size}", "colour": "${input.colour}-${input.token}"},
    });
    life.version("v1", &documents(&[widgets("2"), widget])).await;
    life.wants("v1").await;
    let waits = |atom: &Atom| {
        let status = atom.status.as_ref();
        status.is_some_and(|status| status.conditions.iter().any(|said| said.reason == "InputsFailed"))
    };
    let atom = life.until("says what is missing", waits).await;
    let message = atom.status.unwrap().conditions[0].message.clone();
    assert_eq!(
        message,
        "The ConfigMap `settings` that the input `size` refers to does not exist; create it, or correct the reference."
    );
    life.somebody("person", "settings", json!({"k": "3"})).await;
    life.secret("secret", json!({"token": "a: b\n"})).await;
    life.ends(AtomPhase::Running).await;
    let path = "/apis/example.com/v1/namespaces/default/widgets/w";
    assert_eq!(life.at(path).await.unwrap()["spec"], json!({"size": 3, "colour": "red-a: b\n"}));
    life.somebody("person", "settings", json!({"k": "4"})).await;
    let second = |atom: &knoll_api::Atom| {
        let status = atom.status.as_ref();
        status.is_some_and(|status| status.attempts == 2 && status.phase == AtomPhase::Running)
    };
    life.until("runs with the new input", second).await;
    assert_eq!(life.at(path).await.unwrap()["spec"]["size"], json!(4));
    let atom = serde_json::to_string(&life.atom().await).unwrap();
    assert!(!atom.contains("a: b"), "no value of a Secret is in the status: {atom}");
}

#[tokio::test]
async fn a_rollback_that_cannot_be_done_names_what_is_not_back() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec = json!({"deadline": "30s", "rollbackDeadline": "2s"});
    life.version("v1", &documents(&[config_map("a", "1")])).await;
    life.wants("v1").await;
    life.ends(AtomPhase::Running).await;
    let mut held = config_map("held", "1");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    life.version("v2", &documents(&[config_map("a", "2"), held.clone(), hopeless("h")])).await;
    life.wants("v2").await;
    let status = life.ends(AtomPhase::Failure).await;
    let said = status.conditions.iter().find(|said| said.type_ == "Stalled").unwrap();
    assert!(
        said.message.contains("Not restored: `ConfigMap default/held`: It is still being deleted."),
        "{}",
        said.message
    );
    assert!(!said.message.contains("`ConfigMap default/a`"), "{}", said.message);
    assert_eq!(life.data("a").await, Some(json!({"k": "1"})));

    // Once it can go, the next version starts from what was last proven.
    life.release("held").await;
    life.version("v3", &documents(&[config_map("a", "3")])).await;
    life.wants("v3").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!(
        (life.data("a").await, life.data("held").await, life.data("h").await),
        (Some(json!({"k": "3"})), None, None)
    );

    // What cannot be changed is refused before anything is written, unless the object says that it may be replaced.
    let fixed = |value: &str, replace: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"k": value},
            "metadata": {"name": "fixed", "annotations": {"knoll.dev/replace": replace}},
        })
    };
    life.version("v4", &documents(&[config_map("a", "4"), fixed("1", "false")])).await;
    life.wants("v4").await;
    life.ends(AtomPhase::Running).await;
    life.version("v5", &documents(&[config_map("a", "5"), fixed("2", "false")])).await;
    life.wants("v5").await;
    let failure = life.ends(AtomPhase::Reverted).await.failure.unwrap();
    assert_eq!(failure.reason, "Immutable");
    assert!(failure.message.contains("knoll.dev/replace: \"true\""), "{}", failure.message);
    assert_eq!(life.data("a").await, Some(json!({"k": "4"})));
    life.version("v6", &documents(&[config_map("a", "6"), fixed("2", "true")])).await;
    life.wants("v6").await;
    life.ends(AtomPhase::Running).await;
    assert_eq!(life.data("fixed").await, Some(json!({"k": "2"})));
}

#[tokio::test]
async fn a_journal_of_any_size_brings_everything_back() {
    let world = World::start().await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.spec = json!({"deadline": "50s", "rollbackDeadline": "50s", "force": true});
    // Nothing that can be packed: three objects of half a megabyte each.
    let mut number = 1_u64;
    let mut noise = || {
        let digits = (0..32 << 10).map(|_| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:016x}", number ^ (number >> 29))
        });
        digits.collect::<String>()
    };
    let before: Vec<(String, Value)> =
        (0..3).map(|map| (format!("m{map}"), json!({"noise": noise(), "k": "1"}))).collect();
    for (name, data) in &before {
        life.somebody("kubectl", name, data.clone()).await;
    }
    let never = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "b", "annotations": {"knoll.dev/ready-when": "self.data.k == '2'"}}, "data": {"k": "1"},
    });
    let mut objects: Vec<Value> = before.iter().map(|(name, _)| adopting(name, "2")).collect();
    objects.push(never);
    life.version("v1", &documents(&objects)).await;
    life.wants("v1").await;
    let waits = |atom: &Atom| {
        atom.status.as_ref().is_some_and(|status| status.objects.iter().any(|object| object.message.is_some()))
    };
    life.until("waits", waits).await;
    let changed = json!({"noise": before[2].1["noise"], "k": "2"});
    assert_eq!(life.data("m2").await, Some(changed));
    let journal = ListParams::default().labels("knoll.dev/content=journal");
    let parts = world.api::<Secret>().list_metadata(&journal).await.unwrap().items;
    assert!(parts.len() > 2, "it takes more than one Secret: {}", parts.len());
    life.spec["cancel"] = json!({"version": "v1"});
    life.wants("v1").await;
    life.ends(AtomPhase::Reverted).await;
    for (name, data) in &before {
        assert_eq!(life.data(name).await.as_ref(), Some(data), "{name} is as it was");
    }
    assert!(world.api::<Secret>().list_metadata(&journal).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn an_atom_that_has_lost_its_rights_goes_with_its_namespace() {
    let cluster = World::start().await;
    let world = cluster.beside("shop").await;
    let _operator = world.operator();
    let mut life = Life::new(&world, "web");
    life.account("deployer").await;
    life.spec["serviceAccountName"] = "deployer".into();
    life.version("v1", &documents(&[config_map("a", "1"), config_map("b", "1")])).await;
    life.wants("v1").await;
    life.ends(AtomPhase::Running).await;

    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.delete("deployer", &DeleteParams::default()).await.unwrap();
    world.api::<Atom>().delete("web", &DeleteParams::default()).await.unwrap();
    let refused = |atom: &Atom| {
        let conditions = atom.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.message.contains("cannot get resource \"configmaps\""))
    };
    let atom = life.until("refused", refused).await;
    let told = atom.status.unwrap().conditions;
    assert!(told.iter().all(|condition| !condition.message.contains("Status {")), "{told:#?}");
    assert!(life.data("a").await.is_some(), "nothing is let go while it could still be deleted");

    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    let gone = await_condition(namespaces, "shop", |namespace: Option<&Namespace>| namespace.is_none());
    tokio::time::timeout(DEADLINE, gone).await.unwrap().unwrap();
}
