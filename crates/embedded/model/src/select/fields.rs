//! Field selectors: `metadata.name=x,status.phase!=Running`.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::SelectError;

/// What a field selector asks of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field, as a dotted path.
    pub field: String,
    /// Whether the field must have the value, or must not.
    pub equals: bool,
    pub value: String,
}

/// A field selector: all of its requirements must be met. Which fields there are is for the kind to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// Reads `a=b,c!=d,e==f`; in values `\`, `,` and `=` are escaped with `\`.
    pub fn parse(text: &str) -> Result<Self, SelectError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let requirements = terms
            .into_iter()
            .filter(|term| !term.is_empty())
            .map(|term| {
                let (field, equals, value) = split_term(term)
                    .ok_or_else(|| SelectError(format!("invalid selector: '{text}'; can't understand '{term}'")))?;
                Ok(FieldRequirement { field: field.to_owned(), equals, value: unescape(value)? })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The one value that a field must have, if the selector says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.field == field && requirement.equals)
            .map(|found| found.value.as_str())
    }

    /// Whether all requirements are met by the fields that the function knows; what it does not know is empty.
    pub fn matches<'v>(&self, field: impl Fn(&str) -> Cow<'v, str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| (field(&requirement.field) == requirement.value.as_str()) == requirement.equals)
    }

    /// Whether all requirements are met by the fields of an object, found by their path.
    pub fn selects(&self, object: &Value) -> bool {
        self.matches(|path| field_text(object, path))
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let sign = if requirement.equals { "=" } else { "!=" };
            write!(f, "{comma}{}{sign}{}", requirement.field, escape(&requirement.value))?;
        }
        Ok(())
    }
}

/// The text of the field at a dotted path; what is absent or no scalar is empty.
pub fn field_text<'v>(object: &'v Value, path: &str) -> Cow<'v, str> {
    let found = path.split('.').try_fold(object, |value, name| value.get(name));
    match found {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(Value::Bool(value)) => Cow::Owned(value.to_string()),
        Some(Value::Number(value)) => Cow::Owned(value.to_string()),
        _ => Cow::Borrowed(""),
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The field, whether it must have the value, and the value.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term
        .match_indices(['!', '='])
        .map(|(at, _)| at)
        .find(|at| term[*at..].starts_with("!=") || term[*at..].starts_with('='))?;
    let (field, rest) = term.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).map(|value| (field, true, value))
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

fn unescape(value: &str) -> Result<String, SelectError> {
    let invalid = |sequence: &str| SelectError(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => text.push(c),
                Some(c) => return Err(invalid(&format!("\\{c}"))),
                None => return Err(invalid("\\")),
            },
            ',' | '=' => {
                return Err(SelectError(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                )));
            }
            c => text.push(c),
        }
    }
    Ok(text)
}
