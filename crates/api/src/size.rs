//! [`Size`]: a number of bytes as Kubernetes writes it (`512Ki`, `10Mi`, `1Gi`).

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A number of bytes. The text is kept as the user wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Size(String);

impl Size {
    /// The number of bytes. A text that the schema does not accept has none.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let digits = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (number, unit) = self.0.split_at(digits);
        let factor = match unit {
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            _ => 0,
        };
        number.parse::<u64>().unwrap_or_default().saturating_mul(factor)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 16,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[1-9][0-9]{0,8}(Ki|Mi|Gi)$')",
                "message": "write a number with a unit (Ki, Mi or Gi), for example 512Ki or 10Mi",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_of_bytes() {
        let rows = [("1Ki", 1024), ("10Mi", 10 << 20), ("2Gi", 2 << 30), ("5", 0), ("x", 0)];
        for (text, bytes) in rows {
            assert_eq!(Size(text.to_owned()).bytes(), bytes, "{text}");
        }
    }
}
