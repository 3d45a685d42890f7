//! `${NAME}` variables in scenarios. Each server has its own values, because each assigns its own UIDs and versions.

use std::collections::BTreeMap;

use serde_json::Value;

/// The variables of one scenario on one server.
#[derive(Clone, Debug, Default)]
pub struct Variables(BTreeMap<String, Value>);

impl Variables {
    pub fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Replaces every `${NAME}` in a text, recursively. `${NAME*COUNT}` repeats the value, or the name itself if there
    /// is no such variable.
    pub fn fill(&self, text: &str) -> String {
        self.fill_to(text, 8)
    }

    fn fill_to(&self, text: &str, depth: usize) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            out.push_str(&rest[..start]);
            let name = &rest[start + 2..start + length];
            let value = self.value(name);
            out.push_str(&if depth > 0 { self.fill_to(&value, depth - 1) } else { value });
            rest = &rest[start + length + 1..];
        }
        out.push_str(rest);
        out
    }

    fn value(&self, name: &str) -> String {
        let plain = |name: &str| match self.0.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
            None => None,
        };
        if let Some(value) = plain(name) {
            return value;
        }
        match name.rsplit_once('*').and_then(|(name, count)| Some((name, count.parse::<usize>().ok()?))) {
            Some((name, count)) => plain(name).unwrap_or_else(|| name.to_owned()).repeat(count),
            None => format!("no-value-of-{name}"),
        }
    }

    /// Replaces variables in every string of a value, including keys. A string that consists of one variable becomes
    /// its value.
    pub fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let whole = text.strip_prefix("${").and_then(|t| t.strip_suffix('}')).and_then(|name| self.0.get(name));
                match whole {
                    Some(Value::String(_)) | None => self.fill(text).into(),
                    Some(other) => self.fill_value(other),
                }
            }
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(map) => map.iter().map(|(k, v)| (self.fill(k), self.fill_value(v))).collect(),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_filled_in() {
        let mut variables = Variables::default();
        variables.set("ns", "a".into());
        variables.set("core", "/api/v1/namespaces/${ns}".into());
        variables.set("n", json!({"deep": "${ns}"}));
        assert_eq!(variables.fill("${core}/pods"), "/api/v1/namespaces/a/pods");
        assert_eq!(variables.fill("${x*3}${ns*2}"), "xxxaa");
        assert_eq!(variables.fill("${none}"), "no-value-of-none");
        assert_eq!(variables.fill_value(&json!({"${ns}": ["${n}", 1]})), json!({"a": [{"deep": "a"}, 1]}));
    }
}
