//! From JSON schemas with references to a [`Schema`] tree.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Components;
use super::facts::{self, Field, ListMerge};
use crate::schema::checks::Checks;
use crate::schema::{ListType, MapType, Schema, Strategy, Type};

const QUANTITY: &str = "apimachinery.pkg.api.resource.Quantity";

/// The tree of a kind.
pub(super) fn schema(components: &Components) -> Schema {
    let mut resolver = Resolver { schemas: &components.schemas, done: HashMap::new(), open: Vec::new() };
    let root = resolver.definition(&components.name, false);
    Schema::clone(&root)
}

struct Resolver<'a> {
    schemas: &'a Map<String, Value>,
    /// Types are used many times; each is made once.
    done: HashMap<(String, bool), Arc<Schema>>,
    /// The types that are being made, to stop where one uses itself.
    open: Vec<String>,
}

impl Resolver<'_> {
    /// `observed` is on below `status`, where the API server takes what controllers write as it is.
    fn definition(&mut self, name: &str, observed: bool) -> Arc<Schema> {
        if let Some(schema) = self.done.get(&(name.to_owned(), observed)) {
            return schema.clone();
        }
        let plain = plain_name(name);
        if facts::ANYTHING.contains(&plain) || self.open.iter().any(|open| open == name) {
            return Arc::new(anything());
        }
        let schema = if plain == QUANTITY {
            quantity()
        } else {
            self.open.push(name.to_owned());
            let schemas = self.schemas;
            let mut schema = match schemas.get(name) {
                Some(json) => self.node(json, plain, observed),
                None => anything(),
            };
            self.open.pop();
            if facts::ATOMIC.contains(&plain) {
                schema.map_type = MapType::Atomic;
            }
            schema
        };
        let schema = Arc::new(schema);
        self.done.insert((name.to_owned(), observed), schema.clone());
        schema
    }

    fn reference(&mut self, json: &Value, owner: &str, observed: bool) -> Arc<Schema> {
        match referred(json) {
            Some(name) => self.definition(name, observed),
            None => Arc::new(self.node(json, owner, observed)),
        }
    }

    fn node(&mut self, json: &Value, owner: &str, observed: bool) -> Schema {
        let mut schema = Schema {
            ty: match json.get("type").and_then(Value::as_str) {
                _ if json.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) => Type::IntOrString,
                Some("object") => Type::Object,
                Some("array") => Type::Array,
                Some("string") => Type::String,
                Some("integer") => Type::Integer,
                Some("number") => Type::Number,
                Some("boolean") => Type::Boolean,
                _ => Type::Any,
            },
            description: json.get("description").and_then(Value::as_str).map(str::to_owned),
            ..Schema::default()
        };
        schema.preserve_unknown = schema.ty == Type::Any;
        if let Some(properties) = json.get("properties").and_then(Value::as_object) {
            for (name, field) in properties {
                let below = observed || name == "status";
                let resolved = self.reference(field, owner, below);
                schema.properties.insert(name.clone(), with_facts(resolved, field, owner, name));
            }
        }
        if let Some(value) = json.get("additionalProperties").filter(|v| v.is_object()) {
            schema.additional = Some(self.reference(value, owner, observed));
        }
        if let Some(items) = json.get("items") {
            schema.items = Some(self.reference(items, owner, observed));
        }
        if !observed {
            schema.checks.required = required(json, owner);
        }
        schema
    }
}

