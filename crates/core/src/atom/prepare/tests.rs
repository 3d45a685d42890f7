use std::collections::HashMap;

use knoll_api::{
    atom::AtomObject,
    names::{annotation, label},
};

use super::{checks::DryRunVerdict, *};
use crate::{
    atom::{
        ActionError,
        hidden::HiddenValues,
        journal::{Entry, Journal, WriteMode},
    },
    identity::ObjectId,
};

fn owner(name: &str) -> Owner {
    Owner::of(&ObjectId { namespace: "default".to_owned(), name: name.to_owned(), uid: format!("uid of {name}") })
}

fn scopes() -> Scopes {
    [
        (("v1", "ConfigMap"), Scope::Namespaced),
        (("v1", "Secret"), Scope::Namespaced),
        (("v1", "Namespace"), Scope::Cluster),
        (("apiextensions.k8s.io/v1", "CustomResourceDefinition"), Scope::Cluster),
        (("apps/v1", "Deployment"), Scope::Namespaced),
        (("apps/v1beta1", "Deployment"), Scope::Namespaced),
    ]
    .map(|((version, kind), scope)| ((version.to_owned(), kind.to_owned()), scope))
    .into()
}

fn object(api_version: &str, kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn map(name: &str) -> Value {
    object("v1", "ConfigMap", name, None)
}

fn definition(scope: &str) -> Value {
    let mut definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", None);
    definition["spec"] = json!({
        "group": "example.com", "scope": scope, "names": {"kind": "Widget"}, "versions": [{"name": "v1"}],
    });
    definition
}

fn planned(name: &str) -> PlannedObject {
    let mut object = object("v1", "ConfigMap", name, Some("default"));
    owner("web").mark(&mut object);
    PlannedObject { key: template::key(&object), object, defined_by: None, has_new_namespace: false }
}

#[test]
fn an_atom_writes_where_it_may_and_what_the_cluster_knows() {
    let widget = |namespace| object("example.com/v1", "Widget", "w", namespace);
    let namespace = || object("v1", "Namespace", "shop", None);
    // The objects, and their namespaces or the beginning of the refusal.
    type Row = (Vec<Value>, Result<Vec<Option<&'static str>>, &'static str>);
    let rows: Vec<Row> = vec![
        (vec![map("a")], Ok(vec![Some("default")])),
        (vec![object("v1", "ConfigMap", "a", Some("default"))], Ok(vec![Some("default")])),
        (vec![namespace()], Ok(vec![None])),
        (vec![object("v1", "ConfigMap", "a", Some("shop"))], Ok(vec![Some("shop")])),
        (vec![object("v1", "Namespace", "shop", Some("ignored"))], Ok(vec![None])),
        (vec![widget(None)], Err("`Widget w`: the cluster has no kind `Widget` in `example.com/v1`.")),
        (
            vec![object("batch/v1", "CronJob", "w", None)],
            Err("`CronJob w`: the cluster has no kind `CronJob` in `batch/v1`. `kubectl api-resources` lists"),
        ),
        (vec![definition("Namespaced"), widget(None)], Ok(vec![None, Some("default")])),
        (vec![definition("Cluster"), widget(None)], Ok(vec![None, None])),
        (
            vec![map("a"), object("v1", "ConfigMap", "a", Some("default"))],
            Err("The template has `ConfigMap default/a` twice."),
        ),
        (
            vec![object("apps/v1", "Deployment", "a", None), object("apps/v1beta1", "Deployment", "a", None)],
            Err("The template has `Deployment default/a` twice."),
        ),
        (vec![map("../a")], Err("`ConfigMap`: metadata.name \"../a\" cannot be the name")),
        (
            vec![object("v1", "ConfigMap", "a", Some("a/b"))],
            Err("`ConfigMap`: metadata.namespace \"a/b\" cannot be the name"),
        ),
    ];
    for (objects, expect) in rows {
        let text = format!("{objects:?}");
        let found = plan(&owner("web"), objects, &scopes());
        match (found, expect) {
            (Ok(planned), Ok(namespaces)) => {
                let found: Vec<Option<&str>> = planned.iter().map(|planned| planned.key.namespace.as_deref()).collect();
                assert_eq!(found, namespaces, "{text}");
                for PlannedObject { key, object, .. } in planned {
                    assert_eq!(template::key(&object), key, "{text}");
                    assert!(owner("web").owns(&object), "{text}");
                }
            }
            (Err(cause), Err(beginning)) => assert!(cause.message.starts_with(beginning), "{text}: {}", cause.message),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }
}

#[test]
fn objects_know_whether_their_kind_or_namespace_comes_with_them() {
    let objects = vec![
        object("v1", "Namespace", "shop", None),
        definition("Namespaced"),
        object("example.com/v1", "Widget", "w", Some("shop")),
        map("a"),
    ];
    let planned = plan(&owner("web"), objects, &scopes()).unwrap_or_default();
    let found: Vec<(Option<&str>, bool)> =
        planned.iter().map(|planned| (planned.defined_by.as_deref(), planned.has_new_namespace)).collect();
    assert_eq!(found, [(None, false), (None, false), (Some("widgets.example.com"), true), (None, false)]);
}

#[test]
fn the_texts_of_a_secret_are_stored_as_data() {
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}, "data": {"c": "ZA=="}});
    move_string_data(&template::key(&secret.clone()), &mut secret);
    assert_eq!(secret["data"], json!({"a": "Yg==", "c": "ZA=="}));
    assert_eq!(secret.get("stringData"), None);
}

