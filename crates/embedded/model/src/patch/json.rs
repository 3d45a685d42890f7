//! JSON patch (RFC 6902).

use json_patch::jsonptr::Pointer;
use json_patch::{AddOperation, PatchErrorKind, PatchOperation};
use serde_json::Value;

use super::PatchError;

/// The most operations of one patch.
const MOST_OPERATIONS: usize = 10_000;

/// The most bytes that all copies of one patch may make.
const MOST_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies a list of operations, all or none.
pub fn json_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::Undecodable("the patch must be a list of operations".to_owned()));
    };
    if operations.len() > MOST_OPERATIONS {
        return Err(PatchError::TooManyOperations { most: MOST_OPERATIONS, got: operations.len() });
    }
    let mut patched = object.clone();
    let mut copied = 0;
    for raw in operations {
        let Some(operation) = lenient(&patched, decode(raw)?) else {
            continue;
        };
        if let PatchOperation::Copy(copy) = &operation {
            copied += patched.pointer(copy.from.as_str()).map_or(0, |source| source.to_string().len());
            if copied > MOST_COPIED_BYTES {
                return Err(PatchError::Inapplicable(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MOST_COPIED_BYTES}"
                )));
            }
        }
        // An absent member is equal to `null`: clients test so that nobody has added it meanwhile.
        if let PatchOperation::Test(test) = &operation
            && test.value.is_null()
            && patched.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(&mut patched, std::slice::from_ref(&operation))
            .map_err(|error| PatchError::Inapplicable(explain(&operation, &error.kind)))?;
    }
    Ok(patched)
}

/// What Kubernetes makes of an operation on a field that its parent does not have: `replace` adds it, `copy` copies `null`, and
/// it passes a `test` for `null`.
fn lenient(object: &Value, operation: PatchOperation) -> Option<PatchOperation> {
    let absent = |path: &Pointer| {
        let Some((parent, name)) = path.split_back() else {
            return false;
        };
        let parent = object.pointer(parent.as_str()).and_then(Value::as_object);
        parent.is_some_and(|parent| !parent.contains_key(name.decoded().as_ref()))
    };
    match operation {
        PatchOperation::Replace(replace) if absent(&replace.path) => {
            Some(PatchOperation::Add(AddOperation { path: replace.path, value: replace.value }))
        }
        PatchOperation::Copy(copy) if absent(&copy.from) => {
            Some(PatchOperation::Add(AddOperation { path: copy.path, value: Value::Null }))
        }
        PatchOperation::Test(test) if test.value.is_null() && absent(&test.path) => None,
        other => Some(other),
    }
}

fn decode(raw: &Value) -> Result<PatchOperation, PatchError> {
    let Value::Object(fields) = raw else {
        return Err(PatchError::Undecodable(format!("an operation must be an object, not {raw}")));
    };
    let kind = fields.get("op").and_then(Value::as_str).unwrap_or("unknown");
    match kind {
        "add" | "remove" | "replace" | "move" | "test" | "copy" => {}
        other => {
            return Err(PatchError::Inapplicable(format!("Unexpected kind: {other}")));
        }
    }
    let missing =
        |what: &str| PatchError::Inapplicable(format!("{kind} operation failed to decode {what}: missing value"));
    if !fields.get("path").is_some_and(Value::is_string) {
        return Err(missing("path"));
    }
    if matches!(kind, "move" | "copy") && !fields.get("from").is_some_and(Value::is_string) {
        return Err(missing("from"));
    }
    let mut complete = fields.clone();
    if matches!(kind, "add" | "replace" | "test") {
        // An absent value is `null`.
        complete.entry("value").or_insert(Value::Null);
    }
    serde_json::from_value(Value::Object(complete)).map_err(|error| PatchError::Undecodable(error.to_string()))
}

fn explain(operation: &PatchOperation, kind: &PatchErrorKind) -> String {
    let path = operation.path();
    match (operation, kind) {
        (PatchOperation::Test(_), PatchErrorKind::TestFailed) => {
            format!("testing value {path} failed: test failed")
        }
        (PatchOperation::Test(_), _) => format!("error in test for path: '{path}': missing value"),
        (PatchOperation::Add(_), _) => {
            format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        (PatchOperation::Remove(_), _) => {
            format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
        }
        (PatchOperation::Replace(_), _) => {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        }
        (PatchOperation::Move(operation), PatchErrorKind::InvalidFromPointer) => {
            format!("move operation does not apply: doc is missing from path: {}: missing value", operation.from)
        }
        (PatchOperation::Move(_), PatchErrorKind::CannotMoveInsideItself) => {
            format!("error in move for path: '{path}': cannot move the value inside itself")
        }
        (PatchOperation::Move(_), _) => {
            format!("move operation does not apply: doc is missing destination path: {path}: missing value")
        }
        (PatchOperation::Copy(operation), PatchErrorKind::InvalidFromPointer) => {
            format!("copy operation does not apply: doc is missing from path: {}: missing value", operation.from)
        }
        (PatchOperation::Copy(_), _) => {
            format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
        }
    }
}
