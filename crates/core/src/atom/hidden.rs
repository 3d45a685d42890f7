//! The values of Secrets that an Atom's objects are made of, and texts without them.
//!
//! Messages of the API server, of controllers and of pods repeat values of objects: quoted, escaped, cut or encoded. A text
//! is shown only if nothing of a hidden value is found in it in any of these forms. Otherwise it is dropped, because a
//! replacement would leave the part that was not recognised.
//!
//! *Guarantee.* No text that passes [`HiddenValues::is_clean`] has six letters or digits in a row of a hidden value,
//! whatever is between them, or a shorter value as a whole.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
};

use k8s_openapi::ByteString;
use knoll_api::atom::AtomObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ActionError;

/// The number of letters and digits of a value that give it away. Fewer occur in any text.
const PART: usize = 6;

/// The number of letters and digits of an encoded value that give it away.
const ENCODED_PART: usize = 8;

/// The text in the place of a message that is not shown.
pub const NOT_SHOWN: &str = "The message is not shown, because it may contain a value of a Secret.";

/// Values that no status, event or log may contain.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HiddenValues {
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    values: BTreeSet<String>,
    /// Whether the template itself comes from a Secret, so that any value of an object is hidden.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    all: bool,
}

impl fmt::Debug for HiddenValues {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("HiddenValues").field("count", &self.values.len()).finish_non_exhaustive()
    }
}

impl HiddenValues {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && !self.all
    }

    /// Hides a value: a text or a number, or all of those in a list or an object.
    pub fn hide(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => drop(self.values.insert(number.to_string())),
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => drop(self.values.insert(text.clone())),
            Value::Array(items) => items.iter().for_each(|item| self.hide(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    // A short name occurs in any text.
                    self.values.extend(Some(name).filter(|name| letters(name).len() >= PART).cloned());
                    self.hide(field);
                }
            }
        }
    }

    /// Hides every value of objects whose template comes from a Secret, except what the status shows: kinds and names.
    pub fn hide_template(&mut self, objects: &[Value]) {
        self.all = true;
        for object in objects {
            let key = super::template::key(object);
            let shown = [Some(key.api_version), Some(key.kind), key.namespace, Some(key.name)];
            let mut inner = Self::default();
            inner.hide(object);
            self.values.extend(inner.values.into_iter().filter(|value| {
                letters(value).len() >= PART && !shown.iter().flatten().any(|shown| shown.contains(value.as_str()))
            }));
        }
    }

    /// Hides the content of a Secret, as the API server has it.
    pub fn hide_secret(&mut self, object: &Value) {
        let data = object.get("data").and_then(Value::as_object).filter(|_| object["kind"] == "Secret");
        for value in data.into_iter().flat_map(|data| data.values()) {
            let bytes: Option<ByteString> = serde_json::from_value(value.clone()).ok();
            if let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes.0).ok()) {
                self.hide(&Value::String(text));
            }
        }
    }

    pub fn extend(&mut self, other: Self) {
        self.values.extend(other.values);
        self.all |= other.all;
    }

    /// Whether a text of the API server about an object may be shown.
    #[must_use]
    pub fn may_quote(&self, text: &str) -> bool {
        !self.all && self.is_clean(text)
    }

    /// Whether nothing of a hidden value is in a text.
    #[must_use]
    pub fn is_clean(&self, text: &str) -> bool {
        if self.values.is_empty() {
            return true;
        }
        let lower = text.to_lowercase();
        let read = letters(text);
        let parts: HashSet<&[char]> = read.windows(PART).collect();
        let encoded: HashSet<&[char]> = read.windows(ENCODED_PART).collect();
        let has_escapes = text.contains('\\') || text.contains('%') || text.contains('&');
        !self.values.iter().any(|value| {
            let value_letters = letters(value);
            let is_part = if value_letters.len() < PART {
                lower.contains(&value.trim().to_lowercase())
            } else {
                value_letters.windows(PART).any(|part| parts.contains(part))
            };
            is_part
                || (has_escapes && is_escaped(value))
                || base64_forms(value).iter().any(|form| form.windows(ENCODED_PART).any(|part| encoded.contains(part)))
        })
    }

    /// The error without hidden values. Its reason stays.
    #[must_use]
    pub fn clean_error(&self, error: ActionError) -> ActionError {
        match error {
            ActionError::Refused(cause) => ActionError::refused(cause.reason, self.clean(cause.message)),
            ActionError::Retry(message) => ActionError::Retry(self.clean(message)),
        }
    }

    /// The objects of a status without hidden values in their messages.
    #[must_use]
    pub fn clean_objects(&self, mut objects: Vec<AtomObject>) -> Vec<AtomObject> {
        for object in &mut objects {
            object.message = object.message.take().map(|message| self.clean(message));
        }
        objects
    }

    /// The text, or a sentence that says that it is not shown.
    #[must_use]
    pub fn clean(&self, text: String) -> String {
        if self.is_clean(&text) { text } else { NOT_SHOWN.to_owned() }
    }
}

