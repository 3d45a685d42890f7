//! Label and field selectors: which objects a list or a watch is about.

mod fields;
mod lexer;
mod names;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde_json::{Map, Value};

pub use fields::{FieldRequirement, FieldSelector, field_text};
use lexer::{Lexer, Token};

/// A selector that cannot be read; the text is the one of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectError(String);

/// Labels that a selector can be held against.
pub trait Labels {
    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for Map<String, Value> {
    fn label(&self, key: &str) -> Option<&str> {
        // A label that is no text cannot be stored, but it would be there.
        self.get(key).map(|value| value.as_str().unwrap_or_default())
    }
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl Labels for HashMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

impl<L: Labels> Labels for &L {
    fn label(&self, key: &str) -> Option<&str> {
        (*self).label(key)
    }
}

impl<L: Labels> Labels for Option<L> {
    fn label(&self, key: &str) -> Option<&str> {
        self.as_ref()?.label(key)
    }
}

/// How a requirement relates a label to its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `a=b`
    Equals,
    /// `a==b`
    DoubleEquals,
    /// `a!=b`: another value, or no label.
    NotEquals,
    /// `a in (b,c)`
    In,
    /// `a notin (b,c)`: another value, or no label.
    NotIn,
    /// `a`
    Exists,
    /// `!a`
    DoesNotExist,
    /// `a>1`
    GreaterThan,
    /// `a<1`
    LessThan,
}

/// What a selector asks of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Requirement {
    /// A requirement whose key and values are valid.
    pub fn new(key: &str, operator: Operator, values: impl IntoIterator<Item = String>) -> Result<Self, SelectError> {
        let values: Vec<_> = values.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let mut errors = Vec::new();
        if let Some(error) = names::invalid_key("key", key) {
            errors.push(error);
        }
        let list = || format!("[{}]", values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(","));
        let wrong_count = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        errors.extend(wrong_count.map(|why| format!("values: Invalid value: {}: {why}", list())));
        for (at, value) in values.iter().enumerate() {
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) && value.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(format!("values[{at}]: Invalid value: {value:?}: {why}"));
            }
        }
        for (at, value) in values.iter().enumerate() {
            errors.extend(names::invalid_value(&format!("values[{at}][{key}]"), value));
        }
        match errors.len() {
            0 => Ok(Self { key: key.to_owned(), operator, values }),
            1 => Err(SelectError(errors.remove(0))),
            _ => Err(SelectError(format!("[{}]", errors.join(", ")))),
        }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the label relates to the values.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether the labels are as required.
    pub fn matches(&self, labels: &impl Labels) -> bool {
        let value = labels.label(&self.key);
        let listed = |value: &str| self.values.iter().any(|other| other == value);
        match self.operator {
            Operator::Equals | Operator::DoubleEquals | Operator::In => value.is_some_and(listed),
            Operator::NotEquals | Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |text: &str| text.parse::<i64>().ok();
                match (value.and_then(number), self.values.first().and_then(|value| number(value))) {
                    (Some(value), Some(bound)) if self.operator == Operator::GreaterThan => value > bound,
                    (Some(value), Some(bound)) => value < bound,
                    _ => false,
                }
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// A label selector: all of its requirements must be met. The empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Reads `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`.
    pub fn parse(text: &str) -> Result<Self, SelectError> {
        let mut requirements = Parser { lexer: Lexer::new(text) }.selector()?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether all requirements are met.
    pub fn matches(&self, labels: &impl Labels) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether the labels of an object meet all requirements.
    pub fn selects(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
        self.matches(&labels)
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

struct Parser<'t> {
    lexer: Lexer<'t>,
}

impl<'t> Parser<'t> {
    fn selector(&mut self) -> Result<Vec<Requirement>, SelectError> {
        let mut requirements = Vec::new();
        loop {
            match self.lexer.peek() {
                token if token.is_word() || token == Token::Not => {
                    let requirement = self
                        .requirement()
                        .map_err(|SelectError(why)| SelectError(format!("unable to parse requirement: {why}")))?;
                    requirements.push(requirement);
                }
                Token::End => return Ok(requirements),
                other => {
                    return Err(expected(other, ", expected: !, identifier, or 'end of string'"));
                }
            }
            match self.lexer.next() {
                Token::End => return Ok(requirements),
                Token::Comma => {
                    let next = self.lexer.peek();
                    if !next.is_word() && next != Token::Not {
                        return Err(expected(next, ", expected: identifier after ','"));
                    }
                }
                other => return Err(expected(other, ", expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectError> {
        let mut token = self.lexer.next();
        let negated = token == Token::Not;
        if negated {
            token = self.lexer.next();
        }
        if !token.is_word() {
            return Err(expected(token, ", expected: identifier"));
        }
        let key = token.text();
        if let Some(error) = names::invalid_key("<nil>", key) {
            return Err(SelectError(error));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, []);
        }
        if matches!(self.lexer.peek(), Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, []);
        }
        let operator = match self.lexer.next() {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            other => return Err(expected(other, ", expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        Requirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<String, SelectError> {
        if matches!(self.lexer.peek(), Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.lexer.next() {
            token if token.is_word() => Ok(token.text().to_owned()),
            other => Err(expected(other, ", expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SelectError> {
        match self.lexer.next() {
            Token::Open => {}
            other => return Err(expected(other, " expected: '('")),
        }
        let mut values = Vec::new();
        match self.lexer.peek() {
            Token::Close => values.push(String::new()),
            Token::Comma => {}
            token if token.is_word() => {}
            other => return Err(expected(other, ", expected: ',', ')' or identifier")),
        }
        // Between two commas, and between a comma and a parenthesis, is the empty value.
        let mut after_comma = true;
        loop {
            match self.lexer.next() {
                Token::Close => {
                    if after_comma {
                        values.push(String::new());
                    }
                    return Ok(values);
                }
                Token::Comma => {
                    if after_comma {
                        values.push(String::new());
                    }
                    after_comma = true;
                }
                token if token.is_word() && after_comma => {
                    values.push(token.text().to_owned());
                    after_comma = false;
                }
                other if after_comma => {
                    return Err(expected(other, ", expected: ',', or identifier"));
                }
                other => return Err(expected(other, ", expected: ',' or ')'")),
            }
        }
    }
}

fn expected(found: Token<'_>, what: &str) -> SelectError {
    SelectError(format!("found '{}'{what}", found.text()))
}

#[cfg(test)]
mod tests;
