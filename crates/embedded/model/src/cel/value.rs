//! Values of CEL expressions.
//!
//! Objects and lists stay what they are, JSON, and are read through their schema when an expression asks for a
//! part of them: nothing is converted that is not looked at.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::Value;

use super::Fault;
use crate::quantity::Quantity;
use crate::schema::error::go_json;
use crate::schema::format::{self, Format};
use crate::schema::{ListType, Schema, Type};

/// A value of a CEL expression.
#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Cow<'a, str>),
    Bytes(Rc<[u8]>),
    List(List<'a>),
    Map(Map<'a>),
    /// The length in nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    Optional(Option<Rc<Val<'a>>>),
    Type(&'static str),
    Quantity(Quantity),
    Url(Rc<super::network::Url>),
    Ip(IpAddr),
    Cidr(super::network::Cidr),
}

/// A list, of JSON or made by an expression.
#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Json(&'a [Value], Option<&'a Schema>),
    Made(Rc<Vec<Val<'a>>>),
}

/// A map or an object, of JSON or made by an expression.
#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    Json(Object<'a>),
    Made(Rc<Vec<(Val<'a>, Val<'a>)>>),
}

/// A JSON object and what is known about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object<'a> {
    map: &'a serde_json::Map<String, Value>,
    schema: Option<&'a Schema>,
    /// The object is a whole one, with `apiVersion`, `kind` and names that every schema knows.
    whole: bool,
}

