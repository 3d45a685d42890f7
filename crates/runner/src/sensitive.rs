//! Finds the sensitive values in variables, variable files, plans and states, and the forms in which they may be printed.
//! Pure.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use knoll_api::sensitive::collect;
use knoll_api::wire::Job;
use serde::Deserialize;
use serde_json::Value;

use crate::registry;

/// Shorter base64 fragments would also match harmless text.
const SHORTEST_ENCODED: usize = 6;
/// Longer values are matched by pieces, because storing all of their forms would cost too much memory.
const LONG: usize = 16 * 1024;
/// The length of such a piece.
const PIECE: usize = 512;
/// Shorter lines of a value are not secret on their own, such as a closing brace.
const SHORTEST_LINE: usize = 4;

/// All sensitive values of a job.
pub fn of_job(job: &Job) -> Vec<String> {
    let mut found = Vec::new();
    for variable in job.variables.iter().filter(|variable| variable.sensitive) {
        collect(&variable.value, &mut found);
        if let (Value::String(text), true) = (&variable.value, variable.expression) {
            // Terraform may parse the value as an expression, and print its elements.
            if text.trim_start().starts_with(['[', '{', '"', '<']) {
                found.extend(literals(text));
            }
        }
    }
    for name in &job.sensitive_files {
        let Some(text) = job.variable_files.get(name) else { continue };
        match serde_json::from_str::<Value>(text) {
            Ok(values) if name.ends_with(".json") => collect(&values, &mut found),
            _ => found.extend(literals(text)),
        }
    }
    found.extend(job.masked.iter().cloned());
    found.extend(registry::secrets(&job.registry));
    let fragments = job.registry.terraformrc.iter().filter(|fragment| fragment.sensitive);
    found.extend(fragments.flat_map(|fragment| literals(&fragment.text)));
    // The module says which of its variables are sensitive.
    let env = job.input.iter().flat_map(|input| &input.env);
    found.extend(env.filter(|(name, _)| !name.starts_with("TF_VAR_")).map(|(_, value)| value.clone()));
    found
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    outputs: std::collections::BTreeMap<String, Output>,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Output {
    #[serde(default)]
    value: Value,
    #[serde(default)]
    sensitive: bool,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    instances: Vec<Instance>,
}

#[derive(Deserialize)]
struct Instance {
    #[serde(default)]
    attributes: Value,
    #[serde(default)]
    sensitive_attributes: Vec<Vec<PathStep>>,
}

#[derive(Deserialize)]
struct PathStep {
    #[serde(default)]
    value: Value,
}

/// All sensitive values of a state: outputs and resource attributes.
pub fn of_state(state: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(state) = serde_json::from_slice::<State>(state) else { return found };
    for output in state.outputs.values().filter(|output| output.sensitive) {
        collect(&output.value, &mut found);
    }
    for instance in state.resources.iter().flat_map(|resource| &resource.instances) {
        for path in &instance.sensitive_attributes {
            let at = path.iter().try_fold(&instance.attributes, |value, step| follow(value, &step.value));
            if let Some(value) = at {
                collect(unwrapped(value), &mut found);
            }
        }
    }
    found
}

/// Follows one step of an attribute path: a name, or an index with its type.
fn follow<'a>(value: &'a Value, step: &Value) -> Option<&'a Value> {
    let value = unwrapped(value);
    match step {
        Value::String(key) => value.get(key),
        Value::Number(index) => value.get(usize::try_from(index.as_u64()?).ok()?),
        Value::Object(typed) => follow(value, typed.get("value")?),
        _ => None,
    }
}

/// The value of an attribute of a dynamic type, which a state has beside its type; any other value as it is. Paths skip it.
fn unwrapped(value: &Value) -> &Value {
    let is_type = |type_: &Value| match type_ {
        Value::String(name) => matches!(name.as_str(), "string" | "number" | "bool" | "dynamic"),
        Value::Array(parts) => {
            let name = parts.first().and_then(Value::as_str);
            parts.len() > 1 && matches!(name, Some("list" | "set" | "map" | "object" | "tuple"))
        }
        _ => false,
    };
    match value {
        Value::Object(fields) if fields.len() == 2 && fields.get("type").is_some_and(is_type) => {
            fields.get("value").unwrap_or(value)
        }
        value => value,
    }
}

/// The strings and numbers in a `*.tfvars` file. Quoted keys are included as well; values are never missed.
pub(crate) fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['"', '<', '#', '/', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        let (before, here) = rest.split_at(at);
        let in_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.');
        rest = if let Some(quoted) = here.strip_prefix('"') {
            let (value, after) = quoted_text(quoted);
            found.push(value);
            after
        } else if here.starts_with('#') || here.starts_with("//") {
            here.find('\n').map_or("", |end| &here[end..])
        } else if let Some((value, after)) = here.strip_prefix("<<").and_then(heredoc) {
            found.push(value);
            after
        } else if here.starts_with(|c: char| c.is_ascii_digit()) && !in_word {
            let end = here.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(here.len());
            found.push(here[..end].to_owned());
            &here[end..]
        } else {
            &here[1..]
        };
    }
    found
}

