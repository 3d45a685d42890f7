//! How a configuration is laid over a live object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::{Items, Node, Problems, Shape};
use crate::patch::element::Element;
use crate::schema::Schema;

/// The live object with everything that the configuration says. Nothing is removed.
pub fn objects(live: &Value, config: &Value, schema: &Schema) -> Result<Value, Problems> {
    Ok(merge(Node::root(schema), Some(live), Some(config))?.unwrap_or(Value::Null))
}

fn merge(node: Node<'_>, live: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, Problems> {
    let deciding = match (live, config) {
        (live, None) => live,
        // `null` takes the form of what it replaces.
        (Some(live), Some(Value::Null)) => Some(live),
        (_, config) => config,
    };
    match node.shape(deciding) {
        Shape::Scalar => Ok(config.or(live).cloned()),
        Shape::Map => {
            let (old, new) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            if node.is_atomic_map() || (old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty)) {
                return Ok(config.or(live).cloned());
            }
            maps(node, old, new)
        }
        Shape::List => {
            let old = live.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let new = config.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if matches!(node.items(), Items::Atomic) || (old.is_empty() && new.is_empty()) {
                return Ok(config.or(live).cloned());
            }
            lists(node, old, new)
        }
    }
}

fn maps(
    node: Node<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
) -> Result<Option<Value>, Problems> {
    let names: BTreeSet<_> = old.into_iter().flatten().chain(new.into_iter().flatten()).map(|(name, _)| name).collect();
    let mut merged = Map::new();
    let mut problems = Problems::default();
    for name in names {
        let (old, new) = (old.and_then(|fields| fields.get(name)), new.and_then(|fields| fields.get(name)));
        match merge(node.field(name), old, new) {
            Ok(Some(value)) => {
                merged.insert(name.clone(), value);
            }
            Ok(None) => {}
            Err(below) => problems.add(below, Element::field(name)),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok((!merged.is_empty()).then_some(Value::Object(merged)))
}

/// Merges two associative lists.
///
/// The items of the configuration keep their order. Items that only the live list has stay where they were between the
/// items that both have.
fn lists(node: Node<'_>, old: &[Value], new: &[Value]) -> Result<Option<Value>, Problems> {
    let (news, new_items) = index(node, new, false)?;
    let (olds, old_items) = index(node, old, true)?;
    let mut shared: VecDeque<&Element> =
        news.iter().map(|(element, _)| element).filter(|element| old_items.contains_key(element)).collect();
    let mut merged = Vec::with_capacity(olds.len().max(news.len()));
    let mut taken: BTreeSet<&Element> = BTreeSet::new();
    let mut problems = Problems::default();
    let mut push =
        |element: &Element, live: Option<&Value>, config: Option<&Value>| match merge(node.item(), live, config) {
            Ok(item) => merged.extend(item),
            Err(below) => problems.add(below, element),
        };
    let (mut at_old, mut at_new) = (0, 0);
    while at_old < olds.len() || at_new < news.len() {
        if let (Some((element, _)), Some((other, config))) = (olds.get(at_old), news.get(at_new)) {
            if element == other {
                taken.insert(element);
                push(element, old_items.get(element).copied().flatten(), Some(config));
                at_old += 1;
                at_new += 1;
                shared.pop_front();
                continue;
            }
            if new_items.contains_key(element) && shared.front().is_some_and(|next| *next != element) {
                // Both have it, but the configuration wants another one first.
                at_old += 1;
                continue;
            }
        }
        if let Some((element, live)) = olds.get(at_old) {
            if !new_items.contains_key(element) {
                push(element, Some(live), None);
                at_old += 1;
                continue;
            }
            if taken.contains(element) {
                at_old += 1;
            }
        }
        if let Some((element, config)) = news.get(at_new) {
            taken.insert(element);
            push(element, old_items.get(element).copied().flatten(), Some(config));
            at_new += 1;
            if shared.front() == Some(&element) {
                shared.pop_front();
            }
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok((!merged.is_empty()).then_some(Value::Array(merged)))
}

type Indexed<'v> = (Vec<(Element, &'v Value)>, BTreeMap<Element, Option<&'v Value>>);

/// The items in order, and by their element; items that share an element are not there to be merged with.
fn index<'v>(node: Node<'_>, list: &'v [Value], repeats: bool) -> Result<Indexed<'v>, Problems> {
    let mut problems = Problems::default();
    let mut order = Vec::with_capacity(list.len());
    let mut items: BTreeMap<Element, Option<&Value>> = BTreeMap::new();
    for (at, item) in list.iter().enumerate() {
        let element = match node.item_element(item) {
            Ok(element) => element,
            Err(error) => {
                problems.add(Problems::here(format!("element {at}: {error}")), "");
                continue;
            }
        };
        let seen = items.contains_key(&element);
        if seen && !repeats {
            problems.add(Problems::here(format!("duplicate entries for key {element}")), "");
            continue;
        }
        items.insert(element.clone(), (!seen).then_some(item));
        order.push((element, item));
    }
    if problems.is_empty() { Ok((order, items)) } else { Err(problems) }
}
