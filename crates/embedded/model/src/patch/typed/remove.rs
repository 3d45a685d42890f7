//! An object without some of its fields.

use serde_json::{Map, Value};

use super::{Items, Node, Shape};
use crate::patch::element::Element;
use crate::patch::fields::Set;
use crate::schema::Schema;

/// The object without the fields of the set, and without what is below them.
///
/// A map or list that stays, but of which nothing is left, becomes `null`, as it does in Kubernetes.
pub fn from(object: &Value, fields: &Set, schema: &Schema) -> Value {
    remove(Node::root(schema), object, fields).unwrap_or_else(|| Value::Object(Map::new()))
}

/// What is left, if anything is.
fn remove(node: Node<'_>, value: &Value, fields: &Set) -> Option<Value> {
    match (node.shape(Some(value)), value) {
        (Shape::Map, Value::Object(members)) if !node.is_atomic_map() => {
            let mut left = Map::new();
            for (name, value) in members {
                let value = match fields.branch(&Element::field(name)) {
                    Some(branch) if branch.member => continue,
                    Some(branch) => remove(node.field(name), value, &branch.below).unwrap_or(Value::Null),
                    None => value.clone(),
                };
                left.insert(name.clone(), value);
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        (Shape::List, Value::Array(items)) if !matches!(node.items(), Items::Atomic) => {
            let mut left = Vec::with_capacity(items.len());
            for item in items {
                let element = node.item_element(item).ok();
                left.push(match element.and_then(|element| fields.branch(&element)) {
                    Some(branch) if branch.member => continue,
                    Some(branch) => remove(node.item(), item, &branch.below).unwrap_or(Value::Null),
                    None => item.clone(),
                });
            }
            (!left.is_empty()).then_some(Value::Array(left))
        }
        (Shape::Scalar, value) => Some(value.clone()),
        _ => None,
    }
}
