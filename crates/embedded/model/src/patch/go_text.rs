//! Values as Go prints them, which is how Kubernetes quotes them in some of its messages.

use serde_json::Value;

/// `map[name:x ports:[80 81]]`
pub fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}:{}", go_text(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// What is said of a patch that should be an object.
pub fn not_an_object(value: &Value) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
}
