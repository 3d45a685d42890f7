//! Defaults: absent fields get the value that the schema has for them.

use serde_json::Value;

use super::Schema;

impl Schema {
    /// Fills absent fields with the schema's defaults, below every object that is there or was itself filled in.
    ///
    /// A `null` where the schema does not allow one counts as absent: it is dropped, or replaced by the default.
    pub fn apply_defaults(&self, value: &mut Value) {
        self.drop_nulls(value);
        self.fill(value);
    }

    fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(map) => map.retain(|key, field| {
                let Some(schema) = self.field(key) else {
                    return true;
                };
                if field.is_null() && !schema.nullable && schema.default.is_none() {
                    return false;
                }
                schema.drop_nulls(field);
                true
            }),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.drop_nulls(item));
                }
            }
            _ => {}
        }
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, schema) in &self.properties {
                    let Some(default) = &schema.default else {
                        continue;
                    };
                    let absent = map.get(key).is_none_or(|v| v.is_null() && !schema.nullable);
                    if absent {
                        map.insert(key.clone(), default.clone());
                    }
                }
                for (key, field) in map.iter_mut() {
                    let Some(schema) = self.field(key) else {
                        continue;
                    };
                    schema.replace_null(field);
                    schema.fill(field);
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    schema.replace_null(item);
                    schema.fill(item);
                }
            }
            _ => {}
        }
    }

    fn replace_null(&self, value: &mut Value) {
        if let Some(default) = self.default.as_ref().filter(|_| value.is_null() && !self.nullable) {
            *value = default.clone();
        }
    }
}
