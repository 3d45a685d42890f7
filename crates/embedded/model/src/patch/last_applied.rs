//! The annotation in which `kubectl apply` keeps what it applied by itself, before the server did it.

use serde_json::Value;

use super::fields::Set;
use super::typed::{compare, field_set};
use crate::schema::Schema;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager for which the annotation is honoured.
pub const MANAGER: &str = "kubectl";

/// The most bytes that all annotations together may have.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// The fields that kubectl applied and that still have the value it gave them.
pub fn allowed(live: &Value, schema: &Schema, api_version: &str) -> Option<Set> {
    let text = live.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion")?.as_str()? != api_version {
        return None;
    }
    let difference = compare::objects(&applied, live, schema);
    let set = field_set::of(&applied, schema);
    Some(set.difference(&difference.modified).difference(&difference.added).difference(&difference.removed))
}

/// Brings an existing annotation up to date with what was applied.
pub fn refresh(object: &mut Value, applied: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = applied.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    annotations.insert(ANNOTATION.to_owned(), Value::from(format!("{config}\n")));
    let bytes: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > MOST_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}
