//! JSON patch and JSON merge patch.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::values::{any_json, json_without_null};
use crate::patch::{PatchError, json_patch, merge_patch};

#[test]
fn merge_patch_does_what_its_rfc_shows() {
    // The examples of RFC 7386 whose patch is an object: the API takes no other.
    let rows = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ];
    for (object, patch, expect) in rows {
        assert_eq!(merge_patch(&object, &patch).unwrap(), expect, "{object} with {patch}");
    }
    assert_eq!(merge_patch(&json!({}), &json!(null)).unwrap_err(), PatchError::NotAnObject);
    assert_eq!(
        merge_patch(&json!({}), &json!([1])).unwrap_err().to_string(),
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    );
}

#[test]
fn json_patch_does_what_it_is_told() {
    let object = json!({"spec": {"replicas": 1, "list": [1, 2]}, "metadata": {"labels": {"a/b": "1"}}});
    let rows = [
        (json!([]), object.clone()),
        (
            json!([{"op": "replace", "path": "/spec", "value": 1}, {"op": "remove", "path": "/metadata"}]),
            json!({"spec": 1}),
        ),
        (json!([{"op": "test", "path": "/metadata/labels/a~1b", "value": "1"}]), object.clone()),
        (
            json!([{"op": "remove", "path": "/metadata"}, {"op": "add", "path": "/spec/list/-", "value": 3}, {"op": "remove", "path": "/spec/list/0"}]),
            json!({"spec": {"replicas": 1, "list": [2, 3]}}),
        ),
        (
            json!([{"op": "move", "from": "/spec/list", "path": "/l"}, {"op": "copy", "from": "/l/0", "path": "/l/1"}, {"op": "remove", "path": "/metadata"}]),
            json!({"spec": {"replicas": 1}, "l": [1, 1, 2]}),
        ),
        // What Kubernetes lets pass although the RFC does not.
        (
            json!([{"op": "replace", "path": "", "value": {}}, {"op": "replace", "path": "/a", "value": 1}]),
            json!({"a": 1}),
        ),
        (
            json!([{"op": "replace", "path": "", "value": {}}, {"op": "copy", "from": "/b", "path": "/a"}]),
            json!({"a": null}),
        ),
        (json!([{"op": "test", "path": "/absent", "value": null}]), object.clone()),
    ];
    for (patch, expect) in rows {
        assert_eq!(json_patch(&object, &patch).unwrap(), expect, "{patch}");
    }
}

#[test]
fn a_json_patch_that_does_not_fit_is_refused() {
    let object = json!({"spec": {"replicas": 1}});
    let rows = [
        (json!({"op": "x"}), 400, "error decoding patch: the patch must be a list of operations"),
        (json!([1]), 400, "error decoding patch: an operation must be an object, not 1"),
        (json!([{"op": "add", "path": "spec", "value": 1}]), 400, "error decoding patch: "),
        (json!([{"op": "bogus", "path": "/a"}]), 422, "Unexpected kind: bogus"),
        (json!([{"path": "/a"}]), 422, "Unexpected kind: unknown"),
        (json!([{"op": "add", "value": 1}]), 422, "add operation failed to decode path: missing value"),
        (json!([{"op": "move", "path": "/a"}]), 422, "move operation failed to decode from: missing value"),
        (
            json!([{"op": "test", "path": "/spec/replicas", "value": 2}]),
            422,
            "testing value /spec/replicas failed: test failed",
        ),
        (
            json!([{"op": "remove", "path": "/a"}]),
            422,
            "remove operation does not apply: doc is missing path: \"/a\": missing value",
        ),
        (
            json!([{"op": "add", "path": "/a/b", "value": 1}]),
            422,
            "add operation does not apply: doc is missing path: \"/a/b\": missing value",
        ),
        (
            json!([{"op": "move", "from": "/spec", "path": "/spec/a"}]),
            422,
            "error in move for path: '/spec/a': cannot move the value inside itself",
        ),
        (
            json!([{"op": "move", "from": "/a", "path": "/b"}]),
            422,
            "move operation does not apply: doc is missing from path: /a: missing value",
        ),
    ];
    for (patch, code, message) in rows {
        let error = json_patch(&object, &patch).unwrap_err();
        assert_eq!(error.code(), code, "{patch}");
        assert!(error.to_string().starts_with(message), "{patch}: {error}");
    }
    let many = vec![json!({"op": "test", "path": "/spec/replicas", "value": 1}); 10_001];
    let error = json_patch(&object, &Value::Array(many)).unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().as_str()),
        (413, "The allowed maximum operations in a JSON patch is 10000, got 10001")
    );
}

#[test]
fn copies_cannot_grow_an_object_without_bound() {
    let doubling: Vec<_> = (0..40).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})).collect();
    let error = json_patch(&json!({"a": ["x".repeat(100)]}), &Value::Array(doubling)).unwrap_err();
    assert!(error.to_string().contains("exceeding the limit"), "{error}");
}

/// The merge patch that turns one object into another.
fn diff(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut patch: serde_json::Map<_, _> =
        old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        match old.get(name) {
            Some(before) if before == value => {}
            Some(before @ Value::Object(_)) if value.is_object() => {
                patch.insert(name.clone(), diff(before, value));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

proptest! {
    #[test]
    fn a_merge_patch_of_the_difference_makes_the_new_object(old in json_without_null(), new in json_without_null()) {
        let (old, new) = (json!({"root": old, "same": 1}), json!({"root": new, "other": 2}));
        prop_assert_eq!(merge_patch(&old, &diff(&old, &new)).unwrap(), new);
    }

    #[test]
    fn no_json_breaks_plain_patches(object in any_json(), patch in any_json(), path in "(/[a-c0-2~-]{0,2}){0,3}", from in "(/[a-c0-2~-]{0,2}){0,3}") {
        let _ = merge_patch(&object, &patch);
        let _ = json_patch(&object, &patch);
        for op in ["add", "remove", "replace", "move", "copy", "test"] {
            let _ = json_patch(&object, &json!([{"op": op, "path": path, "from": from, "value": patch}]));
        }
    }
}