/// The letters and digits of a text in lower case: what quotes, escapes and line breaks leave of it.
fn letters(text: &str) -> Vec<char> {
    text.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Whether a program may write some letter of a value as an escape, so that its parts are not recognised.
fn is_escaped(value: &str) -> bool {
    value.chars().any(|letter| !letter.is_ascii() || letter.is_ascii_control())
}

/// The letters of a value in base64, wherever it begins in a longer text: the first and the last letters depend on what is
/// around it.
fn base64_forms(value: &str) -> Vec<Vec<char>> {
    (0..3)
        .map(|before| {
            let bytes = [&vec![0; before][..], value.as_bytes()].concat();
            let text = serde_json::to_value(ByteString(bytes)).ok();
            let text = text.as_ref().and_then(Value::as_str).unwrap_or_default().trim_end_matches('=').to_owned();
            let whole: Vec<char> = text.chars().skip(if before == 0 { 0 } else { before + 1 }).collect();
            let inner = whole.len().saturating_sub(2);
            whole[..inner].iter().filter(|letter| letter.is_alphanumeric()).flat_map(|l| l.to_lowercase()).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hidden(values: &[Value]) -> HiddenValues {
        let mut hidden = HiddenValues::default();
        values.iter().for_each(|value| hidden.hide(value));
        hidden
    }

    #[test]
    fn a_text_with_any_form_of_a_value_is_not_clean() {
        let value = "hunter2 is \"the\" pass<word>";
        let secret = hidden(&[json!(value)]);
        let encoded = |text: &str| serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap_or_default();
        let texts = [
            format!("metadata.labels: Invalid value: \"{value}\": a valid label must be"),
            format!("metadata.labels: Invalid value: {value:?}"),
            "Invalid value: hunter2 is \\\"the\\\" pass\\u003cword\\u003e".to_owned(),
            "Invalid value: \"hunter2 is \\\"th...".to_owned(),
            "HUNTER2%20IS%20THE".to_owned(),
            "h-u-n-t-e-r-2".to_owned(),
            format!("data: {}", encoded(value)),
            format!("data: {}", encoded(&format!("x{value}"))),
            format!("data: {}", encoded(&format!("xy{value} and more"))),
        ];
        for text in texts {
            assert!(!secret.is_clean(&text), "{text}");
            assert_eq!(secret.clean(text), NOT_SHOWN);
        }
        for text in ["metadata.labels: Invalid value", "a pass is wrong, say hunte"] {
            assert!(secret.is_clean(text), "{text}");
        }
    }

    #[test]
    fn short_values_numbers_and_parts_of_json_are_values_as_well() {
        assert!(!hidden(&[json!("p@1")]).is_clean("Invalid value: \"P@1\""));
        assert!(!hidden(&[json!("!?")]).is_clean("Invalid value: \"!?\""));
        assert!(!hidden(&[json!(4711)]).is_clean("spec.port: Invalid value: 4711"));
        let document = json!({"user": "administrator", "private": [{"id": "0123456789"}]});
        for text in ["administrator", "key 012345", "unknown field \"private\""] {
            assert!(!hidden(std::slice::from_ref(&document)).is_clean(text), "{text}");
        }
        // A value that is written with escapes cannot be recognised, so no text with escapes is shown.
        assert!(!hidden(&[json!("пароль")]).is_clean(r"Invalid value: \u043f\u0430"));
        assert!(hidden(&[json!(true), json!(null), json!("")]).is_clean("true null"));
        assert!(HiddenValues::default().is_clean("anything"));
    }

    #[test]
    fn nothing_of_a_template_in_a_secret_is_quoted() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"token": "hunter2!"},
        });
        let mut hidden = HiddenValues::default();
        hidden.hide_template(&[object]);
        assert!(!hidden.may_quote("anything"));
        assert!(!hidden.is_clean("it is hunter2!"));
        assert!(hidden.is_clean("`ConfigMap settings` is not ready."));
    }

    #[test]
    fn the_content_of_a_secret_is_hidden_as_pods_see_it() {
        let mut hidden = HiddenValues::default();
        hidden.hide_secret(&json!({"kind": "Secret", "data": {"k": "aHVudGVyMg=="}}));
        hidden.hide_secret(&json!({"kind": "ConfigMap", "data": {"k": "b"}}));
        assert!(!hidden.is_clean("wrong password hunter2"));
        assert!(hidden.is_clean("b"));
    }
}
