//! Which fields a value has.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Items, Node, Shape};
use crate::patch::element::Element;
use crate::patch::fields::{Branch, Set};
use crate::schema::Schema;

/// All fields of an object: values, atomic objects and lists, and the items of maps and associative lists.
pub fn of(object: &Value, schema: &Schema) -> Set {
    branch(Node::root(schema), object).below
}

fn branch(node: Node<'_>, value: &Value) -> Branch {
    match node.shape(Some(value)) {
        Shape::Scalar => Branch::leaf(),
        Shape::Map if node.is_atomic_map() => Branch::leaf(),
        Shape::Map => Branch { member: false, below: map(node, value) },
        Shape::List if matches!(node.items(), Items::Atomic) => Branch::leaf(),
        Shape::List => Branch { member: false, below: list(node, value) },
    }
}

fn map(node: Node<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let mut field = branch(node.field(name), value);
        // Maps own their entries; objects own a field only where there is nothing below that could be owned.
        let nothing_below = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        field.member |= nothing_below || node.named(name).is_none();
        set.graft(Element::field(name), field);
    }
    set
}

fn list(node: Node<'_>, value: &Value) -> Set {
    let mut items: BTreeMap<Element, (&Value, bool)> = BTreeMap::new();
    for item in value.as_array().into_iter().flatten() {
        if let Ok(element) = node.item_element(item) {
            items.entry(element).and_modify(|(_, repeated)| *repeated = true).or_insert((item, false));
        }
    }
    let mut set = Set::default();
    for (element, (item, repeated)) in items {
        // Which of several items with the same key a field belongs to cannot be said, so only the key is owned.
        let mut below = if repeated { Branch::default() } else { branch(node.item(), item) };
        below.member = true;
        set.graft(element, below);
    }
    set
}
