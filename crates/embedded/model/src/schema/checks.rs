//! Value checks of a schema node.

use std::sync::Arc;

use serde_json::Value;

use super::Schema;
use super::format::Format;
use super::pattern::Pattern;
use crate::cel::Rule;

/// Everything that a value must satisfy beyond its type.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// Fields that an object must have.
    pub required: Vec<String>,
    /// The values that are allowed; empty allows all.
    pub one_of_values: Vec<Value>,
    pub maximum: Option<Bound>,
    pub minimum: Option<Bound>,
    /// A number must be a multiple of this.
    pub multiple_of: Option<f64>,
    /// The most characters of a string.
    pub max_length: Option<u64>,
    /// The fewest characters of a string.
    pub min_length: Option<u64>,
    /// What a string must match.
    pub pattern: Option<Pattern>,
    /// The format of a string, where it is one that is checked.
    pub format: Option<Format>,
    /// `format` as it was written.
    pub format_name: Option<String>,
    /// The most items of a list.
    pub max_items: Option<u64>,
    /// The fewest items of a list.
    pub min_items: Option<u64>,
    /// The items of a list must differ from each other.
    pub unique_items: bool,
    /// The most fields of an object.
    pub max_properties: Option<u64>,
    /// The fewest fields of an object.
    pub min_properties: Option<u64>,
    /// Fields that are not named are refused (`additionalProperties: false`).
    pub no_additional: bool,
    /// Every one of these schemas must hold.
    pub all_of: Vec<Arc<Schema>>,
    /// At least one of these schemas must hold.
    pub any_of: Vec<Arc<Schema>>,
    /// Exactly one of these schemas must hold.
    pub one_of: Vec<Arc<Schema>>,
    /// This schema must not hold.
    pub not: Option<Arc<Schema>>,
    /// The CEL rules of the node itself.
    pub rules: Vec<Arc<Rule>>,
    /// This node or one below it has CEL rules.
    pub has_rules: bool,
}

/// A bound on a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub limit: f64,
    /// The bound itself is out.
    pub exclusive: bool,
}
