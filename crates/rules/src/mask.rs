//! Masks the values in messages of rules that a plan marks as sensitive. Pure.
//!
//! *Caveat.* A value that a rule has encoded, hashed or cut is not found. A value of one or two characters is masked only
//! where it stands alone.

use knoll_api::sensitive::of_description;
use serde_json::Value;

/// The replacement of a sensitive value.
const MASK: &str = "(sensitive)";
/// A shorter value is masked only where it stands alone.
const SHORT: usize = 3;
/// Shorter lines of a value are not secret on their own, such as a closing brace.
const SHORTEST_LINE: usize = 4;
/// The sensitive values of a plan, the longest first.
#[derive(Debug, Default)]
pub struct Mask {
    values: Vec<String>,
}

impl Mask {
    /// The values that the JSON of a plan marks as sensitive.
    pub fn of(plan: &Value) -> Self {
        let found = of_description(plan);
        let mut values: Vec<String> = found.iter().flat_map(|value| forms(value)).collect();
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self { values }
    }

    /// A text without sensitive values.
    pub fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in &self.values {
            if value.len() >= SHORT {
                if text.contains(value.as_str()) {
                    text = text.replace(value.as_str(), MASK);
                }
            } else {
                text = alone(&text, value);
            }
        }
        text
    }
}

/// Replaces a short value where no letter or digit is beside it.
fn alone(text: &str, value: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(value) {
        let (before, after) = (&rest[..at], &rest[at + value.len()..]);
        out.push_str(before);
        let joined =
            before.ends_with(is_word) || (before.is_empty() && out.ends_with(is_word)) || after.starts_with(is_word);
        out.push_str(if joined { value } else { MASK });
        rest = after;
    }
    out + rest
}

/// A value as it is, as JSON prints it, and its lines.
fn forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    let printed = Value::from(value).to_string();
    let printed = printed.trim_matches('"');
    if printed != value {
        forms.push(printed.to_owned());
    }
    if value.contains('\n') {
        forms.extend(value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE).map(str::to_owned));
    }
    forms.retain(|form| !form.is_empty());
    forms
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_plan_marks_as_sensitive_is_in_no_message() {
        let plan = json!({
            "resource_changes": [{"change": {
                "before": {"password": "hunter2", "tags": {"a": "public"}},
                "before_sensitive": {"password": true},
                "after": {"key": "line-one\nline-two", "port": 7},
                "after_sensitive": {"key": true, "port": true},
            }}],
            "output_changes": {"o": {"before": null, "after": "outcome", "after_sensitive": true}},
            "variables": {"token": {"value": "t0ken"}, "region": {"value": "eu"}},
            "configuration": {"root_module": {"variables": {"token": {"sensitive": true}, "region": {}}}},
        });
        let mask = Mask::of(&plan);
        let rows = [
            ("password hunter2!", "password (sensitive)!"),
            ("{\"key\":\"line-one\\nline-two\"}", "{\"key\":\"(sensitive)\"}"),
            ("only line-two", "only (sensitive)"),
            ("port 7, not 17 or 7a", "port (sensitive), not 17 or 7a"),
            ("outcome of t0ken in eu, public", "(sensitive) of (sensitive) in eu, public"),
        ];
        for (text, expect) in rows {
            assert_eq!(mask.apply(text), expect);
        }
    }
}
