//! One step of a field path, as `FieldsV1` spells it: `f:name`, `k:{"name":"x"}`, `v:"x"`, `i:0`.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Number, Value};

/// One step from an object, map or list to what it holds.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field of an object or an entry of a map.
    Field(String),
    /// The item of a list of objects that has these values under its keys, sorted by key.
    Key(Vec<(String, Value)>),
    /// The item of a set that equals this value.
    Value(Value),
    /// The item at this place.
    Index(i64),
}

/// A step that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ElementError {
    /// Shorter than a kind and a colon.
    #[error("key must be 2 characters long: {0:?}")]
    Short(String),
    /// No colon after the kind.
    #[error("missing colon: {0}")]
    Colon(String),
    /// What follows `k:` or `v:` is not JSON, or what follows `i:` is not a number.
    #[error("parsing key as path element {0:?}: {1}")]
    Content(String, String),
    /// A kind of step that a later version may know; readers skip it.
    #[error("unknown path element type")]
    Unknown,
}

impl Element {
    /// A field of this name.
    pub fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// The list item with these keys, whatever their order.
    pub fn key(mut fields: Vec<(String, Value)>) -> Self {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields)
    }

    /// Reads the spelling of `FieldsV1`.
    pub fn parse(text: &str) -> Result<Self, ElementError> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err(ElementError::Short(text.to_owned()));
        }
        if bytes[1] != b':' {
            return Err(ElementError::Colon(text.to_owned()));
        }
        let content = |error: String| ElementError::Content(text.to_owned(), error);
        let rest = &text[2..];
        match bytes[0] {
            b'f' => Ok(Self::Field(rest.to_owned())),
            b'v' => serde_json::from_str(rest).map(Self::Value).map_err(|e| content(e.to_string())),
            b'k' => serde_json::from_str::<Map<String, Value>>(rest)
                .map(|fields| Self::key(fields.into_iter().collect()))
                .map_err(|e| content(e.to_string())),
            b'i' => rest.parse().map(Self::Index).map_err(|_| content("not a number".to_owned())),
            _ => Err(ElementError::Unknown),
        }
    }

    /// The spelling of `FieldsV1`; [`Element::parse`] reads it back.
    pub fn serialize(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), json_text(value)))
                    .collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", json_text(value)),
            Self::Index(at) => format!("i:{at}"),
        }
    }
}

/// Compact JSON as the API server writes it, with the characters escaped that are special to HTML.
fn json_text(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// How conflicts and errors print the step: `.name`, `[name="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("{name}={}", value_text(value))).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", value_text(value)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(value) => format!("{value:?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(value_text).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => fields.iter().map(|(name, value)| format!("{name}={}", value_text(value))).collect(),
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                for ((name, value), (other_name, other_value)) in a.iter().zip(b) {
                    let order = name.cmp(other_name).then_with(|| compare(value, other_value));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// A total order of JSON values: numbers by what they count, then texts, booleans, lists, objects, null.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => a
            .iter()
            .zip(b)
            .map(|(a, b)| compare(a, b))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| a.len().cmp(&b.len())),
        (Value::Object(a), Value::Object(b)) => {
            let (a, b) = (sorted(a), sorted(b));
            a.iter()
                .zip(&b)
                .map(|((name, value), (other_name, other_value))| {
                    name.cmp(other_name).then_with(|| compare(value, other_value))
                })
                .find(|order| order.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Whether two values are the same to the API: `1` and `1.0` are, and the order of fields does not matter.
pub fn same(a: &Value, b: &Value) -> bool {
    compare(a, b) == Ordering::Equal
}

fn sorted(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = fields.iter().collect();
    // A map that keeps the order of insertion would otherwise make equal objects differ.
    fields.sort_by(|a, b| a.0.cmp(b.0));
    fields
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (None, None) => float(a).total_cmp(&float(b)),
        (Some(a), None) => compare_mixed(a, float(b)),
        (None, Some(b)) => compare_mixed(b, float(a)).reverse(),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or_default()
}

/// Compares by value without rounding the integer, so that the order stays transitive.
fn compare_mixed(integer: i128, float: f64) -> Ordering {
    const LIMIT: f64 = 1.7e38;
    if float >= LIMIT {
        return Ordering::Less;
    }
    if float <= -LIMIT {
        return Ordering::Greater;
    }
    let floor = float.floor();
    #[expect(clippy::cast_possible_truncation, reason = "the limits above keep the float in the range of i128")]
    let whole = floor as i128;
    integer.cmp(&whole).then(if float > floor { Ordering::Less } else { Ordering::Equal })
}
