use proptest::prelude::*;
use serde_json::{Value, json};

use super::schemas::{schema, widget};
use super::values::any_json;
use crate::patch::strategic_merge_patch;
use crate::schema::Schema;

/// The parts of a pod template on which strategic merge patches work.
fn pod() -> Schema {
    let text = json!({"type": "string"});
    let keyed = |key: &str, strategy: &str, properties: Value| {
        json!({
            "type": "array",
            "x-kubernetes-patch-strategy": strategy,
            "x-kubernetes-patch-merge-key": key,
            "items": {"type": "object", "properties": properties},
        })
    };
    let containers = json!({
        "name": text,
        "image": text,
        "args": {"type": "array", "items": text},
        "env": keyed("name", "merge", json!({"name": text, "value": text})),
        "ports": keyed("containerPort", "merge", json!({"containerPort": {"type": "integer"}, "protocol": text})),
    });
    schema(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "containers": keyed("name", "merge", containers),
        "volumes": keyed("name", "merge,retainKeys", json!({"name": text, "emptyDir": {"type": "object"}, "secret": {"type": "object"}})),
        "tolerations": {"type": "array", "items": {"type": "object", "properties": {"key": text}}},
        "nodeSelector": {"type": "object", "additionalProperties": text},
    }}}}))
}

#[track_caller]
fn check(spec: Value, patch: Value, expect: Value) {
    let patched = strategic_merge_patch(&json!({"spec": spec}), &json!({"spec": patch}), &pod()).unwrap();
    assert_eq!(patched["spec"], expect);
}

#[test]
fn lists_of_objects_are_merged_by_key() {
    let containers = || json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}, {"name": "b"}]);
    check(
        json!({"containers": containers()}),
        json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "9"}, {"name": "Z", "value": "3"}]}]}),
        json!({"containers": [
            {"name": "a", "image": "1", "env": [{"name": "X", "value": "9"}, {"name": "Z", "value": "3"}, {"name": "Y", "value": "2"}]},
            {"name": "b"}
        ]}),
    );
    check(
        json!({"containers": containers()}),
        json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "c", "image": null}]}),
        json!({"containers": [{"name": "c"}, {"name": "b"}]}),
    );
    check(
        json!({"containers": containers()}),
        json!({"containers": [{"$patch": "replace"}, {"name": "n"}]}),
        json!({"containers": [{"name": "n"}]}),
    );
    check(json!({"containers": containers()}), json!({"containers": null}), json!({}));
}

#[test]
fn other_lists_are_replaced() {
    check(
        json!({"tolerations": [{"key": "a"}]}),
        json!({"tolerations": [{"key": "b"}]}),
        json!({"tolerations": [{"key": "b"}]}),
    );
    check(
        json!({"containers": [{"name": "a", "args": ["x"]}]}),
        json!({"containers": [{"name": "a", "args": ["y", "z"]}]}),
        json!({"containers": [{"name": "a", "args": ["y", "z"]}]}),
    );
}

#[test]
fn directives_of_objects_are_followed() {
    let selector = json!({"nodeSelector": {"a": "1", "b": "2"}});
    check(
        selector.clone(),
        json!({"nodeSelector": {"a": null, "c": "3"}}),
        json!({"nodeSelector": {"b": "2", "c": "3"}}),
    );
    check(
        selector.clone(),
        json!({"nodeSelector": {"$patch": "replace", "c": "3"}}),
        json!({"nodeSelector": {"c": "3"}}),
    );
    check(selector.clone(), json!({"nodeSelector": {"$patch": "delete"}}), json!({"nodeSelector": {}}));
    check(selector, json!({"$retainKeys": ["volumes"], "volumes": []}), json!({"volumes": []}));
    check(
        json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}),
        json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
    );
    // A directive in what is new has nothing to act on.
    check(
        json!({}),
        json!({"nodeSelector": {"$patch": "delete"}, "containers": [{"name": "a", "$retainKeys": ["name"]}]}),
        json!({"containers": [{"name": "a"}]}),
    );
}

#[test]
fn lists_are_ordered_as_asked() {
    let names = |names: &[&str]| Value::Array(names.iter().map(|name| json!({"name": name})).collect());
    let rows = [
        (names(&["a", "b", "c"]), names(&["c", "a"]), names(&[]), names(&["b", "c", "a"])),
        (names(&["a", "b", "c"]), names(&["a", "d", "c"]), names(&["d"]), names(&["a", "d", "b", "c"])),
        (names(&["a", "b"]), names(&["b"]), names(&[]), names(&["a", "b"])),
    ];
    for (list, order, patch, expect) in rows {
        let mut directive = json!({"$setElementOrder/containers": order});
        if patch != json!([]) {
            directive["containers"] = patch;
        }
        check(json!({"containers": list}), directive, json!({"containers": expect}));
    }
}

