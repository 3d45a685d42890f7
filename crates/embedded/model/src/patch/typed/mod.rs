//! Values read by their schema: which fields they have, how two of them differ, and how they are merged.
//!
//! A field of a known object is owned by itself, an entry of a map or an associative list too; an atomic object or list is
//! owned as a whole. Below a node whose schema says nothing the type is deduced from the value: objects field by field, lists
//! as a whole.

pub mod check;
pub mod compare;
pub mod field_set;
pub mod merge;
pub mod reconcile;
pub mod remove;

use serde_json::Value;

use super::element::Element;
use super::object_meta::{OBJECT_META, TEXT};
use crate::schema::{ListType, MapType, Schema, Type};

/// What is known about one place of an object.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// A schema describes it.
    Known {
        /// The schema of this place.
        schema: &'a Schema,
        /// Unknown fields are kept here, because the schema here or above says so.
        keep: bool,
        /// The place is a whole object with `apiVersion`, `kind` and `metadata`.
        object: bool,
    },
    /// Nothing is known: objects are merged field by field, lists are atomic.
    Deduced,
    /// Nothing is known, and the value is owned as a whole.
    Atomic,
}

/// How a place is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Fields or entries by name.
    Map,
    Scalar,
    List,
}

/// How the items of a list are told apart.
#[derive(Clone, Copy, Debug)]
pub enum Items<'a> {
    /// They are not: the list is one value.
    Atomic,
    Set,
    /// By the values under these keys.
    Keyed(&'a [String]),
}

impl<'a> Node<'a> {
    /// The root of an object of this schema.
    pub fn root(schema: &'a Schema) -> Self {
        Self::Known { schema, keep: schema.preserve_unknown, object: true }
    }

    fn at(schema: &'a Schema, keep: bool) -> Self {
        Self::Known { schema, keep: keep || schema.preserve_unknown, object: schema.embedded_resource }
    }

    /// How a value here is treated. A value that fits no shape that the schema allows, `null` above all, is treated as the
    /// first of those shapes.
    pub fn shape(self, value: Option<&Value>) -> Shape {
        let deduced = match value {
            Some(Value::Array(_)) => Some(Shape::List),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Some(Shape::Scalar),
            Some(Value::Object(_)) => Some(Shape::Map),
            Some(Value::Null) | None => None,
        };
        match self {
            Self::Known { schema, .. } => match schema.ty {
                Type::Any | Type::IntOrString => deduced.unwrap_or(Shape::Map),
                Type::Object => Shape::Map,
                Type::Array => Shape::List,
                Type::String | Type::Integer | Type::Number | Type::Boolean => Shape::Scalar,
            },
            Self::Deduced | Self::Atomic => deduced.unwrap_or(Shape::Map),
        }
    }

    /// The object here is owned as a whole.
    pub(crate) fn is_atomic_map(self) -> bool {
        match self {
            Self::Known { schema, .. } => schema.map_type == MapType::Atomic,
            Self::Deduced => false,
            Self::Atomic => true,
        }
    }

    /// How the items of the list here are told apart.
    pub fn items(self) -> Items<'a> {
        let Self::Known { schema, .. } = self else {
            return Items::Atomic;
        };
        match &schema.list_type {
            ListType::Set => Items::Set,
            ListType::Map(keys) => Items::Keyed(keys),
            // Built-in lists that only name how a strategic merge patch merges them are merged so by apply too.
            ListType::Atomic if schema.strategy.merge => match &schema.strategy.merge_key {
                Some(key) => Items::Keyed(std::slice::from_ref(key)),
                None => Items::Set,
            },
            ListType::Atomic => Items::Atomic,
        }
    }

    /// A field that the schema names.
    pub fn named(self, name: &str) -> Option<Node<'a>> {
        let Self::Known { schema, keep, object } = self else {
            return None;
        };
        if object {
            match name {
                "apiVersion" | "kind" => return Some(Node::at(&TEXT, false)),
                "metadata" => return Some(Node::at(&OBJECT_META, false)),
                _ => {}
            }
        }
        schema.properties.get(name).map(|schema| Node::at(schema, keep))
    }

    /// What every field is that the schema does not name; none where there must be no other.
    pub fn other(self) -> Option<Node<'a>> {
        match self {
            Self::Known { schema, keep, object } => match &schema.additional {
                Some(schema) => Some(Node::at(schema, keep)),
                None if keep || schema.ty == Type::Any && schema.properties.is_empty() => Some(Node::Deduced),
                // A whole object without further fields has at least those that every object has.
                None if schema.properties.is_empty() && !object => Some(Node::Deduced),
                None => None,
            },
            Self::Deduced => Some(Self::Deduced),
            Self::Atomic => Some(Self::Atomic),
        }
    }

    /// A field, whether named or not. Fields that should not be there are treated as unknown ones.
    pub fn field(self, name: &str) -> Node<'a> {
        self.named(name).or_else(|| self.other()).unwrap_or(Node::Deduced)
    }

    /// The items of the list here.
    pub fn item(self) -> Node<'a> {
        match self {
            Self::Known { schema, keep, .. } => match &schema.items {
                Some(items) => Node::at(items, keep),
                None => Node::Atomic,
            },
            Self::Deduced | Self::Atomic => Node::Atomic,
        }
    }

    /// What tells an item of the associative list here apart from the others.
    pub(crate) fn item_element(self, item: &Value) -> Result<Element, String> {
        match self.items() {
            Items::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            Items::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                value => Ok(Element::Value(value.clone())),
            },
            Items::Keyed(keys) => match item {
                Value::Object(fields) => {
                    let values: Vec<_> = keys
                        .iter()
                        .filter_map(|key| {
                            let value = fields.get(key).or_else(|| self.key_default(key))?;
                            Some((key.clone(), value.clone()))
                        })
                        .collect();
                    if values.is_empty() {
                        let keys: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
                        return Err(format!(
                            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                            keys.join(" ")
                        ));
                    }
                    Ok(Element::key(values))
                }
                Value::Null => Err("associative list with keys may not have a null element".to_owned()),
                _ => Err("associative list with keys may not have non-map elements".to_owned()),
            },
        }
    }

    fn key_default(self, key: &str) -> Option<&'a Value> {
        let Self::Known { schema, .. } = self else {
            return None;
        };
        schema.items.as_ref()?.properties.get(key)?.default.as_ref()
    }
}

/// What is wrong with a value, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<(String, String)>);

impl Problems {
    /// One problem at the place itself.
    pub fn here(text: impl Into<String>) -> Self {
        Self(vec![(String::new(), text.into())])
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what is wrong below a step.
    pub fn add(&mut self, below: Problems, step: impl std::fmt::Display) {
        self.0.extend(below.0.into_iter().map(|(path, text)| (format!("{step}{path}"), text)));
    }
}

impl std::fmt::Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = |(path, text): &(String, String)| match path.as_str() {
            "" => text.clone(),
            path => format!("{path}: {text}"),
        };
        match self.0.as_slice() {
            [only] => f.write_str(&line(only)),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|problem| write!(f, "\n  {}", line(problem)))
            }
        }
    }
}