impl<'a> Val<'a> {
    /// A JSON value whose schema is not known.
    pub fn plain(value: &'a Value) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(b) => Val::Bool(*b),
            Value::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(i), _) => Val::Int(i),
                (None, Some(u)) => Val::Uint(u),
                _ => Val::Double(n.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(s) => Val::Str(Cow::Borrowed(s)),
            Value::Array(items) => Val::List(List::Json(items, None)),
            Value::Object(map) => Val::Map(Map::Json(Object { map, schema: None, whole: false })),
        }
    }

    /// A JSON value as its schema types it.
    pub fn typed(value: &'a Value, schema: &'a Schema, root: bool) -> Result<Val<'a>, Fault> {
        Ok(match (value, schema.ty) {
            (Value::Null, _) if schema.nullable || schema.ty == Type::Any => Val::Null,
            (Value::Null, _) => {
                return Err(Fault::other("invalid data, got null for schema with nullable=false"));
            }
            (Value::Number(n), Type::Number) => Val::Double(n.as_f64().unwrap_or(f64::NAN)),
            (Value::Number(n), Type::Integer) if n.is_f64() => Val::Int(n.as_f64().unwrap_or_default() as i64),
            (Value::String(s), Type::String) => typed_string(s, schema)?,
            (Value::Array(items), Type::Array) => Val::List(List::Json(items, Some(schema))),
            (Value::Object(map), Type::Object) => {
                Val::Map(Map::Json(Object { map, schema: Some(schema), whole: root || schema.embedded_resource }))
            }
            _ => Val::plain(value),
        })
    }

    /// A string made by an expression.
    pub fn text(s: impl Into<String>) -> Val<'a> {
        Val::Str(Cow::Owned(s.into()))
    }

    /// A list made by an expression.
    pub fn list(items: Vec<Val<'a>>) -> Val<'a> {
        Val::List(List::Made(Rc::new(items)))
    }

    /// The name of the value's type, as `type()` gives it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::Str(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::List(_) => "list",
            Val::Map(_) => "map",
            Val::Duration(_) => "google.protobuf.Duration",
            Val::Timestamp(_) => "google.protobuf.Timestamp",
            Val::Optional(_) => "optional_type",
            Val::Type(_) => "type",
            Val::Quantity(_) => "kubernetes.Quantity",
            Val::Url(_) => "kubernetes.URL",
            Val::Ip(_) => "net.IP",
            Val::Cidr(_) => "net.CIDR",
        }
    }

    /// The value as JSON, for results that leave the expression.
    pub fn json(&self) -> Value {
        match self {
            Val::Null | Val::Optional(None) => Value::Null,
            Val::Bool(b) => Value::Bool(*b),
            Val::Int(i) => (*i).into(),
            Val::Uint(u) => (*u).into(),
            Val::Double(d) => (*d).into(),
            Val::Str(s) => Value::String(s.to_string()),
            Val::Bytes(b) => Value::String(base64::engine::general_purpose::STANDARD.encode(b)),
            Val::List(List::Json(items, _)) => Value::Array(items.to_vec()),
            Val::List(List::Made(items)) => items.iter().map(Val::json).collect(),
            Val::Map(Map::Json(object)) => Value::Object(object.map.clone()),
            Val::Map(Map::Made(entries)) => {
                let name = |key: &Val<'_>| match key {
                    Val::Str(s) => s.to_string(),
                    other => go_json(&other.json()),
                };
                Value::Object(entries.iter().map(|(k, v)| (name(k), v.json())).collect())
            }
            Val::Duration(nanos) => Value::String(crate::schema::duration::format(*nanos)),
            Val::Timestamp(t) => Value::String(t.to_string()),
            Val::Optional(Some(v)) => v.json(),
            Val::Type(name) => Value::String((*name).to_owned()),
            Val::Quantity(q) => Value::String(q.to_string()),
            Val::Url(url) => Value::String(url.text.clone()),
            Val::Ip(ip) => Value::String(ip.to_string()),
            Val::Cidr(cidr) => Value::String(cidr.to_string()),
        }
    }

    /// Whether two values are equal. Numbers of different types are equal when they mean the same number.
    pub fn equals(&self, other: &Val<'a>) -> Result<bool, Fault> {
        Ok(match (self, other) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Str(a), Val::Str(b)) => a == b,
            (Val::Bytes(a), Val::Bytes(b)) => a == b,
            (Val::Duration(a), Val::Duration(b)) => a == b,
            (Val::Timestamp(a), Val::Timestamp(b)) => a == b,
            (Val::Type(a), Val::Type(b)) => a == b,
            (Val::Quantity(a), Val::Quantity(b)) => a == b,
            (Val::Url(a), Val::Url(b)) => a.text == b.text,
            (Val::Ip(a), Val::Ip(b)) => a == b,
            (Val::Cidr(a), Val::Cidr(b)) => a == b,
            (Val::Optional(a), Val::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b)?,
                _ => false,
            },
            (Val::List(a), Val::List(b)) => a.equals(b)?,
            (Val::Map(a), Val::Map(b)) => a.equals(b)?,
            (a, b) => match number_order(a, b) {
                Some(order) => order == Some(Ordering::Equal),
                None => false,
            },
        })
    }

    /// How two values compare; `None` for a `NaN`.
    pub fn compare(&self, other: &Val<'a>) -> Result<Option<Ordering>, Fault> {
        Ok(match (self, other) {
            (Val::Str(a), Val::Str(b)) => Some(a.as_ref().cmp(b.as_ref())),
            (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
            (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
            (Val::Duration(a), Val::Duration(b)) => Some(a.cmp(b)),
            (Val::Timestamp(a), Val::Timestamp(b)) => Some(a.cmp(b)),
            (a, b) => number_order(a, b).ok_or(Fault::NoSuchOverload)?,
        })
    }
}

fn typed_string<'a>(s: &'a str, schema: &Schema) -> Result<Val<'a>, Fault> {
    // A format is a type only under the exact name.
    Ok(match (schema.checks.format, schema.checks.format_name.as_deref()) {
        (Some(Format::Duration), Some("duration")) => {
            let nanos = format::parse_duration(s);
            Val::Duration(nanos.ok_or_else(|| Fault::Other(format!("Invalid duration {s}")))?)
        }
        (Some(Format::DateTime), Some("date-time")) => {
            Val::Timestamp(s.parse().map_err(|e| Fault::Other(format!("Invalid date-time formatted string {s}: {e}")))?)
        }
        (Some(Format::Date), Some("date")) => {
            let day = s.parse::<jiff::civil::Date>().ok();
            let start = day.and_then(|d| d.to_zoned(jiff::tz::TimeZone::UTC).ok());
            let start = start.ok_or_else(|| Fault::Other(format!("Invalid date formatted string {s}")))?;
            Val::Timestamp(start.timestamp())
        }
        (Some(Format::Byte), Some("byte")) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(s);
            let bytes = bytes.map_err(|e| Fault::Other(format!("Invalid byte formatted string {s}: {e}")))?;
            Val::Bytes(bytes.into())
        }
        _ => Val::Str(Cow::Borrowed(s)),
    })
}