#[test]
fn finalizers_are_a_list_of_values() {
    let object = json!({"metadata": {"finalizers": ["a", "b"], "ownerReferences": [{"uid": "1", "name": "x"}]}});
    let rows = [
        (json!({"finalizers": ["b", "c"]}), json!(["a", "b", "c"])),
        (json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), json!(["b"])),
        (json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}), json!(["c", "b"])),
        (json!({"$setElementOrder/finalizers": ["b", "a"]}), json!(["b", "a"])),
        (json!({"ownerReferences": [{"uid": "2"}]}), json!(["a", "b"])),
    ];
    for (patch, expect) in rows {
        let patched = strategic_merge_patch(&object, &json!({"metadata": patch}), &pod()).unwrap();
        assert_eq!(patched["metadata"]["finalizers"], expect, "{patch}");
    }
    let patched = strategic_merge_patch(
        &object,
        &json!({"metadata": {"ownerReferences": [{"uid": "1", "$patch": "delete"}]}}),
        &pod(),
    )
    .unwrap();
    assert_eq!(patched["metadata"]["ownerReferences"], json!([]));
}

#[test]
fn malformed_patches_are_refused_as_in_kubernetes() {
    let object = json!({"spec": {"containers": [{"name": "n"}]}});
    let rows = [
        (
            json!({"containers": [{"image": "nokey"}]}),
            500,
            "map: map[image:nokey] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"name": "n", "$patch": "bogus"}]}),
            500,
            "unknown patch type: bogus in map: map[$patch:bogus name:n]",
        ),
        (
            json!({"containers": [{"name": "n", "$patch": "merge"}]}),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (json!({"containers": [1]}), 500, "list element types are not identical: 1"),
        (json!({"containers": [[]]}), 422, "lists of lists are not supported"),
        (json!({"$retainKeys": "x"}), 400, "invalid patch format of retainKeys"),
        (json!({"$retainKeys": [], "containers": []}), 400, "invalid patch format of retainKeys"),
        (json!({"$setElementOrder": []}), 400, "invalid patch format of setElementOrder list"),
        (json!({"$deleteFromPrimitiveList": []}), 400, "invalid patch format of primitive list"),
        (
            json!({"$setElementOrder/containers": [{"name": "x"}], "containers": [{"name": "n", "image": "q"}]}),
            500,
            "The order in patch list:\n[map[image:q name:n]]\n doesn't match $setElementOrder list:\n[map[name:x]]\n",
        ),
    ];
    for (patch, code, message) in rows {
        let error = strategic_merge_patch(&object, &json!({"spec": patch}), &pod()).unwrap_err();
        assert_eq!((error.code(), error.to_string().as_str()), (code, message), "{patch}");
    }
    assert_eq!(strategic_merge_patch(&object, &json!([]), &pod()).unwrap_err().code(), 400);
}

fn pod_spec() -> impl Strategy<Value = Value> {
    let text = || "[ab]";
    let env = prop::collection::btree_map(text(), text(), 0..3).prop_map(|env| {
        Value::Array(env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect())
    });
    let container = (text(), prop::collection::vec(text(), 0..3), env)
        .prop_map(|(image, args, env)| json!({"image": image, "args": args, "env": env}));
    let containers = prop::collection::btree_map("[a-d]", container, 0..4).prop_map(|containers| {
        let named = containers.into_iter().map(|(name, mut container)| {
            container["name"] = json!(name);
            container
        });
        Value::Array(named.collect())
    });
    (containers, prop::collection::btree_map(text(), text(), 0..3))
        .prop_map(|(containers, selector)| json!({"spec": {"containers": containers, "nodeSelector": selector}}))
}

proptest! {
    #[test]
    fn patching_with_its_own_content_changes_nothing(object in pod_spec()) {
        prop_assert_eq!(strategic_merge_patch(&object, &object, &pod()).unwrap(), object);
    }

    #[test]
    fn patching_twice_is_patching_once(object in pod_spec(), patch in pod_spec()) {
        let once = strategic_merge_patch(&object, &patch, &pod()).unwrap();
        prop_assert_eq!(strategic_merge_patch(&once, &patch, &pod()).unwrap(), once);
    }

    #[test]
    fn no_json_breaks_strategic_patches(object in any_json(), patch in any_json()) {
        let _ = strategic_merge_patch(&object, &patch, &widget());
        let _ = strategic_merge_patch(&json!({"spec": object}), &json!({"spec": patch}), &pod());
        let _ = strategic_merge_patch(&json!({"spec": {"containers": object}}), &json!({"spec": {"containers": patch}}), &pod());
    }
}