#[test]
fn too_many_objects_are_refused() {
    let item = |number: usize| format!("- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a{number}}}}}\n");
    let text =
        |count: usize| format!("apiVersion: v1\nkind: List\nitems:\n{}", (0..count).map(item).collect::<String>());
    assert_eq!(render(&text(3), &InputValues::new()).map(|objects| objects.len()), Ok(3));
    let refused = render(&text(MAX_OBJECTS + 1), &InputValues::new()).map_err(|cause| cause.message);
    assert_eq!(refused, Err("The template has 4001 objects. An Atom has at most 4000.".to_owned()));
}

#[test]
fn objects_of_other_owners_are_refused_and_those_being_deleted_are_waited_for() {
    let (owner, other) = (owner("web"), owner("other"));
    let planned = vec![planned("a")];
    let mut theirs = planned[0].object.clone();
    other.mark(&mut theirs);
    let mut knolls = object("v1", "ConfigMap", "a", Some("default"));
    knolls["metadata"]["labels"] = json!({label::MANAGED_BY: label::MANAGED_BY_KNOLL});
    let mut deleting = planned[0].object.clone();
    deleting["metadata"]["deletionTimestamp"] = "now".into();
    let rows = [
        ("nothing there", None, Ok(())),
        ("its own", Some(planned[0].object.clone()), Ok(())),
        ("nobody's", Some(object("v1", "ConfigMap", "a", Some("default"))), Err(reason::OBJECT_CONFLICT)),
        ("another Atom's", Some(theirs), Err(reason::OBJECT_CONFLICT)),
        ("Knoll's", Some(knolls), Err(reason::OBJECT_CONFLICT)),
        ("being deleted", Some(deleting), Err("")),
    ];
    for (what, now, expect) in rows {
        let now: HashMap<ObjectKey, Value> = now.into_iter().map(|now| (planned[0].key.clone(), now)).collect();
        let found = check_existing(&owner, &planned, &now).map_err(|error| match error {
            ActionError::Refused(cause) => cause.reason,
            ActionError::Retry(_) => String::new(),
        });
        assert_eq!(found, expect.map_err(str::to_owned), "{what}");
    }
    let mut adopting = planned;
    adopting[0].object["metadata"]["annotations"][annotation::ADOPT] = "true".into();
    let now = [(adopting[0].key.clone(), object("v1", "ConfigMap", "a", Some("default")))].into();
    assert_eq!(check_existing(&owner, &adopting, &now), Ok(()));
}