/// How two numbers compare across their types; the outer `None` where one of them is no number.
fn number_order(a: &Val<'_>, b: &Val<'_>) -> Option<Option<Ordering>> {
    use Val::{Double, Int, Uint};
    Some(match (a, b) {
        (Int(a), Int(b)) => Some(a.cmp(b)),
        (Uint(a), Uint(b)) => Some(a.cmp(b)),
        (Double(a), Double(b)) => a.partial_cmp(b),
        (Int(a), Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Uint(a), Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Int(a), Double(b)) => (*a as f64).partial_cmp(b),
        (Double(a), Int(b)) => a.partial_cmp(&(*b as f64)),
        (Uint(a), Double(b)) => (*a as f64).partial_cmp(b),
        (Double(a), Uint(b)) => a.partial_cmp(&(*b as f64)),
        _ => return None,
    })
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Made(items) => items.len(),
        }
    }

    /// The item at `index`, which must be below the length.
    pub fn get(&self, index: usize) -> Result<Val<'a>, Fault> {
        match self {
            List::Json(items, schema) => match schema.and_then(|s| s.items.as_deref()) {
                Some(schema) => Val::typed(&items[index], schema, false),
                None => Ok(Val::plain(&items[index])),
            },
            List::Made(items) => Ok(items[index].clone()),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Val<'a>, Fault>> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    pub fn contains(&self, wanted: &Val<'a>) -> Result<bool, Fault> {
        for item in self.iter() {
            if item?.equals(wanted)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets and map-like lists are equal in any order.
    fn equals(&self, other: &List<'a>) -> Result<bool, Fault> {
        if self.len() != other.len() {
            return Ok(false);
        }
        let unordered = match self {
            List::Json(_, Some(schema)) => schema.list_type != ListType::Atomic,
            _ => false,
        };
        for (i, item) in self.iter().enumerate() {
            let item = item?;
            let equal = item.equals(&other.get(i)?)? || (unordered && other.contains(&item)?);
            if !equal {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Json(object) => object.map.len(),
            Map::Made(entries) => entries.len(),
        }
    }

    /// The value under a key.
    pub fn get(&self, key: &Val<'a>) -> Result<Option<Val<'a>>, Fault> {
        match self {
            Map::Json(object) => match key {
                Val::Str(key) => object.get(key),
                _ => Ok(None),
            },
            Map::Made(entries) => {
                for (k, v) in entries.iter() {
                    if k.equals(key)? {
                        return Ok(Some(v.clone()));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The value of a field as an expression writes it: `self.field`.
    pub fn select(&self, field: &'a str) -> Result<Option<Val<'a>>, Fault> {
        match self {
            Map::Json(object) if object.has_fields() => object.get(&super::names::unescape(field)),
            _ => self.get(&Val::Str(Cow::Borrowed(field))),
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Map::Json(object) => object.map.keys().map(|k| Val::Str(Cow::Borrowed(k.as_str()))).collect(),
            Map::Made(entries) => entries.iter().map(|(k, _)| k.clone()).collect(),
        }
    }

    fn equals(&self, other: &Map<'a>) -> Result<bool, Fault> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if let (Map::Json(a), Map::Json(b)) = (self, other)
            && std::ptr::eq(a.map, b.map)
        {
            return Ok(true);
        }
        for key in self.keys() {
            let equal = match (self.any(&key)?, other.any(&key)?) {
                (Some(a), Some(b)) => a.equals(&b)?,
                _ => false,
            };
            if !equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Like [`Map::get`], but sees fields that the schema does not know: they count when objects are compared.
    fn any(&self, key: &Val<'a>) -> Result<Option<Val<'a>>, Fault> {
        match (self, key) {
            (Map::Json(object), Val::Str(name)) => match object.get(name)? {
                Some(value) => Ok(Some(value)),
                None => Ok(object.map.get(name.as_ref()).map(Val::plain)),
            },
            _ => self.get(key),
        }
    }
}

impl<'a> Object<'a> {
    /// The object has named fields, rather than being a map of any keys.
    fn has_fields(&self) -> bool {
        self.schema.is_some_and(|s| s.additional.is_none())
    }

    fn get(&self, key: &str) -> Result<Option<Val<'a>>, Fault> {
        let Some(value) = self.map.get(key) else {
            return Ok(None);
        };
        let Some(schema) = self.schema else {
            return Ok(Some(Val::plain(value)));
        };
        if self.whole && matches!(key, "apiVersion" | "kind" | "metadata") {
            return Ok(Some(Val::plain(value)));
        }
        match schema.field(key) {
            Some(field) => Val::typed(value, field, false).map(Some),
            None => Ok(None),
        }
    }
}
