//! Pruning: fields that the schema does not know are not stored.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::Schema;
use super::builtin::object_meta;

impl Schema {
    /// Removes every field that the schema does not know and returns their paths, sorted, as Kubernetes names them
    /// in `unknown field "spec.foo"`.
    ///
    /// `self` describes a whole object: its `apiVersion` and `kind` are kept as they are, and its `metadata` is
    /// pruned as what Kubernetes knows it to be, whatever the schema says.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut walk = Walk { path: String::new(), unknown: Vec::new() };
        walk.node(object, Some(self), true, false);
        walk.unknown.sort();
        walk.unknown
    }

    /// The same for a value inside an object, such as a default.
    pub(crate) fn prune_value(&self, value: &mut Value) -> Vec<String> {
        let mut walk = Walk { path: String::new(), unknown: Vec::new() };
        walk.node(value, Some(self), false, false);
        walk.unknown.sort();
        walk.unknown
    }
}

fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

struct Walk {
    path: String,
    unknown: Vec<String>,
}

impl Walk {
    /// `keep` says that the list above keeps what it does not know, which then holds for its items too.
    fn node(&mut self, value: &mut Value, schema: Option<&Schema>, root: bool, keep: bool) {
        let keep = keep || schema.is_some_and(|s| s.preserve_unknown);
        match value {
            Value::Object(map) => {
                let whole = root || schema.is_some_and(|s| s.embedded_resource);
                let mut unknown = BTreeSet::new();
                for (key, field) in map.iter_mut() {
                    if whole && is_meta(key) {
                        if key == "metadata" {
                            let len = self.push_key(key);
                            self.node(field, Some(&object_meta()), false, false);
                            self.path.truncate(len);
                        }
                        continue;
                    }
                    match schema.and_then(|s| s.field(key)) {
                        Some(below) => {
                            let len = self.push_key(key);
                            self.node(field, Some(below), false, false);
                            self.path.truncate(len);
                        }
                        None if keep => {}
                        None => _ = unknown.insert(key.clone()),
                    }
                }
                if unknown.is_empty() {
                    return;
                }
                map.retain(|key, _| !unknown.contains(key));
                for key in unknown {
                    let len = self.push_key(&key);
                    self.unknown.push(self.path.clone());
                    self.path.truncate(len);
                }
            }
            Value::Array(items) => {
                let below = schema.and_then(|s| s.items.as_deref());
                if below.is_none() && keep {
                    return;
                }
                for (i, item) in items.iter_mut().enumerate() {
                    let len = self.path.len();
                    _ = write!(self.path, "[{i}]");
                    self.node(item, below, false, keep);
                    self.path.truncate(len);
                }
            }
            _ => {}
        }
    }

    fn push_key(&mut self, key: &str) -> usize {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        len
    }
}
