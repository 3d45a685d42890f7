//! Status writes that carry what was read, so that two writers never undo each other.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// The merge patch that turns the status `from` into `to` on exactly the object that was read, or `None` when
/// there is nothing to write.
///
/// The API server answers 409 when the object has moved on since `resource_version`; the writer then decides
/// again from the fresh object.
///
/// # Errors
/// When one of the two cannot be written as JSON.
pub fn status<S: Serialize + Default + PartialEq>(
    resource_version: Option<&str>,
    from: Option<&S>,
    to: &S,
) -> Result<Option<Value>, serde_json::Error> {
    // An object that nobody has looked at yet and one with nothing to tell are the same.
    if from.is_none() && *to == S::default() {
        return Ok(None);
    }
    let from = from.map(serde_json::to_value).transpose()?.unwrap_or(Value::Null);
    let to = serde_json::to_value(to)?;
    Ok(difference(&from, &to).map(|status| match resource_version {
        Some(version) => json!({ "metadata": { "resourceVersion": version }, "status": status }),
        None => json!({ "status": status }),
    }))
}

/// The merge patch (RFC 7386) from one value to the other; `None` when they are equal.
#[must_use]
pub fn difference(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return Some(to.clone());
    };
    // A merge patch cannot tell `null` from absent, so neither does the comparison.
    let removed = from
        .iter()
        .filter(|(key, value)| !value.is_null() && !to.contains_key(*key))
        .map(|(key, _)| (key.clone(), Value::Null));
    let changed = to.iter().filter_map(|(key, value)| {
        let old = from.get(key).unwrap_or(&Value::Null);
        difference(old, value).map(|patch| (key.clone(), patch))
    });
    let patch: Map<_, _> = removed.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A JSON value without nulls, which a merge patch cannot express.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), any::<i32>().prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    /// RFC 7386, as the API server does it.
    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let Some(object) = target.as_object_mut() else {
            return;
        };
        for (key, value) in patch {
            if value.is_null() {
                object.remove(key);
            } else {
                apply(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    proptest! {
        #[test]
        fn a_difference_leads_from_one_to_the_other(from in value(), to in value()) {
            let mut target = from.clone();
            match difference(&from, &to) {
                Some(patch) => apply(&mut target, &patch),
                None => prop_assert_eq!(&from, &to),
            }
            prop_assert_eq!(target, to);
        }
    }

    #[test]
    fn null_and_absent_are_the_same() {
        assert_eq!(difference(&json!({"a": null}), &json!({})), None);
        assert_eq!(difference(&json!({}), &json!({"a": null})), None);
        assert_eq!(difference(&json!({"a": 1}), &json!({"a": null})), Some(json!({"a": null})));
    }

    #[test]
    fn an_equal_status_is_not_written() {
        assert_eq!(status(Some("7"), Some(&json!({"a": 1})), &json!({"a": 1})).ok(), Some(None));
        assert_eq!(status(Some("7"), None, &Value::default()).ok(), Some(None));
        assert_eq!(
            status(Some("7"), None, &json!({"a": 1})).ok().flatten(),
            Some(json!({"metadata": {"resourceVersion": "7"}, "status": {"a": 1}})),
        );
    }
}
