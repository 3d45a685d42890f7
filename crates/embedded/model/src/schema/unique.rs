//! Lists that are sets or maps: no two items may be, or be named, the same.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::{FieldError, go_json};
use super::path::Path;
use super::{ListType, Schema};

/// The items of sets and map-like lists that come twice, anywhere in `object`.
pub(crate) fn check(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, object, &Path::Root, &mut errors);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, field) in map {
                if let Some(below) = schema.properties.get(key) {
                    walk(below, field, &path.field(key), errors);
                } else if let Some(below) = &schema.additional {
                    walk(below, field, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => set(items, path, errors),
                ListType::Map(keys) => map(keys, items, path, errors),
            }
            if let Some(below) = &schema.items {
                for (i, item) in items.iter().enumerate() {
                    walk(below, item, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

fn set(items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for i in repeated(items.iter().map(go_json)) {
        errors.push(FieldError::duplicate(path.index(i).to_string(), items[i].clone()));
    }
}

fn map(keys: &[String], items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(i) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(i).to_string(), items[i].clone(), detail));
        return;
    }
    let name = |item: &Value| {
        let parts = keys.iter().filter_map(|key| item.get(key).map(|v| (key.clone(), v.clone())));
        Value::Object(parts.collect::<Map<_, _>>())
    };
    for i in repeated(items.iter().map(|item| go_json(&name(item)))) {
        errors.push(FieldError::duplicate(path.index(i).to_string(), name(&items[i])));
    }
}

/// Where something comes for the second time; a third time is not reported again.
fn repeated(items: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (i, item) in items.enumerate() {
        let times = seen.entry(item).or_default();
        *times += 1;
        if *times == 2 {
            found.push(i);
        }
    }
    found
}
