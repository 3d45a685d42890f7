//! What a Go struct makes of JSON: an absent field, a null and an empty list are the same, and a null in a map is the
//! empty value of its type.

use serde_json::{Value, json};

use crate::schema::{Schema, Type};

impl Schema {
    /// Makes of a built-in object what the API server keeps of it.
    pub fn as_go_keeps(&self, object: &mut Value) {
        structure(self, object);
    }
}

fn structure(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) if schema.additional.is_some() && schema.properties.is_empty() => {
            let of = schema.additional.as_deref();
            for inner in map.values_mut() {
                element(of, inner);
            }
        }
        Value::Object(map) => {
            map.retain(|_, field| !field.is_null());
            for (key, field) in map.iter_mut() {
                if let Some(below) = schema.properties.get(key) {
                    structure(below, field);
                }
            }
            map.retain(|key, field| {
                let Some(below) = schema.properties.get(key) else { return true };
                let required = schema.checks.required.iter().any(|name| name == key);
                let empty_map = below.additional.is_some() && field.as_object().is_some_and(serde_json::Map::is_empty);
                let empty_list = field.as_array().is_some_and(Vec::is_empty);
                required || !(empty_map || empty_list)
            });
        }
        Value::Array(items) => {
            for item in items {
                element(schema.items.as_deref(), item);
            }
        }
        _ => {}
    }
}

fn element(schema: Option<&Schema>, value: &mut Value) {
    let Some(schema) = schema else { return };
    if value.is_null() {
        *value = match schema.ty {
            Type::String => json!(""),
            Type::Integer | Type::Number => json!(0),
            Type::Boolean => json!(false),
            Type::Object => json!({}),
            _ => return,
        };
    }
    structure(schema, value);
}

/// Adds the fields that are always there. `zero` is an empty object of the kind.
pub fn always(object: &mut Value, zero: &Value) {
    let (Value::Object(map), Value::Object(fields)) = (object, zero) else { return };
    for (key, field) in fields.iter().filter(|(key, _)| *key != "metadata") {
        match map.get_mut(key) {
            Some(inner) => always(inner, field),
            None => _ = map.insert(key.clone(), field.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin::builtin;

    #[track_caller]
    fn check(kind: &str, mut object: Value, zero: &Value, expect: &Value) {
        let schema = builtin("", "v1", kind).unwrap_or_else(|| panic!("{kind}"));
        schema.as_go_keeps(&mut object);
        always(&mut object, zero);
        assert_eq!(object, *expect);
    }

    #[test]
    fn nulls_and_empty_things() {
        check("ConfigMap", json!({"data": {"a": null}}), &json!({}), &json!({"data": {"a": ""}}));
        check("ConfigMap", json!({"data": {}, "binaryData": null}), &json!({}), &json!({}));
        let pod = json!({"spec": {"containers": [], "volumes": [], "securityContext": {}, "nodeSelector": {}}});
        check("Pod", pod, &json!({}), &json!({"spec": {"containers": [], "securityContext": {}}}));
        check("Event", json!({}), &json!({"source": {}, "count": null}), &json!({"source": {}, "count": null}));
    }
}
