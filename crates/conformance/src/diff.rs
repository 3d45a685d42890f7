//! Compares two JSON values by path.

use serde_json::Value;

/// A path at which two values differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// For example `body.metadata.labels.a` or `body.items[2]`.
    pub path: String,
    /// The value of the embedded server, if it has one.
    pub ours: Option<Value>,
    /// The value of the real server, if it has one.
    pub theirs: Option<Value>,
}

pub fn diff(ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut out = Vec::new();
    walk(String::new(), Some(ours), Some(theirs), &mut out);
    out
}

fn walk(path: String, ours: Option<&Value>, theirs: Option<&Value>, out: &mut Vec<Difference>) {
    match (ours, theirs) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                walk(join(&path, key), a.get(key), b.get(key), out);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for at in 0..a.len().max(b.len()) {
                walk(format!("{path}[{at}]"), a.get(at), b.get(at), out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(Difference { path, ours: a.cloned(), theirs: b.cloned() }),
    }
}

fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    match (path.is_empty(), plain) {
        (true, _) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (false, false) => format!("{path}[{key:?}]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named_by_their_paths() {
        let ours = json!({"a": {"b/c": 1, "d": [1, 2]}, "same": true});
        let theirs = json!({"a": {"b/c": 2, "d": [1]}, "same": true, "more": null});
        let found: Vec<String> = diff(&ours, &theirs).into_iter().map(|d| d.path).collect();
        assert_eq!(found, ["a[\"b/c\"]", "a.d[1]", "more"]);
        assert!(diff(&ours, &ours).is_empty());
        assert_eq!(diff(&json!(1), &json!("1"))[0].path, "");
    }
}
