//! What makes a schema structural: every node has a type, and value checks only speak of nodes that exist.

use serde_json::{Map, Value};

use super::error::FieldError;
use super::parse::{Level, Location, flag, strings, text};
use super::{Schema, Type};

/// JSON schema keywords that Kubernetes does not support.
pub(crate) fn unsupported(map: &Map<String, Value>, path: &str, location: &Location, errors: &mut Vec<FieldError>) {
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if map.get(name).is_some_and(|v| !v.is_null() && v.as_object().is_none_or(|o| !o.is_empty())) {
            errors.push(FieldError::forbidden(format!("{path}.{name}"), format!("{name} is not supported")));
        }
    }
    if map.get("items").is_some_and(Value::is_array) {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
    if flag(map, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    if location.inside_meta && flag(map, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(format!("{path}.x-kubernetes-embedded-resource"), detail));
    }
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(field, false, "must be true or undefined"));
    }
    if let Some(reason) = location.no_default.as_ref().filter(|_| map.get("default").is_some_and(|d| !d.is_null())) {
        errors.push(FieldError::forbidden(format!("{path}.default"), format!("must not be set {reason}")));
    }
    let has_properties = map.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
    let closed_or_typed = map.get("additionalProperties").is_some_and(|a| !a.is_null() && *a != Value::Bool(true));
    if has_properties && closed_or_typed {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
    }
}

/// The invariants of one node.
pub(crate) fn invariants(
    map: &Map<String, Value>,
    schema: &Schema,
    path: &str,
    location: &Location,
    errors: &mut Vec<FieldError>,
) {
    lists_and_maps(map, schema, path, errors);
    if location.nested {
        nested(map, path, location, errors);
        return;
    }
    let root = location.level == Level::Root;
    let ty = text(map, "type").unwrap_or_default();
    if ty == "array" && schema.items.is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if map.get("additionalProperties").is_some_and(|a| !a.is_null()) {
        let field = format!("{path}.additionalProperties");
        if root {
            errors.push(FieldError::forbidden(field, "must not be used at the root"));
        } else if schema.embedded_resource {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(field, detail));
        }
    }
    let int_or_string = schema.ty == Type::IntOrString;
    for (on, name) in [
        (schema.preserve_unknown, "x-kubernetes-preserve-unknown-fields"),
        (schema.embedded_resource, "x-kubernetes-embedded-resource"),
    ] {
        if int_or_string && on {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{name}"), true, detail));
        }
    }
    let field = format!("{path}.type");
    if schema.embedded_resource && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if ty.is_empty() {
            FieldError::required(field, detail)
        } else {
            FieldError::invalid(field, ty, detail)
        });
    } else if ty.is_empty() && !int_or_string && !schema.preserve_unknown {
        let place = match location.level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(field, format!("must not be empty {place}")));
    } else if root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(field, ty, "must be object at the root"));
    }
    if schema.embedded_resource && !schema.preserve_unknown && schema.properties.is_empty() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
    if root || schema.embedded_resource {
        metadata(map, schema, path, root, errors);
    }
}

/// `apiVersion`, `kind` and `metadata` are what Kubernetes says they are; a schema may only restrict names.
fn metadata(map: &Map<String, Value>, schema: &Schema, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    for (name, ty, wanted) in [
        ("kind", Type::String, "must be string"),
        ("apiVersion", Type::String, "must be string"),
        ("metadata", Type::Object, "must be object"),
    ] {
        if let Some(field) = schema.properties.get(name).filter(|f| f.ty != ty) {
            let at = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(at, field.ty.name(), wanted));
        }
    }
    if !root {
        return;
    }
    let known = ["type", "properties", "description", "title", "default"];
    let meta = map.get("properties").and_then(|p| p.get("metadata")).and_then(Value::as_object);
    let Some(meta) = meta else { return };
    let names_only = meta
        .get("properties")
        .and_then(Value::as_object)
        .is_none_or(|p| p.keys().all(|k| matches!(k.as_str(), "name" | "generateName")));
    let plain = meta.keys().all(|k| known.contains(&k.as_str()) && k != "description" && k != "title");
    if !names_only || !plain {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

/// Inside `allOf`, `anyOf`, `oneOf` and `not` there are value checks only.
fn nested(map: &Map<String, Value>, path: &str, location: &Location, errors: &mut Vec<FieldError>) {
    let mut forbid = |name: &str, detail: &str| errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
    let empty = "must be empty to be structural";
    let undefined = "must be undefined to be structural";
    let off = "must be false to be structural";
    if text(map, "type").is_some_and(|t| !t.is_empty()) && !location.int_or_string_branch {
        forbid("type", empty);
    }
    if map.get("additionalProperties").is_some_and(|a| !a.is_null() && *a != Value::Bool(false)) {
        forbid("additionalProperties", undefined);
    }
    if map.get("default").is_some_and(|d| !d.is_null()) {
        forbid("default", undefined);
    }
    for name in ["title", "description"] {
        if text(map, name).is_some_and(|t| !t.is_empty()) {
            forbid(name, empty);
        }
    }
    for name in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if flag(map, name) {
            forbid(name, off);
        }
    }
    for name in ["x-kubernetes-list-map-keys", "x-kubernetes-validations"] {
        if map.get(name).and_then(Value::as_array).is_some_and(|l| !l.is_empty()) {
            forbid(name, empty);
        }
    }
    for name in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if map.contains_key(name) {
            forbid(name, undefined);
        }
    }
    if map.get("properties").is_some_and(|p| p.get("metadata").is_some()) {
        forbid("properties[metadata]", "must not be specified in a nested context");
    }
}

