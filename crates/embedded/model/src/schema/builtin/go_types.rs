//! The first value of an object that does not fit the Go type of its field, in the words of Go's decoder.

use serde_json::{Map, Value};

use super::Components;
use crate::schema::error::type_name;

const TIME: &str = "2006-01-02T15:04:05Z07:00";
const MICRO_TIME: &str = "2006-01-02T15:04:05.000000Z07:00";

/// What Go's decoder says of an object of a built-in kind. `None`: everything fits.
pub fn mismatch(components: &Components, object: &Value) -> Option<String> {
    let walk = Walk { schemas: &components.schemas };
    let root = components.schemas.get(&components.name)?;
    walk.structure(root, object, last_word(&components.name), "")
}

struct Walk<'a> {
    schemas: &'a Map<String, Value>,
}

/// `PodSpec` of `io.k8s.api.core.v1.PodSpec`.
fn last_word(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn referred(json: &Value) -> Option<&str> {
    let own = json.get("$ref").or_else(|| json.pointer("/allOf/0/$ref"))?;
    own.as_str()?.rsplit('/').next()
}

impl Walk<'_> {
    fn structure(&self, json: &Value, value: &Value, name: &str, path: &str) -> Option<String> {
        let fields = value.as_object()?;
        let properties = json.get("properties")?.as_object()?;
        fields.iter().find_map(|(key, field)| {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            self.value(properties.get(key)?, field, name, &below)
        })
    }

    /// `name` is the struct that holds the field, `path` the way to it from the root.
    fn value(&self, json: &Value, value: &Value, name: &str, path: &str) -> Option<String> {
        if value.is_null() {
            return None;
        }
        if let Some(reference) = referred(json) {
            let target = self.schemas.get(reference)?;
            return match (last_word(reference), value) {
                ("Time", _) => time(value, TIME),
                ("MicroTime", _) => time(value, MICRO_TIME),
                ("IntOrString", Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                    Some(refusal(value, name, path, "int32"))
                }
                ("Quantity", Value::String(text)) => quantity(text),
                (
                    "IntOrString"
                    | "Quantity"
                    | "RawExtension"
                    | "FieldsV1"
                    | "JSON"
                    | "JSONSchemaPropsOrBool"
                    | "JSONSchemaPropsOrArray",
                    _,
                ) => None,
                (own, Value::Object(_)) if target.get("properties").is_some() => {
                    self.structure(target, value, own, path)
                }
                _ if target.get("properties").is_some() => Some(refusal(value, name, path, &go_name(reference))),
                _ => self.value(target, value, name, path),
            };
        }
        let expected = self.go_type(json, path);
        let fits = match (json.get("type").and_then(Value::as_str), value) {
            (Some("object"), Value::Object(map)) => {
                let of = json.get("additionalProperties").filter(|a| a.is_object());
                return match of {
                    Some(of) => map.values().find_map(|v| self.value(of, v, name, path)),
                    None => self.structure(json, value, name, path),
                };
            }
            (Some("array"), Value::Array(items)) => {
                let of = json.get("items")?;
                return items.iter().find_map(|v| self.value(of, v, name, path));
            }
            (Some("string"), Value::String(text)) => {
                return (json.get("format") == Some(&"byte".into())).then(|| base64_error(text)).flatten();
            }
            (Some("boolean"), Value::Bool(_)) | (Some("number"), Value::Number(_)) | (None, _) => true,
            (Some("integer"), Value::Number(number)) if number.is_i64() || number.is_u64() => true,
            (Some("integer"), Value::Number(number)) => {
                return Some(format!(
                    "json: cannot unmarshal number {number} into Go struct field {name}.{path} of type {expected}"
                ));
            }
            _ => false,
        };
        (!fits).then(|| refusal(value, name, path, &expected))
    }

    fn go_type(&self, json: &Value, path: &str) -> String {
        if let Some(reference) = referred(json) {
            return go_name(reference);
        }
        let format = json.get("format").and_then(Value::as_str).unwrap_or_default();
        match json.get("type").and_then(Value::as_str) {
            Some("object") => match json.get("additionalProperties").filter(|a| a.is_object()) {
                Some(of) => format!("map[string]{}", self.go_type(of, "")),
                None => "map[string]interface {}".to_owned(),
            },
            Some("array") => format!("[]{}", json.get("items").map_or_else(String::new, |of| self.go_type(of, ""))),
            Some("string") if format == "byte" => "[]uint8".to_owned(),
            Some("string") if path.ends_with("metadata.uid") => "types.UID".to_owned(),
            Some("integer") => if format.is_empty() { "int64" } else { format }.to_owned(),
            Some("boolean") => "bool".to_owned(),
            Some("number") => "float64".to_owned(),
            _ => "string".to_owned(),
        }
    }
}

