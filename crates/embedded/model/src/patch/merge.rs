//! JSON merge patch (RFC 7386).

use serde_json::Value;

use super::PatchError;
use super::go_text::not_an_object;

/// Merges a patch into an object: `null` removes a field, objects are merged, everything else is replaced.
pub fn merge_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    match patch {
        Value::Object(_) => {}
        Value::Null => return Err(PatchError::NotAnObject),
        other => return Err(PatchError::Undecodable(not_an_object(other))),
    }
    let mut merged = object.clone();
    json_patch::merge(&mut merged, patch);
    Ok(merged)
}
