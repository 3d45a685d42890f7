//! Whether a configuration has only fields that the schema knows, of the right form, and no two items of the same key.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Items, Node, Problems, Shape};
use crate::patch::element::Element;
use crate::patch::go_text::go_text;
use crate::schema::{Schema, Type};

/// What is wrong with the form of a configuration.
pub fn object(value: &Value, schema: &Schema) -> Result<(), Problems> {
    let problems = check(Node::root(schema), value);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn check(node: Node<'_>, value: &Value) -> Problems {
    if value.is_null() {
        return Problems::default();
    }
    match (node.shape(Some(value)), value) {
        (Shape::Map, Value::Object(fields)) => {
            let mut problems = Problems::default();
            for (name, value) in fields {
                let Some(field) = node.named(name).or_else(|| node.other()) else {
                    problems.add(Problems::here("field not declared in schema"), Element::field(name));
                    break;
                };
                problems.add(check(field, value), Element::field(name));
            }
            problems
        }
        (Shape::List, Value::Array(items)) => list(node, items),
        (Shape::Map, value) => Problems::here(format!("expected map, got {}", described(value))),
        (Shape::List, value) => Problems::here(format!("expected list, got {}", described(value))),
        (Shape::Scalar, value) => scalar(node, value),
    }
}

fn list(node: Node<'_>, items: &[Value]) -> Problems {
    let mut problems = Problems::default();
    let mut seen = BTreeSet::new();
    for (at, item) in (0_i64..).zip(items) {
        let element = if matches!(node.items(), Items::Atomic) {
            Element::Index(at)
        } else {
            match node.item_element(item) {
                Ok(element) => element,
                Err(error) => {
                    problems.add(Problems::here(format!("element {at}: {error}")), "");
                    return problems;
                }
            }
        };
        if seen.contains(&element) {
            problems.add(Problems::here(format!("duplicate entries for key {element}")), "");
        }
        problems.add(check(node.item(), item), &element);
        seen.insert(element);
    }
    problems
}

fn scalar(node: Node<'_>, value: &Value) -> Problems {
    let Node::Known { schema, .. } = node else {
        return Problems::default();
    };
    match (schema.ty, value) {
        (Type::Integer | Type::Number, Value::Number(_)) | (Type::Boolean, Value::Bool(_)) => Problems::default(),
        (Type::Integer | Type::Number, value) => {
            Problems::here(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        (Type::Boolean, value) => Problems::here(format!("expected boolean, got {}", described(value))),
        (Type::String, Value::Number(_) | Value::Bool(_)) => {
            Problems::here(format!("expected string, got &value.valueUnstructured{{Value:{value}}}"))
        }
        // Quantities and times are texts that may be written as numbers; the validation of the schema looks closer.
        (_, Value::Object(_) | Value::Array(_)) => Problems::here(format!("expected string, got {}", described(value))),
        _ => Problems::default(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn described(value: &Value) -> String {
    format!("&{{{}}}", go_text(value))
}
