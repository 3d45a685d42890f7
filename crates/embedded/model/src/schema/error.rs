//! What is wrong with a field, in the words of Kubernetes.
//!
//! Clients match on these texts and reasons, so both are those of the Kubernetes API server, letter by letter.

use std::fmt::{self, Display, Write as _};

use serde_json::Value;

/// The field name that Kubernetes prints for an error about the whole object.
pub const WHOLE_OBJECT: &str = "<nil>";

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The path of the field, for example `spec.steps[0].name`.
    pub field: String,
    /// What kind of error this is.
    pub kind: FieldErrorKind,
    /// The value that was refused; absent where the text does not show one.
    pub value: Option<Value>,
    /// What is wrong, in words; may be empty.
    pub detail: String,
}

/// The kind of a [`FieldError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value has another type than the schema wants.
    TypeInvalid,
    /// The value is missing.
    Required,
    /// The value is not one of the listed ones.
    NotSupported,
    /// The value must be unique and is not.
    Duplicate,
    /// The string is too long.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The value is well formed but not permitted here.
    Forbidden,
    /// Something that the value names does not exist.
    NotFound,
    /// The server failed, not the user.
    Internal,
}

impl FieldErrorKind {
    /// The `reason` of the `StatusCause` that reports this error.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Required => "Required value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

impl FieldError {
    /// A malformed or out-of-bounds value.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(value.into()), detail)
    }

    /// A value of another type than the schema wants.
    pub(crate) fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, Some(value.into()), detail)
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    /// A value that is not one of `supported`.
    pub fn not_supported<S: AsRef<str>>(field: impl Into<String>, value: impl Into<Value>, supported: &[S]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            let quoted: Vec<String> = supported.iter().map(|s| go_quote(s.as_ref())).collect();
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(FieldErrorKind::NotSupported, field, Some(value.into()), detail)
    }

    /// A value that must be unique and is not.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(value.into()), "")
    }

    /// A string longer than `max`.
    pub fn too_long(field: impl Into<String>, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {max} {unit}"))
    }

    /// A list or map with more than `max` entries.
    pub(crate) fn too_many(field: impl Into<String>, actual: usize, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::new(FieldErrorKind::TooMany, field, Some(actual.into()), detail)
    }

    /// A well formed value that is not permitted here.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// A name of something that does not exist.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(value.into()), "")
    }

    /// A failure that is not the user's.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail)
    }

    /// The `reason` of the `StatusCause` that reports this error.
    pub fn reason(&self) -> &'static str {
        self.kind.reason()
    }

    /// The text without the field: the `message` of the `StatusCause`.
    pub fn body(&self) -> String {
        let mut text = String::from(self.kind.text());
        if let Some(value) = self.value.as_ref().filter(|_| self.kind.shows_value()) {
            text.push_str(": ");
            match value {
                Value::String(s) => text.push_str(&go_quote(s)),
                other => text.push_str(&go_json(other)),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    fn new(kind: FieldErrorKind, field: impl Into<String>, value: Option<Value>, detail: impl Into<String>) -> Self {
        let field = field.into();
        let field = if field.is_empty() { WHOLE_OBJECT.to_owned() } else { field };
        Self { field, kind, value, detail: detail.into() }
    }
}

impl Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Quotes a string as Go's `%q` does.
pub(crate) fn go_quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if c < ' ' || c == '\x7f' => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c if unprintable(c) && u32::from(c) <= 0xffff => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c if unprintable(c) => _ = write!(out, "\\U{:08x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether Go would escape a character beyond ASCII: controls, spaces other than the plain one, and format characters.
fn unprintable(c: char) -> bool {
    c.is_control()
        || (c != ' ' && c.is_whitespace())
        || matches!(u32::from(c), 0xad | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2064 | 0xfeff | 0xe000..=0xf8ff)
}

/// Prints a value as Go's `json.Marshal` does: sorted keys, no spaces, `<`, `>` and `&` escaped.
pub(crate) fn go_json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => _ = write!(out, "{b}"),
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() => out.push_str(&go_float(f)),
            _ => _ = write!(out, "{n}"),
        },
        Value::String(s) => write_json_string(out, s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json_string(out, key);
                out.push(':');
                write_json(out, &map[key]);
            }
            out.push('}');
        }
    }
}

fn write_json_string(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c if c < ' ' => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Prints a float as Go's `%v` does: the shortest text, with an exponent only for the very small and the very large.
pub(crate) fn go_float(f: f64) -> String {
    if f.is_nan() {
        return "NaN".to_owned();
    }
    if f.is_infinite() {
        return if f > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = f.abs();
    if f == 0.0 || (1e-4..1e21).contains(&magnitude) {
        return format!("{f}");
    }
    let text = format!("{f:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// The name of a value's type in messages of Go's decoder.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_those_of_kubernetes() {
        let rows = [
            (FieldError::required("spec.x", ""), "spec.x: Required value"),
            (
                FieldError::not_supported("spec.tool", "foo", &["terraform", "tofu"]),
                r#"spec.tool: Unsupported value: "foo": supported values: "terraform", "tofu""#,
            ),
            (
                FieldError::type_invalid("spec.n", "string", "spec.n in body must be of type integer: \"string\""),
                r#"spec.n: Invalid value: "string": spec.n in body must be of type integer: "string""#,
            ),
            (FieldError::too_long("spec.x", 5), "spec.x: Too long: may not be more than 5 bytes"),
            (FieldError::too_long("spec.x", 1), "spec.x: Too long: may not be more than 1 byte"),
            (FieldError::too_many("spec.x", 5, 3), "spec.x: Too many: 5: must have at most 3 items"),
            (
                FieldError::duplicate("spec.x[1]", json!({"b": 1, "a": "<"})),
                r#"spec.x[1]: Duplicate value: {"a":"\u003c","b":1}"#,
            ),
            (FieldError::forbidden("spec.x", "no"), "spec.x: Forbidden: no"),
            (FieldError::invalid("", Value::Null, "bad"), "<nil>: Invalid value: null: bad"),
            (FieldError::invalid("a", 1.5, "bad"), "a: Invalid value: 1.5: bad"),
            (FieldError::invalid("a", "x\n\u{1}\"é", "bad"), r#"a: Invalid value: "x\n\x01\"é": bad"#),
            (FieldError::not_found("a", "b"), r#"a: Not found: "b""#),
        ];
        for (error, text) in rows {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn floats_print_as_in_go() {
        for (f, text) in
            [(1.0, "1"), (0.1, "0.1"), (1e21, "1e+21"), (1.5e-7, "1.5e-07"), (123_456_789.0, "123456789"), (0.0, "0")]
        {
            assert_eq!(go_float(f), text);
        }
    }
}
