//! Schemas that were read before: a definition's schema is needed when it is validated, whenever its status changes,
//! and each time that it is served, and reading it takes long.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::{FieldError, Schema};

/// More than a cluster of one machine has definitions; beyond that all are read again.
const MOST: usize = 256;

static KNOWN: LazyLock<Mutex<HashMap<String, Arc<Schema>>>> = LazyLock::new(Mutex::default);

impl Schema {
    /// As `Schema::from_json`, and read once.
    pub fn shared(json: &Value) -> Result<Arc<Schema>, Vec<FieldError>> {
        let text = json.to_string();
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = known().get(&text) {
            return Ok(schema.clone());
        }
        // Without the lock: others may read others meanwhile.
        let schema = Arc::new(Schema::from_json(json)?);
        let mut known = known();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(text, schema.clone());
        Ok(schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_read_is_not_read_again_and_what_was_refused_is_refused_again() {
        let schema = |text: &str| json!({"type": "object", "description": text});
        let read = |json: &Value| Schema::shared(json).map_err(|_| "refused");
        let (first, again) = (read(&schema("one")), read(&schema("one")));
        assert!(first.is_ok_and(|first| again.is_ok_and(|again| Arc::ptr_eq(&first, &again))));
        let (one, other) = (read(&schema("one")), read(&schema("other")));
        assert!(one.is_ok_and(|one| other.is_ok_and(|other| !Arc::ptr_eq(&one, &other))));
        for _ in 0..2 {
            assert!(Schema::shared(&json!({"type": "nonsense"})).is_err());
        }
    }
}
