use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::schemas::widget;
use super::values::{any_json, spec};
use crate::patch::conflict::message;
use crate::patch::{ApplyError, Writer, apply, track_update};

fn writer(manager: &str, second: i64) -> Writer<'_> {
    let now = Timestamp::from_second(1_700_000_000 + second).unwrap();
    Writer { manager, api_version: "example.com/v1", subresource: None, reset: &["status"], now }
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

fn applied(live: Option<&Value>, manager: &str, second: i64, spec: &Value) -> Result<Value, ApplyError> {
    apply(live, &object(spec), &widget(), &writer(manager, second), false)
}

fn entry<'v>(object: &'v Value, manager: &str) -> Option<&'v Value> {
    object["metadata"]["managedFields"].as_array()?.iter().find(|entry| entry["manager"] == manager)
}

#[test]
fn entries_have_the_time_of_the_last_change_and_are_sorted() {
    let one = applied(None, "z", 0, &json!({"replicas": 1})).unwrap();
    assert_eq!(entry(&one, "z").unwrap()["time"], "2023-11-14T22:13:20Z");
    let two = applied(Some(&one), "a", 5, &json!({"name": "n"})).unwrap();
    let mut three = two.clone();
    three["spec"]["name"] = json!("m");
    track_update(Some(&two), &mut three, &widget(), &writer("b", 9));
    let order = |object: &Value| -> Vec<String> {
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        entries
            .iter()
            .map(|entry| format!("{} {} {}", entry["operation"], entry["manager"], entry["time"]).replace('"', ""))
            .collect()
    };
    // The applier of the name lost all it had.
    assert_eq!(order(&three), ["Apply z 2023-11-14T22:13:20Z", "Update b 2023-11-14T22:13:29Z"]);
    let four = applied(Some(&three), "a", 11, &json!({"replicas": 1, "flag": true})).unwrap();
    assert_eq!(
        order(&four),
        ["Apply z 2023-11-14T22:13:20Z", "Apply a 2023-11-14T22:13:31Z", "Update b 2023-11-14T22:13:29Z"]
    );
}

#[test]
fn an_update_that_changes_nothing_leaves_the_object_as_it_was() {
    let live = applied(None, "one", 0, &json!({"replicas": 1})).unwrap();
    let mut same = live.clone();
    track_update(Some(&live), &mut same, &widget(), &writer("two", 7));
    assert_eq!(same, live);
}

#[test]
fn conflicts_are_told_as_in_kubernetes() {
    let live = applied(None, "one", 0, &json!({"replicas": 1, "ports": [{"port": 80, "name": "a"}]})).unwrap();
    let Err(ApplyError::Conflicts(conflicts)) = applied(Some(&live), "two", 1, &json!({"replicas": 2})) else {
        panic!("no conflict")
    };
    assert_eq!(message(&conflicts), "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas");
    let Err(error) = applied(Some(&live), "two", 1, &json!({"replicas": 2, "ports": [{"port": 80, "name": "b"}]}))
    else {
        panic!("no conflict")
    };
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.replicas\n- .spec.ports[port=80,protocol=\"TCP\"].name"
    );
    assert_eq!(error.code(), 409);
}

#[test]
fn a_configuration_of_another_kind_is_refused() {
    let live = applied(None, "one", 0, &json!({})).unwrap();
    let rows = [
        (json!({"apiVersion": "example.com/v2", "kind": "Widget"}), "invalid object type: example.com/v2, Kind=Widget"),
        (json!({"apiVersion": "example.com/v1", "kind": "Gadget"}), "invalid object type: example.com/v1, Kind=Gadget"),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "invalid object type: /v1, Kind=Pod"),
        (json!([]), "error decoding YAML: the configuration must be an object"),
    ];
    for (config, expect) in rows {
        let error = apply(Some(&live), &config, &widget(), &writer("one", 1), false).unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (400, expect));
    }
}

#[test]
fn what_an_endpoint_ignores_is_owned_by_nobody() {
    let mut config = object(&json!({"replicas": 1}));
    config["status"] = json!({"phase": "x"});
    let live = apply(None, &config, &widget(), &writer("one", 0), false).unwrap();
    assert_eq!(entry(&live, "one").unwrap()["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    let mut next = live.clone();
    next["spec"]["replicas"] = json!(2);
    next["status"]["phase"] = json!("y");
    let status = Writer { subresource: Some("status"), reset: &["spec"], ..writer("ctl", 1) };
    track_update(Some(&live), &mut next, &widget(), &status);
    assert_eq!(entry(&next, "ctl").unwrap()["fieldsV1"], json!({"f:status": {"f:phase": {}}}));
    assert_eq!(entry(&next, "ctl").unwrap()["subresource"], "status");
    assert_eq!(entry(&next, "one"), entry(&live, "one"));
}

#[test]
fn built_in_kinds_start_from_the_fields_they_always_have() {
    let schema = super::schemas::schema(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "containers": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
                "type": "object", "properties": {"name": {"type": "string"}, "image": {"type": "string"}}
            }},
            "nodeName": {"type": "string"}
        }}}}),
    );
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "i"}], "nodeName": "n"}});
    track_update(None, &mut pod, &schema, &Writer { api_version: "v1", ..writer("c", 0) });
    let expect = json!({"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:image": {}}}, "f:nodeName": {}}});
    assert_eq!(entry(&pod, "c").unwrap()["fieldsV1"], expect);
}

