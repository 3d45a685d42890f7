//! Values of outputs with their types, as a state has them. Pure.
//!
//! Numbers are kept as text, because terraform's have more digits than a float.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::value::RawValue;

/// The deepest value that is read. Terraform's own values have a few levels.
const DEEPEST: usize = 200;
/// A number with a larger exponent stays as it is written, because its digits would fill the memory.
const LARGEST_EXPONENT: i64 = 4096;

/// A type of terraform's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Number,
    Bool,
    /// The type is that of the value.
    Dynamic,
    List(Box<Type>),
    Set(Box<Type>),
    Map(Box<Type>),
    Object(BTreeMap<String, Type>),
    Tuple(Vec<Type>),
}

impl Type {
    /// Reads a type as a state has it: `"string"`, `["list", "string"]`, `["object", {"a": "number"}]`.
    pub fn parse(json: &serde_json::Value) -> Result<Self> {
        Self::parse_at(json, 0)
    }

    fn parse_at(json: &serde_json::Value, depth: usize) -> Result<Self> {
        use serde_json::Value;
        if depth > DEEPEST {
            bail!("a type of an output is too deep");
        }
        let inner = |json: &Value| Self::parse_at(json, depth + 1);
        Ok(match json {
            Value::String(name) => match name.as_str() {
                "string" => Type::String,
                "number" => Type::Number,
                "bool" => Type::Bool,
                "dynamic" => Type::Dynamic,
                _ => bail!("an output has the unknown type `{name}`"),
            },
            Value::Array(parts) => match (parts.first().and_then(Value::as_str), parts.get(1)) {
                (Some("list"), Some(of)) => Type::List(Box::new(inner(of)?)),
                (Some("set"), Some(of)) => Type::Set(Box::new(inner(of)?)),
                (Some("map"), Some(of)) => Type::Map(Box::new(inner(of)?)),
                (Some("tuple"), Some(Value::Array(of))) => Type::Tuple(of.iter().map(inner).collect::<Result<_>>()?),
                (Some("object"), Some(Value::Object(of))) => {
                    Type::Object(of.iter().map(|(name, of)| Ok((name.clone(), inner(of)?))).collect::<Result<_>>()?)
                }
                _ => bail!("an output has an unknown type"),
            },
            _ => bail!("an output has an unknown type"),
        })
    }

    /// The name of the type in messages.
    pub fn friendly(&self) -> String {
        match self {
            Type::String => "string".to_owned(),
            Type::Number => "number".to_owned(),
            Type::Bool => "bool".to_owned(),
            Type::Dynamic => "dynamic".to_owned(),
            Type::List(of) => format!("list of {}", of.friendly()),
            Type::Set(of) => format!("set of {}", of.friendly()),
            Type::Map(of) => format!("map of {}", of.friendly()),
            Type::Object(_) => "object".to_owned(),
            Type::Tuple(_) => "tuple".to_owned(),
        }
    }
}

/// A value without its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Sequence(Vec<TypedValue>),
    Mapping(BTreeMap<String, TypedValue>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedValue {
    pub content: Content,
    pub type_: Type,
}

/// Why a value has no raw form.
#[derive(Debug, PartialEq, Eq)]
pub enum NotRaw {
    Null,
    Type(String),
}

impl TypedValue {
    /// Reads a value of this type.
    pub fn parse(json: &RawValue, type_: Type) -> Result<Self> {
        Self::parse_at(json, type_, 0)
    }

    fn parse_at(json: &RawValue, type_: Type, depth: usize) -> Result<Self> {
        if depth > DEEPEST {
            bail!("a value of an output is too deep");
        }
        let text = json.get().trim();
        let content = match text.as_bytes().first() {
            Some(b'n') | None => Content::Null,
            Some(b't') => Content::Bool(true),
            Some(b'f') => Content::Bool(false),
            Some(b'"') => Content::String(serde_json::from_str(text)?),
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text)?;
                let types = |number: usize| match &type_ {
                    Type::List(of) | Type::Set(of) => (**of).clone(),
                    Type::Tuple(of) => of.get(number).cloned().unwrap_or(Type::Dynamic),
                    _ => Type::Dynamic,
                };
                let items = items.iter().enumerate().map(|(n, item)| Self::parse_at(item, types(n), depth + 1));
                Content::Sequence(items.collect::<Result<_>>()?)
            }
            Some(b'{') => {
                let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
                if let (Type::Dynamic, Some(of), Some(value), 2) =
                    (&type_, fields.get("type"), fields.get("value"), fields.len())
                    && let Ok(of) = Type::parse(&serde_json::from_str(of.get())?)
                {
                    // A value of a dynamic type has its type beside it.
                    return Self::parse_at(value, of, depth + 1);
                }
                let types = |name: &String| match &type_ {
                    Type::Map(of) => (**of).clone(),
                    Type::Object(of) => of.get(name).cloned().unwrap_or(Type::Dynamic),
                    _ => Type::Dynamic,
                };
                let fields = fields.into_iter().map(|(name, value)| {
                    let value = Self::parse_at(value, types(&name), depth + 1)?;
                    Ok((name, value))
                });
                Content::Mapping(fields.collect::<Result<_>>()?)
            }
            Some(_) => Content::Number(number(text)),
        };
        let type_ = if type_ == Type::Dynamic { inferred(&content) } else { type_ };
        Ok(TypedValue { content, type_ })
    }

    /// The value as a string, as `-raw` prints it.
    pub fn raw(&self) -> Result<String, NotRaw> {
        match &self.content {
            Content::Null => Err(NotRaw::Null),
            Content::Bool(value) => Ok(value.to_string()),
            Content::Number(text) | Content::String(text) => Ok(text.clone()),
            Content::Sequence(_) | Content::Mapping(_) => Err(NotRaw::Type(self.type_.friendly())),
        }
    }
}

/// The type of a value that comes without one.
fn inferred(content: &Content) -> Type {
    match content {
        Content::Null => Type::Dynamic,
        Content::Bool(_) => Type::Bool,
        Content::Number(_) => Type::Number,
        Content::String(_) => Type::String,
        Content::Sequence(items) => Type::Tuple(items.iter().map(|item| item.type_.clone()).collect()),
        Content::Mapping(fields) => {
            Type::Object(fields.iter().map(|(name, field)| (name.clone(), field.type_.clone())).collect())
        }
    }
}

/// A JSON number without an exponent and without superfluous zeros.
fn number(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let Some(exponent) = exponent.parse::<i64>().ok().filter(|exponent| exponent.abs() <= LARGEST_EXPONENT) else {
        return text.to_owned();
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).unwrap_or_default() + exponent;
    let (whole, fraction) = match usize::try_from(point) {
        Ok(point) if point >= all.len() => (format!("{all}{}", "0".repeat(point - all.len())), String::new()),
        Ok(point) => (all[..point].to_owned(), all[point..].to_owned()),
        Err(_) => (String::new(), format!("{}{all}", "0".repeat(usize::try_from(-point).unwrap_or_default()))),
    };
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_terraform_writes_them() {
        let rows = [
            ("1", "1"),
            ("-1.50", "-1.5"),
            ("1.0", "1"),
            ("1e3", "1000"),
            ("1.25E+1", "12.5"),
            ("12e-3", "0.012"),
            ("0.000000000000000000001", "0.000000000000000000001"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("0", "0"),
            ("1e999999999999", "1e999999999999"),
        ];
        for (text, expect) in rows {
            assert_eq!(number(text), expect, "{text}");
        }
    }
}
