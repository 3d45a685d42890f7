//! The outputs that a status shows. A status is part of an object, and objects have a limited size.
//!
//! *Guarantee.* An output that is too large hides only itself: the smaller ones are shown, and the hidden ones are named.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::{
    names::{condition, reason},
    variables::Variables,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conditions::ConditionWriter;

/// The size of the outputs in a status. They are also kept in an annotation, and all annotations of an object together
/// have at most 256 KiB.
pub const SHOWN_BYTES: usize = 128 * 1024;

/// The number of hidden outputs that are named, and the length of each name, so that the names have a limit too.
const NAMED: usize = 20;
const NAME_MAX: usize = 100;

/// Outputs, divided by whether a status shows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    pub values: Variables,
    pub hidden: HiddenOutputs,
}

/// The outputs that a status does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenOutputs {
    pub count: usize,
    /// The names of the first ones, in their order.
    pub names: Vec<String>,
}

/// Chooses the outputs that fit into `limit` bytes of JSON, the small ones first.
#[must_use]
pub fn shown(outputs: &Variables, limit: usize) -> Shown {
    let mut sizes: Vec<(usize, &String, &Value)> =
        outputs.iter().map(|(name, value)| (encoded(name, value), name, value)).collect();
    sizes.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let mut shown = Shown::default();
    let mut hidden = Vec::new();
    // The braces.
    let mut total = 2;
    for (size, name, value) in sizes {
        if total + size <= limit {
            total += size;
            shown.values.insert(name.clone(), value.clone());
        } else {
            hidden.push(name.as_str());
        }
    }
    hidden.sort_unstable();
    let names = hidden.iter().take(NAMED).map(|name| name.chars().take(NAME_MAX).collect());
    shown.hidden = HiddenOutputs { count: hidden.len(), names: names.collect() };
    shown
}

/// The size of a member of a JSON object, with its colon and comma.
fn encoded(name: &str, value: &Value) -> usize {
    Value::from(name).to_string().len() + value.to_string().len() + 2
}

/// Sets the condition that names the hidden outputs, or removes it when there are none.
pub fn tell(conditions: &mut Vec<Condition>, generation: Option<i64>, hidden: &HiddenOutputs, now: Timestamp) {
    if hidden.count == 0 {
        conditions.retain(|found| found.type_ != condition::OUTPUTS_HIDDEN);
        return;
    }
    let names = hidden.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = match hidden.count.saturating_sub(hidden.names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("Too large for the status: {names}{more}. `knoll output` shows every output.");
    ConditionWriter::new(conditions, generation, now).set(
        condition::OUTPUTS_HIDDEN,
        true,
        reason::OUTPUT_TOO_LARGE,
        message,
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(outputs: &Value, limit: usize, expect: &Value, hidden: &[&str]) {
        let outputs: Variables = serde_json::from_value(outputs.clone()).unwrap();
        let found = shown(&outputs, limit);
        assert_eq!(serde_json::to_value(&found.values).unwrap(), *expect);
        assert_eq!(found.hidden.names, hidden);
        assert_eq!(found.hidden.count, hidden.len());
        assert!(serde_json::to_string(&found.values).unwrap().len() <= limit.max(2));
    }

    #[test]
    fn an_output_that_is_too_large_hides_only_itself() {
        let large = "x".repeat(100);
        check(&json!({"a": large, "b": 1, "c": [2]}), 60, &json!({"b": 1, "c": [2]}), &["a"]);
        check(&json!({"a": 1, "m": large, "z": "last"}), 60, &json!({"a": 1, "z": "last"}), &["m"]);
        check(&json!({"a": large, "b": large, "c": 1}), 60, &json!({"c": 1}), &["a", "b"]);
        check(&json!({"a": 1, "b": 2}), 60, &json!({"a": 1, "b": 2}), &[]);
        // `{"a":1,"b":2}` has 13 bytes; room for one more comma is asked for.
        check(&json!({"a": 1, "b": 2}), 14, &json!({"a": 1, "b": 2}), &[]);
        check(&json!({"a": 1, "b": 2}), 13, &json!({"a": 1}), &["b"]);
        check(&json!({"a": 1}), 2, &json!({}), &["a"]);
        check(&json!({}), 0, &json!({}), &[]);
    }

    #[test]
    fn the_condition_names_them_and_goes_with_them() {
        let mut conditions = Vec::new();
        let message = |conditions: &[Condition]| conditions.first().map(|found| found.message.clone());
        let hidden = HiddenOutputs { count: 1, names: vec!["a".to_owned()] };
        tell(&mut conditions, Some(1), &hidden, Timestamp::UNIX_EPOCH);
        assert_eq!(message(&conditions).unwrap(), "Too large for the status: `a`. `knoll output` shows every output.");
        let many: Variables = (0..30).map(|number| (format!("o{number:02}"), json!("long"))).collect();
        tell(&mut conditions, Some(1), &shown(&many, 0).hidden, Timestamp::UNIX_EPOCH);
        assert!(message(&conditions).unwrap().contains("`o19` and 10 more"), "{conditions:?}");
        tell(&mut conditions, Some(1), &HiddenOutputs::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(conditions, []);
    }
}
