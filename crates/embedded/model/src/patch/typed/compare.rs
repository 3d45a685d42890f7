//! How two values differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Items, Node, Shape};
use crate::patch::element::{Element, same};
use crate::patch::fields::{Branch, Set};
use crate::schema::Schema;

/// The fields in which two objects differ; no field is in two of the sets.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// Fields that only the old object has.
    pub removed: Set,
    /// Fields that both have, with another value.
    pub modified: Set,
    /// Fields that only the new object has.
    pub added: Set,
}

impl Difference {
    /// Leaves out these fields and all below them.
    #[must_use]
    pub fn without(self, fields: &Set) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }
}

/// Compares two objects of one schema.
pub fn objects(old: &Value, new: &Value, schema: &Schema) -> Difference {
    let changes = compare(Node::root(schema), Some(old), Some(new));
    Difference { removed: changes.removed.below, modified: changes.modified.below, added: changes.added.below }
}

#[derive(Default)]
struct Changes {
    removed: Branch,
    modified: Branch,
    added: Branch,
}

impl Changes {
    fn graft(&mut self, element: &Element, below: Changes) {
        self.removed.below.graft(element.clone(), below.removed);
        self.modified.below.graft(element.clone(), below.modified);
        self.added.below.graft(element.clone(), below.added);
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.added.member = true,
            (_, None) => self.removed.member = true,
            (Some(old), Some(new)) => self.modified.member |= !same(old, new),
        }
    }
}

fn compare(node: Node<'_>, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let mut changes = Changes::default();
    let (was, is) = (node.shape(old), node.shape(new));
    let leaf = match (old, new) {
        (_, None) => visit(&mut changes, was, node, old, new),
        (None, _) => visit(&mut changes, is, node, old, new),
        // `null` takes the form of whatever it is compared with.
        (Some(Value::Null), _) => visit(&mut changes, is, node, old, new),
        (_, Some(Value::Null)) => visit(&mut changes, was, node, old, new),
        _ if was == is => visit(&mut changes, is, node, old, new),
        _ => {
            visit(&mut changes, was, node, old, new);
            visit(&mut changes, is, node, old, new)
        }
    };
    if !leaf {
        match (old, new) {
            (None, _) => changes.added.member = true,
            (_, None) => changes.removed.member = true,
            _ => {}
        }
    }
    changes
}

/// Compares as one shape, and says whether the place was one value.
fn visit(changes: &mut Changes, shape: Shape, node: Node<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
    match shape {
        Shape::Scalar => {
            changes.leaf(old, new);
            true
        }
        Shape::Map => {
            let (was, is) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            // Two empty ones are one value, so that `{}` and `null` stay different.
            if node.is_atomic_map() || (was.is_none_or(Map::is_empty) && is.is_none_or(Map::is_empty)) {
                changes.leaf(old, new);
                return true;
            }
            maps(changes, node, was, is);
            false
        }
        Shape::List => {
            let was = old.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let is = new.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if matches!(node.items(), Items::Atomic) || (was.is_empty() && is.is_empty()) {
                changes.leaf(old, new);
                return true;
            }
            lists(changes, node, was, is);
            false
        }
    }
}

fn maps(changes: &mut Changes, node: Node<'_>, was: Option<&Map<String, Value>>, is: Option<&Map<String, Value>>) {
    let names: BTreeSet<_> = was.into_iter().flatten().chain(is.into_iter().flatten()).map(|(name, _)| name).collect();
    for name in names {
        let (old, new) = (was.and_then(|fields| fields.get(name)), is.and_then(|fields| fields.get(name)));
        changes.graft(&Element::field(name), compare(node.field(name), old, new));
    }
}

fn lists(changes: &mut Changes, node: Node<'_>, was: &[Value], is: &[Value]) {
    let mut items: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in was {
        if let Ok(element) = node.item_element(item) {
            items.entry(element).or_default().0.push(item);
        }
    }
    for item in is {
        if let Ok(element) = node.item_element(item) {
            items.entry(element).or_default().1.push(item);
        }
    }
    for (element, (was, is)) in items {
        // Items that share their key are owned by the key alone, so a change between one and several of them replaces what
        // is owned below the key.
        match (was.as_slice(), is.as_slice()) {
            ([] | [_], [] | [_]) => {
                changes.graft(&element, compare(node.item(), was.first().copied(), is.first().copied()));
            }
            ([_, _, ..], [_, _, ..]) => {
                let equal = was.len() == is.len() && was.iter().zip(&is).all(|(old, new)| same(old, new));
                if !equal {
                    changes.modified.below.graft(element, Branch::leaf());
                }
            }
            ([_, _, ..], _) => {
                if let Some(new) = is.first() {
                    changes.graft(&element, compare(node.item(), None, Some(new)));
                }
                changes.removed.below.graft(element, Branch::leaf());
            }
            (_, [_, _, ..]) => {
                if let Some(old) = was.first() {
                    changes.graft(&element, compare(node.item(), Some(old), None));
                }
                changes.added.below.graft(element, Branch::leaf());
            }
        }
    }
}