#[test]
fn every_answer_to_a_dry_run_has_a_verdict() {
    let plain = planned("a");
    let new_namespace = PlannedObject { has_new_namespace: true, ..planned("a") };
    let mut replaceable = planned("a");
    replaceable.object["metadata"]["annotations"][annotation::REPLACE] = "true".into();
    let now =
        json!({"metadata": {"uid": "u", "resourceVersion": "1", "managedFields": [{"time": "t"}]}, "data": {"k": "1"}});
    let same =
        json!({"metadata": {"uid": "u", "resourceVersion": "2", "managedFields": [{"time": "s"}]}, "data": {"k": "1"}});
    let other = json!({"metadata": {"uid": "u"}, "data": {"k": "2"}});
    let refusal = |message: &str| Cause::new(reason::TEMPLATE_INVALID, message);
    let refused = |message: &str| Err(ActionError::Refused(refusal(message)));
    let forbidden = || ActionError::refused(reason::FORBIDDEN, "No.");
    let retry = || ActionError::Retry("Busy.".to_owned());
    let immutable = || {
        DryRunVerdict::Fail(ActionError::refused(
            reason::IMMUTABLE,
            "data is immutable. The field is immutable. Set the annotation knoll.dev/replace: \"true\" on the object to have it deleted and created again, or rename the object.",
        ))
    };
    let write = |mode| DryRunVerdict::Write(mode);
    type Row<'a> = (&'a str, &'a PlannedObject, bool, Option<&'a Value>, Result<Value, ActionError>, DryRunVerdict);
    let rows: Vec<Row<'_>> = vec![
        ("new", &plain, false, None, Ok(other.clone()), write(WriteMode::Apply)),
        ("changed", &plain, false, Some(&now), Ok(other.clone()), write(WriteMode::Apply)),
        ("unchanged", &plain, false, Some(&now), Ok(same), write(WriteMode::Skip)),
        ("busy", &plain, false, None, Err(retry()), DryRunVerdict::Fail(retry())),
        ("its definition changes", &plain, true, Some(&now), refused("No."), write(WriteMode::CheckFirst)),
        ("its namespace is new", &new_namespace, false, None, refused("No."), DryRunVerdict::TryInOwnNamespace),
        (
            "its namespace is there",
            &new_namespace,
            false,
            Some(&now),
            refused("No."),
            DryRunVerdict::TryAsNew(refusal("No.")),
        ),
        (
            "new and refused",
            &plain,
            false,
            None,
            refused("No."),
            DryRunVerdict::Fail(ActionError::Refused(refusal("No."))),
        ),
        ("forbidden", &plain, false, Some(&now), Err(forbidden()), DryRunVerdict::Fail(forbidden())),
        ("maybe immutable", &plain, false, Some(&now), refused("No."), DryRunVerdict::TryAsNew(refusal("No."))),
        ("immutable", &plain, false, Some(&now), refused("data is immutable."), immutable()),
        (
            "immutable and replaceable",
            &replaceable,
            false,
            Some(&now),
            refused("data is immutable."),
            write(WriteMode::Replace("u".to_owned())),
        ),
    ];
    for (what, planned, definition_changes, now, answer, expect) in rows {
        assert_eq!(judge(planned, definition_changes, now, answer), expect, "{what}");
    }
    let as_new = |answer: Result<Value, ActionError>| judge_as_new(&replaceable, &now, refusal("No."), &answer);
    assert_eq!(as_new(Ok(json!({}))), Ok(WriteMode::Replace("u".to_owned())));
    assert_eq!(as_new(refused("Never.")), Err(ActionError::Refused(refusal("No."))));
    let (key, _) = probe(&new_namespace, Some("default"));
    assert_eq!(key.to_string(), "ConfigMap default/a-knoll-check");
    let own = |answer| judge_in_own_namespace(&new_namespace, &key, answer);
    assert_eq!(own(Ok(json!({}))), Ok(WriteMode::CheckFirst));
    assert_eq!(own(Err(forbidden())), Ok(WriteMode::CheckFirst));
    assert_eq!(own(Err(retry())), Err(retry()));
    let named = refused("`ConfigMap default/a-knoll-check` is bad.");
    assert_eq!(own(named), Err(ActionError::Refused(refusal("`ConfigMap default/a` is bad."))));
}

