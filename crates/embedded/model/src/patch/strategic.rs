//! Strategic merge patch: a merge patch that knows which lists are merged item by item, with directives for the rest.
//!
//! `$patch: replace|delete` replaces or empties an object, or deletes an item of a merged list; `$retainKeys` names all fields
//! that stay; `$deleteFromPrimitiveList/x` takes values out of the list `x`; `$setElementOrder/x` orders it.

mod lists;

use serde_json::{Map, Value};

use super::PatchError;
use super::go_text::{go_text, not_an_object};
use super::typed::Node;
use crate::schema::{Schema, Strategy};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Merges a strategic merge patch into an object of a built-in kind.
pub fn strategic_merge_patch(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed(not_an_object(patch)));
    };
    let original = object.as_object().cloned().unwrap_or_default();
    merge_map(original, patch, Node::root(schema)).map(Value::Object)
}

fn merge_map(
    mut original: Map<String, Value>,
    patch: &Map<String, Value>,
    node: Node<'_>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => return Ok(fresh_map(patch)),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(other) => return Err(unknown_directive(other, patch)),
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut original, patch, keys)?;
    }
    let mut ordered = Vec::new();
    for (key, order) in patch {
        let Some(name) = directive_target(key, SET_ORDER)? else {
            continue;
        };
        ordered.push(name);
        order_list(&mut original, name, patch.get(name), order, node.field(name))?;
    }
    for (key, value) in patch {
        if key == RETAIN_KEYS || key.starts_with(SET_ORDER) || ordered.contains(&key.as_str()) {
            continue;
        }
        let deleted_from = directive_target(key, DELETE_FROM)?;
        let name = deleted_from.unwrap_or(key);
        if value.is_null() {
            original.remove(name);
            continue;
        }
        let merged = match (original.remove(name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                Some(Value::Object(merge_map(old, new, node.field(name))?))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                Some(Value::Array(merge_list(old, new, node.field(name), deleted_from.is_some())?))
            }
            (old, _) if deleted_from.is_some() => old,
            (_, new) => fresh(new),
        };
        if let Some(value) = merged {
            original.insert(name.to_owned(), value);
        }
    }
    Ok(original)
}

fn merge_list(old: Vec<Value>, new: &[Value], node: Node<'_>, delete: bool) -> Result<Vec<Value>, PatchError> {
    let strategy = strategy(node);
    if strategy.merge || delete {
        lists::merge(old, new, node.item(), strategy.merge_key.as_deref(), delete)
    } else {
        // A list that is replaced is taken as it stands, directives and all.
        Ok(new.to_vec())
    }
}

/// Merges the list and puts it into the order that the patch asks for.
fn order_list(
    original: &mut Map<String, Value>,
    name: &str,
    patch: Option<&Value>,
    order: &Value,
    node: Node<'_>,
) -> Result<(), PatchError> {
    let list = |value: &Value| match value {
        Value::Array(items) => Ok(items.clone()),
        other => Err(PatchError::Unmergeable(format!("expected a list for {name}, but received {other}"))),
    };
    let order = list(order)?;
    let old = original.get(name).map(list).transpose()?;
    let new = patch.map(list).transpose()?;
    let merge_key = strategy(node).merge_key.as_deref();
    lists::check_order(new.as_deref().unwrap_or_default(), &order, merge_key)?;
    let merged = match (&old, &new) {
        (None, None) => return Ok(()),
        (Some(old), None) => old.clone(),
        (None, Some(new)) => fresh_list(new),
        (Some(old), Some(new)) => merge_list(old.clone(), new, node, false)?,
    };
    let merged = lists::arrange(merged, &order, &old.unwrap_or_default(), merge_key)?;
    original.insert(name.to_owned(), Value::Array(merged));
    Ok(())
}

fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>, keys: &Value) -> Result<(), PatchError> {
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".to_owned());
    let keys = keys.as_array().ok_or_else(malformed)?;
    let retained = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    let exempt = |name: &str| name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !exempt(name) && !retained(name)) {
        return Err(malformed());
    }
    original.retain(|name, _| retained(name));
    Ok(())
}

/// The field that a directive such as `$setElementOrder/ports` is about.
fn directive_target<'k>(key: &'k str, prefix: &str) -> Result<Option<&'k str>, PatchError> {
    let Some(rest) = key.strip_prefix(prefix) else {
        return Ok(None);
    };
    match rest.strip_prefix('/') {
        Some(name) => Ok(Some(name)),
        None if prefix == DELETE_FROM => {
            Err(PatchError::Malformed("invalid patch format of primitive list".to_owned()))
        }
        None => Err(PatchError::Malformed("invalid patch format of setElementOrder list".to_owned())),
    }
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> PatchError {
    let patch = go_text(&Value::Object(patch.clone()));
    PatchError::Unmergeable(format!("unknown patch type: {} in map: {patch}", go_text(directive)))
}

fn strategy(node: Node<'_>) -> &Strategy {
    static NONE: Strategy = Strategy { merge: false, retain_keys: false, merge_key: None };
    match node {
        Node::Known { schema, .. } => &schema.strategy,
        Node::Deduced | Node::Atomic => &NONE,
    }
}

/// A value that the patch adds: without `null`, which asks to delete, and without directives, of which there is nothing to do.
fn fresh(value: &Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(fresh_map(fields))),
        Value::Array(items) => Some(Value::Array(fresh_list(items))),
        other => Some(other.clone()),
    }
}

fn fresh_map(fields: &Map<String, Value>) -> Map<String, Value> {
    let directive = |name: &str| {
        name == DIRECTIVE
            || name == RETAIN_KEYS
            || name.starts_with("$deleteFromPrimitiveList/")
            || name.starts_with("$setElementOrder/")
    };
    fields
        .iter()
        .filter(|(name, value)| !value.is_null() && !directive(name))
        .filter_map(|(name, value)| Some((name.clone(), fresh(value)?)))
        .collect()
}

fn fresh_list(items: &[Value]) -> Vec<Value> {
    items.iter().filter_map(fresh).collect()
}