/// `v1.PodSpec` of `io.k8s.api.core.v1.PodSpec`.
fn go_name(reference: &str) -> String {
    let mut words = reference.rsplit('.');
    let (kind, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    format!("{version}.{kind}")
}

fn refusal(value: &Value, name: &str, path: &str, expected: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field {name}.{path} of type {expected}", type_name(value))
}

fn quantity(text: &str) -> Option<String> {
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = number.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let unit = number[digits..].trim_end_matches(|c: char| c.is_ascii_digit());
    let unit = unit.strip_suffix(['+', '-']).unwrap_or(unit);
    let fits = digits > 0 && unit.chars().all(|c| "eEinumkKMGTP".contains(c));
    let form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
    (!fits).then(|| format!("quantities must match the regular expression '{form}'"))
}

fn time(value: &Value, layout: &str) -> Option<String> {
    let Value::String(text) = value else {
        return Some(format!("json: cannot unmarshal {} into Go value of type string", type_name(value)));
    };
    let zoned = text.ends_with('Z') || text.rfind(['+', '-']).is_some_and(|at| at > 10);
    if zoned && text.contains('T') && text.parse::<jiff::Timestamp>().is_ok() {
        let fraction = text.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
        if layout == MICRO_TIME && fraction != 6 {
            let from = text.get(19..).unwrap_or_default();
            return Some(format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{from}\" as \".000000\""));
        }
        return None;
    }
    Some(format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{text}\" as \"2006\""))
}

/// Where a text stops being base64, as Go says it.
pub fn base64_error(text: &str) -> Option<String> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let clean: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    if STANDARD.decode(&clean).is_ok() {
        return None;
    }
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    let at = text.bytes().position(|b| !legal(b) && b != b'\n' && b != b'\r').filter(|at| {
        // Padding is legal where it completes a group of four.
        text.as_bytes()[*at] != b'=' || at % 4 < 2
    });
    Some(format!("illegal base64 data at input byte {}", at.unwrap_or(text.len())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::builtin::builtin_json;

    #[track_caller]
    fn check(kind: &str, object: Value, expect: Option<&str>) {
        let components = builtin_json("", "v1", kind).unwrap_or_else(|| panic!("{kind}"));
        assert_eq!(mismatch(&components, &object).as_deref(), expect, "{object}");
    }

    #[test]
    fn wrong_types_are_told_as_go_tells_them() {
        check("ConfigMap", json!({"metadata": {"name": "a"}, "data": {"a": "b"}}), None);
        check(
            "ConfigMap",
            json!({"data": {"a": 1}}),
            Some("json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        );
        check(
            "ConfigMap",
            json!({"data": []}),
            Some("json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"),
        );
        check(
            "ConfigMap",
            json!({"metadata": {"ownerReferences": [{"name": true}]}}),
            Some(
                "json: cannot unmarshal bool into Go struct field OwnerReference.metadata.ownerReferences.name of type string",
            ),
        );
        check(
            "Pod",
            json!({"spec": {"containers": {}}}),
            Some("json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"),
        );
        check("Secret", json!({"data": {"a": "!!"}}), Some("illegal base64 data at input byte 0"));
        check("Secret", json!({"data": {"a": "YQ="}}), Some("illegal base64 data at input byte 3"));
    }
}
