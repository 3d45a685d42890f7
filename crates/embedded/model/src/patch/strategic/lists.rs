//! Lists that a strategic merge patch merges: of scalars by value, of objects by their merge key.

use serde_json::{Map, Value};

use super::{DIRECTIVE, fresh, merge_map, unknown_directive};
use crate::patch::PatchError;
use crate::patch::element::same;
use crate::patch::go_text::go_text;
use crate::patch::typed::Node;

/// Merges the items of a patch into a list, or takes them out of it.
pub fn merge(
    old: Vec<Value>,
    new: &[Value],
    item: Node<'_>,
    merge_key: Option<&str>,
    delete: bool,
) -> Result<Vec<Value>, PatchError> {
    if old.is_empty() && new.is_empty() {
        return Ok(old);
    }
    let objects = uniform(old.iter().chain(new))?;
    if !objects {
        if delete {
            return Ok(old.into_iter().filter(|value| !new.iter().any(|gone| same(gone, value))).collect());
        }
        let mut merged: Vec<Value> = Vec::with_capacity(old.len() + new.len());
        for value in old.iter().chain(new) {
            if !merged.iter().any(|known| same(known, value)) {
                merged.push(value.clone());
            }
        }
        return arrange(merged, new, &old, None);
    }
    let Some(key) = merge_key else {
        return Err(PatchError::Unmergeable("cannot merge lists without merge key for struct".to_owned()));
    };
    let (old, new) = directives(old, new, key)?;
    let mut merged = old.clone();
    for patch in &new {
        let (Some(fields), Some(value)) = (patch.as_object(), patch.get(key)) else {
            return Err(no_merge_key(patch, key));
        };
        match merged.iter_mut().find(|item| item.get(key).is_some_and(|other| same(other, value))) {
            Some(Value::Object(original)) => *original = merge_map(std::mem::take(original), fields, item)?,
            Some(_) => {}
            None => merged.extend(fresh(patch)),
        }
    }
    arrange(merged, &new, &old, Some(key))
}

/// Puts a merged list in order: the items that `order` names in that order, the others where they were between those.
pub fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    server: &[Value],
    merge_key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = merge_key
        && let Some(item) = merged.iter().chain(order).find(|item| item.get(key).is_none())
    {
        return Err(no_merge_key(item, key));
    }
    let place = |list: &[Value], item: &Value| {
        list.iter().position(|other| same(identity(other, merge_key), identity(item, merge_key)))
    };
    let (mut named, mut others): (Vec<_>, Vec<_>) = merged.into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    others.sort_by_key(|item| place(server, item));
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(left), Some(right)) = (others.peek(), named.peek()) {
        let other_first =
            matches!((place(server, left), place(server, right)), (Some(left), Some(right)) if left < right);
        arranged.extend(if other_first { others.next() } else { named.next() });
    }
    arranged.extend(named);
    arranged.extend(others);
    Ok(arranged)
}

/// The items of a patch must be among those that it orders, in the same order.
pub fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        if let Some(key) = merge_key
            && item.get(key).is_none()
        {
            return Err(no_merge_key(item, key));
        }
        if !wanted.any(|other| same(identity(other, merge_key), identity(item, merge_key))) {
            return Err(PatchError::Unmergeable(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                go_text(&Value::from(patch.to_vec())),
                go_text(&Value::from(order.to_vec())),
            )));
        }
    }
    Ok(())
}

fn identity<'v>(item: &'v Value, merge_key: Option<&str>) -> &'v Value {
    static NOTHING: Value = Value::Null;
    match merge_key {
        Some(key) => item.get(key).unwrap_or(&NOTHING),
        None => item,
    }
}

/// Does what the items with a directive ask for, and returns what is left to merge.
fn directives(mut old: Vec<Value>, new: &[Value], key: &str) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut left = Vec::with_capacity(new.len());
    let mut replace = false;
    for item in new {
        let empty = Map::new();
        let fields = item.as_object().unwrap_or(&empty);
        match fields.get(DIRECTIVE) {
            None => left.push(item.clone()),
            Some(Value::String(directive)) if directive == "delete" => {
                let value = fields.get(key).ok_or_else(|| no_merge_key(item, key))?;
                old.retain(|item| !item.get(key).is_some_and(|other| same(other, value)));
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(PatchError::Unmergeable("merging lists cannot yet be specified in the patch".to_owned()));
            }
            Some(other) => return Err(unknown_directive(other, fields)),
        }
    }
    if replace {
        return Ok((left.iter().filter_map(fresh).collect(), Vec::new()));
    }
    Ok((old, left))
}

/// Whether all items are objects; items of different types cannot be merged.
fn uniform<'v>(items: impl Iterator<Item = &'v Value>) -> Result<bool, PatchError> {
    let mut first = None;
    for item in items {
        if item.is_array() {
            return Err(PatchError::Inapplicable("lists of lists are not supported".to_owned()));
        }
        let kind = std::mem::discriminant(item);
        if *first.get_or_insert(kind) != kind {
            return Err(PatchError::Unmergeable(format!("list element types are not identical: {item}")));
        }
    }
    Ok(first == Some(std::mem::discriminant(&Value::Object(Map::new()))))
}

fn no_merge_key(item: &Value, key: &str) -> PatchError {
    PatchError::Unmergeable(format!("map: {} does not contain declared merge key: {key}", go_text(item)))
}