#[test]
fn a_kind_without_a_schema_is_merged_field_by_field() {
    let schema = crate::schema::Schema::default();
    let live = apply(None, &object(&json!({"a": {"b": 1}, "l": [1]})), &schema, &writer("one", 0), false).unwrap();
    let both = apply(Some(&live), &object(&json!({"a": {"c": 2}})), &schema, &writer("two", 1), false).unwrap();
    assert_eq!(both["spec"], json!({"a": {"b": 1, "c": 2}, "l": [1]}));
    assert!(apply(Some(&both), &object(&json!({"l": [2]})), &schema, &writer("two", 1), false).is_err());
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(before in prop::option::of(spec()), config in spec()) {
        let before = before.map(|before| {
            let mut live = object(&before);
            track_update(None, &mut live, &widget(), &writer("creator", 0));
            live
        });
        let config = object(&config);
        let once = apply(before.as_ref(), &config, &widget(), &writer("one", 1), true).unwrap();
        let twice = apply(Some(&once), &config, &widget(), &writer("one", 2), false).unwrap();
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn the_order_of_appliers_of_different_fields_does_not_matter(config in spec(), split in any::<u8>()) {
        let (mut mine, mut yours) = (json!({}), json!({}));
        for (at, (name, value)) in config.as_object().unwrap().iter().enumerate() {
            let half = if split & (1 << at) == 0 { &mut mine } else { &mut yours };
            half[name] = value.clone();
        }
        let both = |first: (&str, &Value), second: (&str, &Value)| {
            let live = applied(None, first.0, 0, first.1).unwrap();
            let mut object = applied(Some(&live), second.0, 0, second.1).unwrap();
            // Who comes second with nothing new gets no time, and entries are sorted by it.
            if let Some(Value::Array(entries)) = object["metadata"].get_mut("managedFields") {
                entries.iter_mut().for_each(|entry| entry["time"] = Value::Null);
                entries.sort_by_key(|entry| entry["manager"].to_string());
            }
            object
        };
        prop_assert_eq!(both(("mine", &mine), ("yours", &yours)), both(("yours", &yours), ("mine", &mine)));
    }

    #[test]
    fn applying_nothing_removes_exactly_what_was_applied(config in spec()) {
        let live = applied(None, "keeper", 0, &json!({"name": "kept", "maps": {"m": {"p": "1"}}})).unwrap();
        let more = applied(Some(&live), "one", 1, &config).unwrap();
        let mut less = apply(Some(&more), &json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}), &widget(), &writer("one", 2), false).unwrap();
        less["metadata"]["managedFields"].as_array_mut().unwrap().retain(|entry| entry["manager"] != "one");
        prop_assert_eq!(less, live);
    }

    #[test]
    fn force_takes_what_it_names(before in spec(), config in spec()) {
        let live = applied(None, "one", 0, &before).unwrap();
        let taken = apply(Some(&live), &object(&config), &widget(), &writer("two", 1), true).unwrap();
        let set = crate::patch::typed::field_set::of(&object(&config), &widget());
        let fields = entry(&taken, "two").map(|entry| crate::patch::fields::Set::from_fields(&entry["fieldsV1"]).unwrap()).unwrap_or_default();
        prop_assert!(fields.is_subset(&set));
        prop_assert_eq!(fields.branch(&crate::patch::element::Element::field("spec")), set.branch(&crate::patch::element::Element::field("spec")));
    }

    #[test]
    fn no_json_breaks_apply_and_update(live in any_json(), new in any_json(), entries in any_json()) {
        let named = |spec: &Value| {
            let mut object = object(spec);
            object["metadata"]["managedFields"] = entries.clone();
            object
        };
        for (live, new) in [(live.clone(), new.clone()), (named(&live), named(&new)), (named(&live), object(&new))] {
            let _ = apply(Some(&live), &new, &widget(), &writer("one", 0), true);
            let _ = apply(None, &new, &widget(), &writer("one", 0), false);
            let mut changed = new.clone();
            track_update(Some(&live), &mut changed, &widget(), &writer("one", 0));
            let mut created = new;
            track_update(None, &mut created, &widget(), &writer("one", 0));
        }
    }
}
