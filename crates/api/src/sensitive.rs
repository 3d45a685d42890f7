//! The sensitive values in what `terraform show -json` prints of a plan or of a state. Pure.
//!
//! *Guarantee.* There is one walk: the runner masks its log, and the rules of Policies mask their messages, by the same values.

use serde_json::Value;

/// Values, and the marks that terraform puts beside them.
const MARKED: [(&str, &str); 4] = [
    ("before", "before_sensitive"),
    ("after", "after_sensitive"),
    ("values", "sensitive_values"),
    ("identity", "sensitive_identity"),
];

/// All sensitive values of a description.
///
/// Terraform puts a value beside a copy of its structure, in which `true` marks what is sensitive.
#[must_use]
pub fn of_description(description: &Value) -> Vec<String> {
    let mut found = Vec::new();
    describe(description, &mut found);
    let declared = &description["configuration"]["root_module"]["variables"];
    for (name, variable) in description["variables"].as_object().into_iter().flatten() {
        // A variable that the configuration does not show counts as sensitive.
        let is_public = declared.get(name).is_some_and(|declared| declared["sensitive"] != Value::Bool(true));
        if !is_public {
            collect(&variable["value"], &mut found);
        }
    }
    found
}

fn describe(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| describe(item, found)),
        Value::Object(fields) => {
            let is_sensitive = fields.get("sensitive") == Some(&Value::Bool(true));
            for (name, field) in fields {
                match MARKED.iter().find(|(value, _)| value == name).and_then(|(_, marks)| fields.get(*marks)) {
                    Some(marks) => marked(field, marks, found),
                    // An output, or a variable's declaration.
                    None if is_sensitive && (name == "value" || name == "default") => collect(field, found),
                    None => describe(field, found),
                }
            }
        }
        _ => {}
    }
}

/// Collects the parts of a value that are marked with `true`.
fn marked(value: &Value, marks: &Value, found: &mut Vec<String>) {
    match (value, marks) {
        (value, Value::Bool(true)) => collect(value, found),
        (Value::Array(items), Value::Array(marks)) => {
            items.iter().zip(marks).for_each(|(item, marks)| marked(item, marks, found));
        }
        (Value::Object(fields), Value::Object(marks)) => {
            let pairs = marks.iter().filter_map(|(name, marks)| Some((fields.get(name)?, marks)));
            pairs.for_each(|(field, marks)| marked(field, marks, found));
        }
        _ => {}
    }
}

/// Collects all strings and numbers in a value. The names of fields are not sensitive.
pub fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Number(number) => found.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, found)),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_says_what_is_sensitive() {
        let plan = json!({
            "variables": {"open": {"value": "harmless"}, "closed": {"value": ["v-one"]}, "unknown": {"value": "v-two"}},
            "configuration": {"root_module": {
                "variables": {"open": {}, "closed": {"sensitive": true, "default": "v-three"}},
                "module_calls": {"m": {"module": {"variables": {"x": {"sensitive": true, "default": "v-four"}}}}},
            }},
            "planned_values": {
                "outputs": {"o": {"sensitive": true, "value": "o-one"}, "p": {"sensitive": false, "value": "harmless"}},
                "root_module": {"child_modules": [{"resources": [
                    {"values": {"a": "harmless", "b": ["harmless", "r-one"]}, "sensitive_values": {"b": [false, true]}},
                ]}]},
            },
            "resource_changes": [{"change": {
                "before": {"a": {"b": "c-one"}}, "before_sensitive": {"a": {"b": true}},
                "after": {"a": {"b": 12345}, "sensitive": true, "value": "harmless"}, "after_sensitive": {"a": true},
            }}],
            "output_changes": {"o": {"before": "p-one", "before_sensitive": true, "after": "h", "after_sensitive": false}},
            "prior_state": {"values": {"outputs": {"o": {"sensitive": true, "value": "s-one"}}}},
        });
        let mut found = of_description(&plan);
        found.sort();
        let expect = ["12345", "c-one", "o-one", "p-one", "r-one", "s-one", "v-four", "v-one", "v-three", "v-two"];
        assert_eq!(found, expect);
    }
}