/// `x-kubernetes-list-type`, `x-kubernetes-list-map-keys` and `x-kubernetes-map-type`.
fn lists_and_maps(map: &Map<String, Value>, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let ty = text(map, "type").unwrap_or_default();
    for (name, wanted, known) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "map", "set"][..]),
    ] {
        let Some(given) = text(map, name) else {
            continue;
        };
        if ty != wanted {
            let (field, detail) = (format!("{path}.type"), format!("must be {wanted} if {name} is specified"));
            errors.push(if ty.is_empty() {
                FieldError::required(field, detail)
            } else {
                FieldError::invalid(field, ty, detail)
            });
        }
        if !known.contains(&given) {
            let listed: &[&str] = if wanted == "array" { &["atomic", "set", "map"] } else { known };
            errors.push(FieldError::not_supported(format!("{path}.{name}"), given, listed));
        }
    }
    let list_type = text(map, "x-kubernetes-list-type");
    let keys = strings(map, "x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type != Some("map") {
        let field = format!("{path}.x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => FieldError::required(field, detail),
            Some(other) => FieldError::invalid(field, other, detail),
        });
    }
    let items = map.get("items").and_then(Value::as_object);
    let item_type = items.and_then(|i| text(i, "type")).unwrap_or_default();
    if let (Some(list @ ("set" | "map")), Some(items)) = (list_type, items)
        && flag(items, "nullable")
    {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if let (Some("set"), Some(items)) = (list_type, items) {
        let (name, given) = match item_type {
            "array" => ("x-kubernetes-list-type", text(items, "x-kubernetes-list-type").or(Some("atomic"))),
            "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type")),
            _ => ("", Some("atomic")),
        };
        if given != Some("atomic") {
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            let value = text(items, "x-kubernetes-list-type").map_or(Value::Null, Into::into);
            errors.push(FieldError::invalid(format!("{path}.items.{name}"), value, detail));
        }
    }
    if list_type == Some("map") {
        map_list(&keys, items, item_type, schema, path, errors);
    }
}

fn map_list(
    keys: &[String],
    items: Option<&Map<String, Value>>,
    item_type: &str,
    schema: &Schema,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let keys_field = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys_field.as_str(), detail));
    }
    let (Some(items), Some(item)) = (items, &schema.items) else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    };
    if item_type != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), item_type, detail));
        return;
    }
    let required = strings(items, "required");
    for (i, key) in keys.iter().enumerate() {
        let at = format!("{path}.items.properties[{key}]");
        match item.properties.get(key) {
            Some(field) => {
                if matches!(field.ty, Type::Array | Type::Object) {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(FieldError::invalid(format!("{at}.type"), item_type, detail));
                }
                if !required.contains(key) && field.default.is_none() {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    errors.push(FieldError::required(format!("{at}.default"), detail));
                }
                if field.nullable {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    errors.push(FieldError::forbidden(format!("{at}.nullable"), detail));
                }
            }
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(keys_field.as_str(), keys.to_vec(), detail));
            }
        }
        if keys[..i].contains(key) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(keys_field.as_str(), keys.to_vec(), detail));
        }
    }
}

/// Every field that a value check of the root speaks of must be part of the structure.
pub(crate) fn completeness(schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    junctors(schema, Some(schema), path, path, errors);
}

fn junctors(checked: &Schema, of: Option<&Schema>, of_path: &str, path: &str, errors: &mut Vec<FieldError>) {
    let checks = &checked.checks;
    for (name, branches) in [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)] {
        for (i, branch) in branches.iter().enumerate() {
            covered(branch, of, of_path, &format!("{path}.{name}[{i}]"), errors);
        }
    }
    if let Some(branch) = &checks.not {
        covered(branch, of, of_path, &format!("{path}.not"), errors);
    }
}

fn covered(checked: &Schema, of: Option<&Schema>, of_path: &str, path: &str, errors: &mut Vec<FieldError>) {
    let Some(schema) = of else {
        errors.push(FieldError::required(of_path, format!("because it is defined in {path}")));
        return;
    };
    junctors(checked, of, of_path, path, errors);
    if let Some(items) = &checked.items {
        covered(items, schema.items.as_deref(), &format!("{of_path}.items"), &format!("{path}.items"), errors);
    }
    for (name, field) in &checked.properties {
        let (of_path, path) = (format!("{of_path}.properties[{name}]"), format!("{path}.properties[{name}]"));
        covered(field, schema.properties.get(name).map(AsRef::as_ref), &of_path, &path, errors);
    }
}