/// The field's own description and merge behaviour, on top of its type's.
fn with_facts(resolved: Arc<Schema>, json: &Value, owner: &str, name: &str) -> Arc<Schema> {
    let description = json.get("description").and_then(Value::as_str).filter(|_| referred(json).is_some());
    let fact = fact(owner, name);
    let default = facts::KEY_DEFAULTS.iter().find(|(of, key, _)| *of == owner && *key == name);
    if description.is_none() && fact.is_none() && default.is_none() {
        return resolved;
    }
    let mut schema = Arc::unwrap_or_clone(resolved);
    if let Some(description) = description {
        schema.description = Some(description.to_owned());
    }
    if let Some((_, _, value)) = default {
        schema.default = Some((*value).into());
    }
    if let Some(fact) = fact {
        schema.list_type = match fact.list {
            ListMerge::Atomic => ListType::Atomic,
            ListMerge::Set => ListType::Set,
            ListMerge::Map(keys) => ListType::Map(keys.iter().map(|k| (*k).to_owned()).collect()),
        };
        if fact.atomic {
            schema.map_type = MapType::Atomic;
        }
        schema.strategy = Strategy {
            merge: fact.strategy.split(',').any(|s| s == "merge"),
            retain_keys: fact.strategy.split(',').any(|s| s == "retainKeys"),
            merge_key: Some(fact.merge_key.to_owned()).filter(|k| !k.is_empty()),
        };
    }
    Arc::new(schema)
}

fn fact(owner: &str, name: &str) -> Option<&'static Field> {
    facts::FIELDS.iter().find(|f| f.name == name && f.of == owner)
}

fn required(json: &Value, owner: &str) -> Vec<String> {
    let list = json.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .filter_map(Value::as_str)
        // The server gives every object its metadata.
        .filter(|name| *name != "metadata" && !facts::NOT_REQUIRED.contains(&(owner, name)))
        .map(str::to_owned)
        .collect()
}

fn plain_name(name: &str) -> &str {
    name.strip_prefix("io.k8s.").unwrap_or(name)
}

fn referred(json: &Value) -> Option<&str> {
    json.get("$ref").and_then(Value::as_str)?.rsplit('/').next()
}

fn anything() -> Schema {
    Schema { preserve_unknown: true, ..Schema::default() }
}

/// A quantity is written as a string or as a number, which need not be whole.
fn quantity() -> Schema {
    let of = |ty| Arc::new(Schema { ty, ..Schema::default() });
    let checks = Checks { any_of: vec![of(Type::String), of(Type::Number)], ..Checks::default() };
    Schema { checks, ..Schema::default() }
}

/// Writes the facts into JSON schemas, in the form of the Kubernetes `OpenAPI` document.
pub(super) fn annotate(schemas: &mut Map<String, Value>) {
    for (name, schema) in schemas.iter_mut() {
        let owner = plain_name(name);
        if facts::ATOMIC.contains(&owner) {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
        if let Some(list) = schema.get_mut("required").and_then(Value::as_array_mut) {
            list.retain(|v| v.as_str() != Some("metadata"));
            if list.is_empty() {
                schema.as_object_mut().map(|s| s.remove("required"));
            }
        }
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            for (field, json) in properties.iter_mut() {
                if let (Some(fact), Some(map)) = (fact(owner, field), json.as_object_mut()) {
                    annotate_field(map, fact);
                }
            }
        }
        wrap_references(schema);
    }
}

fn annotate_field(map: &mut Map<String, Value>, fact: &Field) {
    let mut set = |name: &str, value: Value| _ = map.insert(format!("x-kubernetes-{name}"), value);
    match fact.list {
        ListMerge::Atomic => {}
        ListMerge::Set => set("list-type", json!("set")),
        ListMerge::Map(keys) => {
            set("list-type", json!("map"));
            set("list-map-keys", json!(keys));
        }
    }
    if fact.atomic {
        set("map-type", json!("atomic"));
    }
    if !fact.strategy.is_empty() {
        set("patch-strategy", json!(fact.strategy));
    }
    if !fact.merge_key.is_empty() {
        set("patch-merge-key", json!(fact.merge_key));
    }
}

/// `OpenAPI` ignores what stands beside a `$ref`, so such a reference moves into an `allOf`.
fn wrap_references(json: &mut Value) {
    match json {
        Value::Object(map) => {
            if map.len() > 1
                && map.get("$ref").is_some_and(Value::is_string)
                && let Some(reference) = map.remove("$ref")
            {
                map.insert("allOf".to_owned(), json!([{"$ref": reference}]));
            }
            map.values_mut().for_each(wrap_references);
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        _ => {}
    }
}