#[test]
fn a_refusal_counts_more_than_a_retry_and_names_the_first_few() {
    let refused = |number: usize| Err(ActionError::refused(reason::IMMUTABLE, format!("{number}.")));
    let retry = || Err(ActionError::Retry("Busy.".to_owned()));
    assert_eq!(combine(vec![Ok(WriteMode::Apply), Ok(WriteMode::Skip)]), Ok(vec![WriteMode::Apply, WriteMode::Skip]));
    assert_eq!(combine(vec![Ok(WriteMode::Apply), retry()]), retry().map(|_| Vec::new()));
    let all: Vec<_> = (1..=7).map(refused).chain([retry()]).collect();
    let message = "1. 2. 3. 4. 5. And 2 more. Nothing was written.";
    assert_eq!(combine(all), Err(ActionError::refused(reason::IMMUTABLE, message)));
}

#[test]
fn a_journal_keeps_what_was_there_before_the_first_unproven_update() {
    let owner = owner("web");
    let with_uid = |planned: &PlannedObject, uid: &str| {
        let mut object = planned.object.clone();
        object["metadata"]["uid"] = uid.into();
        object
    };
    let (a, b, old, foreign) = (planned("a"), planned("b"), planned("old"), planned("foreign"));
    let mut adopted = planned("adopted");
    adopted.object["metadata"]["annotations"][annotation::ADOPTED] = "true".into();
    let first = json!({"data": {"k": "first"}});
    let earlier = Journal {
        since: 3,
        entries: vec![
            Entry::Keep { key: a.key.clone(), before: Some(first.clone()) },
            Entry::Keep { key: foreign.key.clone(), before: None },
        ],
        ..Journal::default()
    };
    let listed = |planned: &PlannedObject| AtomObject { object: planned.key.clone(), ..AtomObject::default() };
    let inventory = [listed(&old), listed(&adopted)];
    let planned = vec![a.clone(), b.clone()];
    let left_over = left_over(&planned, &inventory, Some(&earlier));
    assert_eq!(left_over, [old.key.clone(), adopted.key.clone(), foreign.key.clone()]);
    let now: HashMap<ObjectKey, Value> = [
        (a.key.clone(), with_uid(&a, "ua")),
        (old.key.clone(), with_uid(&old, "uo")),
        (adopted.key.clone(), with_uid(&adopted, "ud")),
        (foreign.key.clone(), object("v1", "ConfigMap", "foreign", Some("default"))),
    ]
    .into();
    let modes = [WriteMode::Replace("ua".to_owned()), WriteMode::Apply];
    let planned = planned.into_iter().zip(modes).collect();
    let (journal, inventory) = Preparation {
        owner: &owner,
        attempt: 4,
        planned,
        left_over,
        earlier: Some(earlier),
        now: &now,
        hidden: HiddenValues::default(),
    }
    .record();
    let mut replaced = a.object.clone();
    replaced["metadata"]["annotations"][annotation::REPLACED_BY] = "4".into();
    let expect = Journal {
        since: 3,
        entries: vec![
            Entry::Write {
                key: a.key.clone(),
                object: replaced,
                before: Some(first),
                mode: WriteMode::Replace("ua".to_owned()),
            },
            Entry::Write { key: b.key.clone(), object: b.object, before: None, mode: WriteMode::Apply },
            Entry::Prune { key: old.key.clone(), uid: "uo".to_owned(), before: now.get(&old.key).cloned() },
            Entry::Release { key: adopted.key.clone(), before: now.get(&adopted.key).cloned() },
            Entry::Keep { key: foreign.key, before: None },
        ],
        ..Journal::default()
    };
    assert_eq!(journal, expect);
    let listed: Vec<(&str, Option<&str>)> =
        inventory.iter().map(|object| (object.object.name.as_str(), object.uid.as_deref())).collect();
    assert_eq!(listed, [("a", Some("ua")), ("b", None)]);
}