/// The unescaped string up to its closing quote, and the rest.
fn quoted_text(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some(kind @ ('u' | 'U')) => {
                    let digits = if kind == 'u' { 4 } else { 8 };
                    let code: String = chars.by_ref().take(digits).map(|(_, c)| c).collect();
                    value.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
                }
                Some(other) => value.push(other),
                None => {}
            },
            c => value.push(c),
        }
    }
    (value, "")
}

/// The text of a heredoc whose `<<` was read, and the rest.
fn heredoc(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (marker, body) = text.split_once('\n')?;
    let marker = marker.trim();
    let mut value = String::new();
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        at += line.len();
        if line.trim() == marker {
            return Some((value, &body[at..]));
        }
        value.push_str(line);
    }
    None
}

/// All forms in which a value may be printed, including itself.
pub fn forms(value: &str) -> Vec<Vec<u8>> {
    let value = value.trim_end_matches('\n');
    let mut forms = vec![value.as_bytes().to_vec()];
    // A single character or an empty value cannot be masked.
    if value.len() < 2 || matches!(value, "true" | "false" | "null") {
        return Vec::new();
    }
    if value.len() > LONG {
        let lines = value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE);
        let pieces = |line: &str| line.as_bytes().chunks(PIECE).map(<[u8]>::to_vec).collect();
        return lines.flat_map(|line| if line.len() > LONG { pieces(line) } else { self::forms(line) }).collect();
    }
    let json = serde_json::to_string(value).unwrap_or_default();
    let json = json.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
    forms.push(json.as_bytes().to_vec());
    // Go's JSON encoder, and so `jsonencode`, escapes these characters.
    forms.push(json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026").into_bytes());
    if value.len() >= SHORTEST_LINE {
        forms.push(percent(value).into_bytes());
        for engine in [&BASE64_STANDARD, &BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE_NO_PAD] {
            forms.push(engine.encode(value).into_bytes());
            forms.push(engine.encode(format!("{value}\n")).into_bytes());
        }
        forms.extend((1..3).flat_map(|shift| shifted(value, shift)));
        forms.extend(shifted(value, 0));
    }
    if value.contains('\n') {
        for line in value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE) {
            forms.extend(self::forms(line));
        }
    }
    forms.retain(|form| !form.is_empty());
    forms
}

/// The base64 characters that are the same for every text with `value` after `shift` (modulo 3) other bytes.
fn shifted(value: &str, shift: usize) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(value.as_bytes());
    // Each character encodes six bits. Characters that share bits with a neighbour are omitted.
    let (first, last) = ((shift * 8).div_ceil(6), bytes.len() * 8 / 6);
    [&BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE_NO_PAD]
        .into_iter()
        .filter_map(|engine| engine.encode(&bytes).get(first..last).map(|text| text.as_bytes().to_vec()))
        .filter(|text| text.len() >= SHORTEST_ENCODED)
        .collect()
}

/// Percent-encodes a value as in a URL.
fn percent(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' => text.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variable_files_are_read_for_their_values() {
        let text = r#"
# a "comment" of 12
password = "hunter2"  // and "another" 13
zones = ["zone-a", "zone-b"]
port = 54321
v2 = true
key = <<-EOT
  -----BEGIN
  MIIabc
  EOT
odd = "a\"b\\c\u0041"
"#;
        let found = literals(text);
        let expect = ["hunter2", "zone-a", "zone-b", "54321", "  -----BEGIN\n  MIIabc\n", "a\"b\\cA"];
        assert_eq!(found, expect);
        assert_eq!(literals("x = \"unclosed"), ["unclosed"]);
        assert_eq!(literals("x = <<EOT\nunclosed"), Vec::<String>::new());
    }

    #[test]
    fn a_state_says_what_is_sensitive() {
        let state = json!({
            "version": 4, "serial": 1, "lineage": "l",
            "outputs": {
                "open": {"value": "harmless", "type": "string"},
                "closed": {"value": {"a": ["out-secret", 77]}, "type": "object", "sensitive": true},
            },
            "resources": [{"mode": "managed", "instances": [{
                "attributes": {
                    // As terraform writes an attribute of a dynamic type; no path has a step to `value`.
                    "input": {
                        "value": {"pw": ["x", "attr-secret"]}, "type": ["object", {"pw": ["tuple", ["string", "string"]]}],
                    },
                    "whole": {"value": "whole-secret", "type": "string"},
                    "plain": {"value": "plain-secret", "type": "of the user's own"},
                    "name": "harmless",
                },
                "sensitive_attributes": [
                    [
                        {"type": "get_attr", "value": "input"},
                        {"type": "index", "value": {"value": "pw", "type": "string"}},
                        {"type": "index", "value": {"value": 1, "type": "number"}},
                    ],
                    [{"type": "get_attr", "value": "whole"}],
                    [{"type": "get_attr", "value": "plain"}, {"type": "get_attr", "value": "value"}],
                ],
            }]}],
        });
        let expect = ["out-secret", "77", "attr-secret", "whole-secret", "plain-secret"];
        assert_eq!(of_state(state.to_string().as_bytes()), expect);
        assert!(of_state(b"{").is_empty());
    }
}
