//! Structural schemas: what a field is, how it is defaulted, pruned, validated and merged.
//!
//! One [`Schema`] tree describes a kind, whether it came with a `CustomResourceDefinition` or is built in.

pub(crate) mod builtin;
pub(crate) mod checks;
mod default;
pub(crate) mod duration;
pub(crate) mod error;
pub(crate) mod format;
mod known;
pub(crate) mod parse;
pub(crate) mod path;
pub(crate) mod pattern;
mod prune;
mod structural;
mod unique;
pub(crate) mod validate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use builtin::{Components, always, base64_error, builtin, builtin_json, kinds, metadata_error, type_error};
pub use error::{FieldError, FieldErrorKind, WHOLE_OBJECT, type_name};

/// One node of a structural schema.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The JSON type, or [`Type::Any`] where the schema does not say.
    pub ty: Type,
    /// Named fields of an object.
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// The schema of every other field of an object (`additionalProperties`): the object is a map.
    pub additional: Option<Arc<Schema>>,
    /// The schema of a list's items.
    pub items: Option<Arc<Schema>>,
    /// `null` is a value of its own and is kept.
    pub nullable: bool,
    /// Unknown fields below this node are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// The node is a whole object of its own with `apiVersion`, `kind`, `metadata` (`x-kubernetes-embedded-resource`).
    pub embedded_resource: bool,
    /// How two writers' lists are merged by apply.
    pub list_type: ListType,
    /// How two writers' objects are merged by apply.
    pub map_type: MapType,
    /// How a strategic merge patch merges this list or object (built-in kinds only).
    pub strategy: Strategy,
    /// The value that an absent field gets.
    pub default: Option<Value>,
    /// Everything that a value must satisfy.
    pub checks: checks::Checks,
    /// `description`, for `kubectl explain`.
    pub description: Option<String>,
}

impl Schema {
    /// The schema of the field `name` of an object, if the schema knows it.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(self.additional.as_ref()).map(AsRef::as_ref)
    }
}

/// The JSON type of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// The schema does not say.
    #[default]
    Any,
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
    /// `x-kubernetes-int-or-string`
    IntOrString,
}

impl Type {
    /// The type as a schema names it; empty where a schema names none.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any | Self::IntOrString => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// One manager owns the whole list.
    #[default]
    Atomic,
    /// Scalars, each owned by itself.
    Set,
    /// Objects, told apart by these keys.
    Map(Vec<String>),
}

/// `x-kubernetes-map-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Each field is owned by itself.
    #[default]
    Granular,
    /// One manager owns the whole object.
    Atomic,
}

/// `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// `merge` was named: lists are merged instead of replaced.
    pub merge: bool,
    /// `retainKeys` was named: fields that the patch does not list in `$retainKeys` are dropped.
    pub retain_keys: bool,
    /// The field that tells the items of a merged list of objects apart.
    pub merge_key: Option<String>,
}
