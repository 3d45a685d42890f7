//! The owners of the fields of an object, read from `metadata.managedFields`.
//!
//! A path is a list of the steps that Kubernetes writes: `f:NAME` (a field), `k:{...}` (an element of a list by its
//! keys), `v:VALUE` (an element of a set), `i:INDEX` (an element of a list by its index), and `.` (the element itself).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// A path to a field.
pub type Path = Vec<String>;

pub type Fields = BTreeSet<Path>;

/// A field manager of an object, and the fields that it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFields {
    pub manager: String,
    /// Whether the manager uses server-side apply.
    pub applied: bool,
    pub fields: Fields,
}

/// The fields that a manager has applied.
#[must_use]
pub fn applied_by(object: &Value, manager: &str) -> Fields {
    let own = entries(object).filter(|(name, applied, _)| *applied && *name == manager);
    own.flat_map(|(_, _, fields)| paths(fields)).collect()
}

/// All managers of an object, each once, without those that write only the status.
#[must_use]
pub fn owners(object: &Value) -> Vec<ManagedFields> {
    let mut all: BTreeMap<&str, ManagedFields> = BTreeMap::new();
    for (manager, applied, fields) in entries(object) {
        let one = all.entry(manager).or_insert_with(|| ManagedFields {
            manager: manager.to_owned(),
            applied: false,
            fields: Fields::new(),
        });
        one.applied |= applied;
        one.fields
            .extend(paths(fields).into_iter().filter(|path| path.first().is_none_or(|first| first != "f:status")));
    }
    all.into_values().collect()
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, bool, &Value)> {
    let all = object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    all.filter(|entry| entry.get("subresource").and_then(Value::as_str).is_none_or(|sub| sub != "status")).filter_map(
        |entry| {
            let manager = entry.get("manager")?.as_str()?;
            let applied = entry.get("operation").and_then(Value::as_str) == Some("Apply");
            Some((manager, applied, entry.get("fieldsV1")?))
        },
    )
}

fn paths(fields: &Value) -> Fields {
    let mut found = Fields::new();
    walk(fields, &mut Vec::new(), &mut found);
    found
}

fn walk(fields: &Value, at: &mut Path, found: &mut Fields) {
    let Some(children) = fields.as_object().filter(|children| !children.is_empty()) else {
        if !at.is_empty() {
            found.insert(at.clone());
        }
        return;
    };
    for (step, below) in children {
        at.push(step.clone());
        walk(below, at, found);
        at.pop();
    }
}

/// The values of these fields as a configuration that can be applied: with the names that identify the object.
#[must_use]
pub fn extract(object: &Value, fields: &Fields) -> Value {
    let mut tree = Tree::default();
    for path in fields {
        tree.insert(path);
    }
    // An empty tree takes everything below a path, but no fields mean no values.
    let mut taken = tree.take(object).filter(|_| !fields.is_empty()).unwrap_or_else(|| json!({}));
    for field in ["apiVersion", "kind"] {
        taken[field] = object[field].clone();
    }
    if !taken["metadata"].is_object() {
        taken["metadata"] = json!({});
    }
    for field in ["name", "namespace"] {
        if let Some(value) = object["metadata"].get(field) {
            taken["metadata"][field] = value.clone();
        }
    }
    taken
}

#[derive(Default)]
struct Tree {
    below: BTreeMap<String, Tree>,
}

impl Tree {
    fn insert(&mut self, path: &[String]) {
        if let Some((step, rest)) = path.split_first() {
            self.below.entry(step.clone()).or_default().insert(rest);
        }
    }

    fn take(&self, value: &Value) -> Option<Value> {
        let children: Vec<(&str, &Tree)> =
            self.below.iter().filter(|(step, _)| *step != ".").map(|(step, tree)| (step.as_str(), tree)).collect();
        if self.below.is_empty() {
            return Some(value.clone());
        }
        match value {
            Value::Object(fields) => {
                let mut taken = Map::new();
                for (step, tree) in children {
                    let Some(name) = step.strip_prefix("f:") else { continue };
                    if let Some(found) = fields.get(name).and_then(|value| tree.take(value)) {
                        taken.insert(name.to_owned(), found);
                    }
                }
                Some(Value::Object(taken))
            }
            // The elements keep the order of the object.
            Value::Array(items) => {
                let taken = items.iter().enumerate().filter_map(|(index, item)| {
                    let (step, tree) = children.iter().find(|(step, _)| names(step, index, item))?;
                    let mut found = tree.take(item)?;
                    if let (Some(keys), Some(found)) = (keys(step), found.as_object_mut()) {
                        found.extend(keys.into_iter().filter(|(key, _)| item.get(key).is_some()));
                    }
                    Some(found)
                });
                Some(Value::Array(taken.collect()))
            }
            other => Some(other.clone()),
        }
    }
}

fn keys(step: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(step.strip_prefix("k:")?).ok()
}

/// Whether a step leads to this element of a list.
fn names(step: &str, index: usize, item: &Value) -> bool {
    if let Some(keys) = keys(step) {
        // A key that is absent has its default value. Kubernetes writes defaults into the objects of most kinds.
        return keys.iter().all(|(key, value)| item.get(key).is_none_or(|found| found == value));
    }
    if let Some(value) = step.strip_prefix("v:") {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item);
    }
    step.strip_prefix("i:").and_then(|number| number.parse().ok()) == Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "default", "uid": "1", "labels": {"app": "web", "other": "x"},
                "finalizers": ["a/b", "c/d"],
                "managedFields": [
                    {"manager": "atom", "operation": "Apply", "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {"v:\"a/b\"": {}}},
                        "f:spec": {"f:template": {"f:spec": {"f:containers": {
                            "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {},
                                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}},
                        }}}},
                    }},
                    {"manager": "hpa", "operation": "Update", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                    {"manager": "kcm", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}},
                ],
            },
            "spec": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "sidecar", "image": "s"},
                {"name": "web", "image": "w:1", "terminationMessagePath": "/dev", "ports": [
                    {"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "protocol": "TCP"}]},
            ]}}},
            "status": {"replicas": 3},
        })
    }

    #[test]
    fn what_a_manager_applied_can_be_applied_again() {
        let object = deployment();
        let expect = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}, "finalizers": ["a/b"]},
            "spec": {"template": {"spec": {"containers": [
                {"name": "web", "image": "w:1", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
            ]}}},
        });
        assert_eq!(extract(&object, &applied_by(&object, "atom")), expect);
        assert!(applied_by(&object, "hpa").is_empty());
        let nothing =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}});
        assert_eq!(extract(&object, &Fields::new()), nothing);
    }

    #[test]
    fn a_manager_that_writes_only_the_status_owns_nothing() {
        let names: Vec<(String, bool)> =
            owners(&deployment()).into_iter().map(|owner| (owner.manager, owner.applied)).collect();
        assert_eq!(names, [("atom".to_owned(), true), ("hpa".to_owned(), false)]);
    }

    #[test]
    fn a_whole_field_is_taken_whole() {
        let object =
            json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "spec": {"any": {"x": [1, 2]}}});
        let fields = Fields::from([vec!["f:spec".to_owned(), "f:any".to_owned()]]);
        assert_eq!(extract(&object, &fields)["spec"], json!({"any": {"x": [1, 2]}}));
    }
}
