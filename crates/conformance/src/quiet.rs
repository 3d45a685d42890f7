//! Decides from the objects alone whether the garbage collector has work left.
//!
//! Dependents are deleted asynchronously. Two servers can be compared after a deletion only when both garbage
//! collectors are done; equal responses alone do not show that.

use std::collections::HashMap;

use serde_json::Value;

/// Whether the garbage collector may still change one of the objects based on an outdated view.
pub fn may_change(objects: &[Value]) -> bool {
    objects.iter().any(|object| deleting(object) || owners(object).next().is_some())
}

/// Whether no object is waiting for the garbage collector.
pub fn is_quiet(objects: &[Value]) -> bool {
    let by_uid: HashMap<&str, &Value> =
        objects.iter().filter_map(|o| o["metadata"]["uid"].as_str().map(|uid| (uid, o))).collect();
    objects.iter().all(|object| rests(object, objects, &by_uid))
}

fn rests(object: &Value, all: &[Value], by_uid: &HashMap<&str, &Value>) -> bool {
    let has = |name: &str| finalizers(object).any(|f| f == name);
    if deleting(object) {
        if has("orphan") {
            return false;
        }
        if !has("foregroundDeletion") {
            return true;
        }
        // An object in foreground deletion is done if its blocking dependents are being deleted and held by their own
        // finalizers.
        let uid = &object["metadata"]["uid"];
        let dependents: Vec<&Value> = all.iter().filter(|o| owners(o).any(|r| r["uid"] == *uid)).collect();
        let blocked = dependents.iter().any(|o| owners(o).any(|r| r["uid"] == *uid && r["blockOwnerDeletion"] == true));
        return blocked && dependents.iter().all(|o| deleting(o));
    }
    // The reference to an owner that is gone, or in foreground deletion, is either removed or the object is deleted.
    owners(object).all(|reference| {
        let owner = reference["uid"].as_str().and_then(|uid| by_uid.get(uid));
        owner.is_some_and(|o| !(deleting(o) && finalizers(o).any(|f| f == "foregroundDeletion")))
    })
}

fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn finalizers(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten()
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(objects: Value, quiet: bool) {
        let objects: Vec<Value> =
            objects.as_array().into_iter().flatten().map(|meta| json!({"metadata": meta})).collect();
        assert_eq!(is_quiet(&objects), quiet, "{objects:?}");
    }

    #[test]
    fn rest_and_unrest() {
        check(json!([{"uid": "a"}, {"uid": "b", "ownerReferences": [{"uid": "a"}]}]), true);
        check(json!([{"uid": "b", "ownerReferences": [{"uid": "gone"}]}]), false);
        check(json!([{"uid": "a"}, {"uid": "b", "ownerReferences": [{"uid": "a"}, {"uid": "gone"}]}]), false);
        check(json!([{"uid": "a", "deletionTimestamp": "t", "finalizers": ["x/y"]}]), true);
        check(json!([{"uid": "a", "deletionTimestamp": "t", "finalizers": ["orphan"]}]), false);
        check(json!([{"uid": "a", "deletionTimestamp": "t", "finalizers": ["foregroundDeletion"]}]), false);
    }

    #[test]
    fn an_owner_may_wait_for_a_dependent_that_is_held() {
        let owner = json!({"uid": "a", "deletionTimestamp": "t", "finalizers": ["foregroundDeletion"]});
        let held = json!({
            "uid": "b", "deletionTimestamp": "t", "finalizers": ["x/y"],
            "ownerReferences": [{"uid": "a", "blockOwnerDeletion": true}],
        });
        check(json!([owner, held]), true);
        check(json!([owner, {"uid": "b", "ownerReferences": [{"uid": "a", "blockOwnerDeletion": true}]}]), false);
    }
}
