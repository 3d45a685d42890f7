//! Schemas for tests, written as the OpenAPI that they would come from.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::schema::{ListType, MapType, Schema, Strategy, Type};

/// Reads the parts of OpenAPI that patches look at.
pub fn schema(openapi: &Value) -> Schema {
    let text = |name: &str| openapi.get(name).and_then(Value::as_str).unwrap_or_default();
    let flag = |name: &str| openapi.get(name) == Some(&Value::Bool(true));
    let nested = |name: &str| openapi.get(name).map(|openapi| Arc::new(schema(openapi)));
    let ty = match text("type") {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ if flag("x-kubernetes-int-or-string") => Type::IntOrString,
        _ => Type::Any,
    };
    let keys = openapi.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
    Schema {
        ty,
        properties: openapi
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, openapi)| (name.clone(), Arc::new(schema(openapi))))
            .collect(),
        additional: nested("additionalProperties"),
        items: nested("items"),
        nullable: flag("nullable"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        list_type: match text("x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => ListType::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect()),
            _ => ListType::Atomic,
        },
        map_type: if text("x-kubernetes-map-type") == "atomic" { MapType::Atomic } else { MapType::Granular },
        strategy: Strategy {
            merge: text("x-kubernetes-patch-strategy").contains("merge"),
            retain_keys: text("x-kubernetes-patch-strategy").contains("retainKeys"),
            merge_key: openapi.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(str::to_owned),
        },
        default: openapi.get("default").cloned(),
        ..Schema::default()
    }
}

/// A custom resource with a field of every sort.
pub fn widget() -> Schema {
    let text = json!({"type": "string"});
    schema(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "name": text,
            "flag": {"type": "boolean"},
            "ratio": {"type": "number"},
            "when": text,
            "mode": {"type": "string", "default": "auto"},
            "nothing": {"type": "string", "nullable": true},
            "labels": {"type": "object", "additionalProperties": text},
            "list": {"type": "array", "items": text},
            "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": text
                }},
            },
            "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
            "nested": {"type": "object", "properties": {
                "x": text, "y": text, "deep": {"type": "object", "properties": {"z": text}}
            }},
            "maps": {"type": "object", "additionalProperties": {"type": "object", "properties": {"p": text, "q": text}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "mixed": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": text}},
            "ios": {"x-kubernetes-int-or-string": true},
        }},
        "status": {"type": "object", "properties": {
            "phase": text,
            "conditions": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "properties": {"type": text, "status": text, "reason": text}},
            },
        }},
    }}))
}
