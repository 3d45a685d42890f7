//! From the `openAPIV3Schema` of a `CustomResourceDefinition` to a [`Schema`].
//!
//! A schema that Kubernetes would refuse is refused here with the same errors, so that a definition that works on
//! `knoll up` works on a cluster.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::checks::{Bound, Checks};
use super::error::{FieldError, WHOLE_OBJECT};
use super::format::Format;
use super::pattern::Pattern;
use super::{ListType, MapType, Schema, Type, structural};
use crate::cel;

/// Where Kubernetes reports errors of a schema when all versions of a kind share it.
pub const DEFAULT_PATH: &str = "spec.validation.openAPIV3Schema";

impl Schema {
    /// Reads a structural schema, or says what is wrong with it.
    pub(crate) fn from_json(json: &Value) -> Result<Schema, Vec<FieldError>> {
        Self::from_json_at(DEFAULT_PATH, json)
    }

    /// The same, with errors that name fields below `path`.
    pub(crate) fn from_json_at(path: &str, json: &Value) -> Result<Schema, Vec<FieldError>> {
        let mut parser = Parser::default();
        let mut schema = parser.node(json, path, &Location::default());
        if json.get("nullable") == Some(&Value::Bool(true)) {
            let detail = "nullable cannot be true at the root";
            parser.errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
        }
        structural::completeness(&schema, path, &mut parser.errors);
        if parser.errors.is_empty() {
            default_errors(&schema, path, true, &mut parser.errors);
        }
        if parser.errors.is_empty() {
            parser.attach_rules(&mut schema, path, true);
        }
        if parser.errors.is_empty() {
            default_rule_errors(&schema, path, &mut parser.errors);
        }
        if parser.errors.is_empty() {
            return Ok(schema);
        }
        parser.errors.sort_by_cached_key(ToString::to_string);
        parser.errors.dedup();
        Err(parser.errors)
    }
}

/// What the surroundings of a node forbid.
#[derive(Clone, Default)]
pub(crate) struct Location {
    /// The node is the item of a list or the field of an object; neither at the root.
    pub level: Level,
    /// The node is inside `allOf`, `anyOf`, `oneOf` or `not`.
    pub nested: bool,
    /// The node is one of the two branches that `x-kubernetes-int-or-string` allows to have a type.
    pub int_or_string_branch: bool,
    /// The node is inside the metadata of an object.
    pub inside_meta: bool,
    /// Why there may be no default here.
    pub no_default: Option<String>,
    /// The list or map above whose entries cannot be told apart over time.
    pub uncorrelatable: Option<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Level {
    #[default]
    Root,
    Item,
    Field,
}

impl Location {
    fn below(&self, level: Level) -> Location {
        Location { level, int_or_string_branch: false, ..self.clone() }
    }
}

#[derive(Default)]
struct Parser {
    errors: Vec<FieldError>,
    /// Rules wait until the whole tree is known to be good, because they are checked against its types.
    rules: HashMap<String, Pending>,
}

struct Pending {
    rules: Vec<Value>,
    uncorrelatable: Option<String>,
}

impl Parser {
    fn node(&mut self, json: &Value, path: &str, location: &Location) -> Schema {
        let Some(map) = json.as_object() else {
            self.errors.push(FieldError::invalid(path, json.clone(), "must be a schema object"));
            return Schema::default();
        };
        structural::unsupported(map, path, location, &mut self.errors);
        let mut schema = Schema {
            ty: self.ty(map, path),
            nullable: flag(map, "nullable"),
            preserve_unknown: flag(map, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag(map, "x-kubernetes-embedded-resource"),
            list_type: list_type(map),
            map_type: match text(map, "x-kubernetes-map-type") {
                Some("atomic") => MapType::Atomic,
                _ => MapType::Granular,
            },
            default: map.get("default").filter(|d| !d.is_null()).cloned(),
            description: text(map, "description").map(str::to_owned),
            ..Schema::default()
        };
        self.children(&mut schema, map, path, location);
        schema.checks = self.checks(map, path, location);
        structural::invariants(map, &schema, path, location, &mut self.errors);
        self.remember_rules(map, path, location);
        schema
    }

    fn ty(&mut self, map: &Map<String, Value>, path: &str) -> Type {
        let name = match map.get("type") {
            None | Some(Value::Null) => "",
            Some(Value::String(name)) => name.as_str(),
            Some(other) => {
                self.errors.push(FieldError::invalid(format!("{path}.type"), other.clone(), "must be a string"));
                return Type::Any;
            }
        };
        let ty = match name {
            "" => Type::Any,
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => {
                let field = format!("{path}.type");
                if name == "null" {
                    let detail = "type cannot be set to null, use nullable as an alternative";
                    self.errors.push(FieldError::forbidden(field.as_str(), detail));
                }
                let known = ["array", "boolean", "integer", "number", "object", "string"];
                self.errors.push(FieldError::not_supported(field, name, &known));
                Type::Any
            }
        };
        if flag(map, "x-kubernetes-int-or-string") { Type::IntOrString } else { ty }
    }

    fn children(&mut self, schema: &mut Schema, map: &Map<String, Value>, path: &str, location: &Location) {
        let root = location.level == Level::Root && !location.nested;
        if let Some(properties) = object(map, "properties", path, &mut self.errors) {
            for (name, json) in properties {
                let mut below = location.below(Level::Field);
                if (root || schema.embedded_resource) && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    below.inside_meta = true;
                    if root {
                        below.no_default = Some(format!("in top-level {name}"));
                    }
                }
                let field = self.node(json, &format!("{path}.properties[{name}]"), &below);
                schema.properties.insert(name.clone(), Arc::new(field));
            }
        }
        match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::Bool(true)) => schema.additional = Some(Arc::new(Schema::default())),
            Some(json) => {
                let mut below = location.below(Level::Field);
                if location.inside_meta {
                    let reason = "inside additionalProperties applying to object metadata";
                    below.no_default = Some(reason.to_owned());
                }
                let value = self.node(json, &format!("{path}.additionalProperties"), &below);
                schema.additional = Some(Arc::new(value));
            }
        }
        match map.get("items") {
            None | Some(Value::Null | Value::Array(_)) => {}
            Some(json) => {
                let mut below = location.below(Level::Item);
                if !matches!(schema.list_type, ListType::Map(_)) {
                    below.uncorrelatable.get_or_insert_with(|| path.to_owned());
                }
                schema.items = Some(Arc::new(self.node(json, &format!("{path}.items"), &below)));
            }
        }
    }

    fn checks(&mut self, map: &Map<String, Value>, path: &str, location: &Location) -> Checks {
        let bound = |limit: &str, exclusive: &str| {
            let limit = map.get(limit).and_then(Value::as_f64)?;
            Some(Bound { limit, exclusive: flag(map, exclusive) })
        };
        let count = |name: &str| map.get(name).and_then(Value::as_i64).map(|n| u64::try_from(n).unwrap_or(0));
        let pattern = text(map, "pattern").filter(|p| !p.is_empty()).and_then(|source| {
            Pattern::compile(source)
                .map_err(|e| {
                    let detail = format!("must be a valid regular expression, but isn't: {e}");
                    self.errors.push(FieldError::invalid(format!("{path}.pattern"), source, detail));
                })
                .ok()
        });
        let format_name = text(map, "format").filter(|f| !f.is_empty()).map(str::to_owned);
        let int_or_string = flag(map, "x-kubernetes-int-or-string");
        Checks {
            required: strings(map, "required"),
            one_of_values: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: map.get("multipleOf").and_then(Value::as_f64),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern,
            format: format_name.as_deref().and_then(Format::named),
            format_name,
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: flag(map, "uniqueItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            no_additional: map.get("additionalProperties") == Some(&Value::Bool(false)),
            all_of: self.branches(map, "allOf", path, location, int_or_string),
            any_of: self.branches(map, "anyOf", path, location, int_or_string),
            one_of: self.branches(map, "oneOf", path, location, false),
            not: map.get("not").filter(|n| !n.is_null()).map(|json| {
                let below = Location { nested: true, ..location.clone() };
                Arc::new(self.node(json, &format!("{path}.not"), &below))
            }),
            rules: Vec::new(),
            has_rules: false,
        }
    }

    fn branches(
        &mut self,
        map: &Map<String, Value>,
        name: &str,
        path: &str,
        location: &Location,
        int_or_string: bool,
    ) -> Vec<Arc<Schema>> {
        let Some(list) = map.get(name).and_then(Value::as_array) else {
            return Vec::new();
        };
        // The two types of `x-kubernetes-int-or-string` may be spelled out, here or as the first of `allOf`.
        let spelled = |list: &[Value]| {
            list.len() == 2
                && list[0] == serde_json::json!({"type": "integer"})
                && list[1] == serde_json::json!({"type": "string"})
        };
        let typed = name == "anyOf" && (int_or_string || location.int_or_string_branch) && spelled(list);
        let parse = |(i, json): (usize, &Value)| {
            let below = Location {
                nested: true,
                int_or_string_branch: typed || (name == "allOf" && i == 0 && int_or_string),
                ..location.clone()
            };
            Arc::new(self.node(json, &format!("{path}.{name}[{i}]"), &below))
        };
        list.iter().enumerate().map(parse).collect()
    }

    fn remember_rules(&mut self, map: &Map<String, Value>, path: &str, location: &Location) {
        let Some(rules) = map.get("x-kubernetes-validations").and_then(Value::as_array) else {
            return;
        };
        if rules.is_empty() || location.nested {
            return;
        }
        let pending = Pending { rules: rules.clone(), uncorrelatable: location.uncorrelatable.clone() };
        self.rules.insert(path.to_owned(), pending);
    }

    /// Compiles the rules of a node and of everything below it; returns whether there are any.
    fn attach_rules(&mut self, schema: &mut Schema, path: &str, root: bool) -> bool {
        let mut any = false;
        for (name, field) in &mut schema.properties {
            if let Some(field) = Arc::get_mut(field) {
                any |= self.attach_rules(field, &format!("{path}.properties[{name}]"), false);
            }
        }
        if let Some(value) = schema.additional.as_mut().and_then(Arc::get_mut) {
            any |= self.attach_rules(value, &format!("{path}.additionalProperties"), false);
        }
        if let Some(item) = schema.items.as_mut().and_then(Arc::get_mut) {
            any |= self.attach_rules(item, &format!("{path}.items"), false);
        }
        if let Some(pending) = self.rules.remove(path) {
            for (i, json) in pending.rules.iter().enumerate() {
                let at = format!("{path}.x-kubernetes-validations[{i}]");
                match cel::Rule::compile(json, &at, schema, root, pending.uncorrelatable.as_deref()) {
                    Ok(rule) => schema.checks.rules.push(Arc::new(rule)),
                    Err(errors) => self.errors.extend(errors),
                }
            }
            any = true;
        }
        schema.checks.has_rules = any;
        any
    }
}

/// Defaults must themselves be pruned and valid.
fn default_errors(schema: &Schema, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        if !schema.prune_value(&mut pruned).is_empty() {
            errors.push(FieldError::invalid(at.as_str(), default.clone(), "must not have unknown fields"));
        }
        errors.extend(schema.validate_value(default).into_iter().map(|e| moved(e, &at)));
    }
    if let Some(items) = &schema.items {
        default_errors(items, &format!("{path}.items"), false, errors);
    }
    for (name, field) in &schema.properties {
        // What Kubernetes itself knows about metadata is checked with each object.
        if root && name == "metadata" {
            continue;
        }
        default_errors(field, &format!("{path}.properties[{name}]"), false, errors);
    }
}

/// Defaults must satisfy the rules, both when they are new and when they stay.
fn default_rule_errors(schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.default.as_ref().filter(|_| schema.checks.has_rules) {
        let at = format!("{path}.default");
        let mut found = cel::validate_value(schema, default, Some(default));
        if found.is_empty() {
            found = cel::validate_value(schema, default, None);
        }
        errors.extend(found.into_iter().map(|e| moved(e, &at)));
    }
    if let Some(items) = &schema.items {
        default_rule_errors(items, &format!("{path}.items"), errors);
    }
    for (name, field) in &schema.properties {
        default_rule_errors(field, &format!("{path}.properties[{name}]"), errors);
    }
}

fn moved(mut error: FieldError, below: &str) -> FieldError {
    error.field = if error.field == WHOLE_OBJECT {
        below.to_owned()
    } else if error.field.starts_with('[') {
        format!("{below}{}", error.field)
    } else {
        format!("{below}.{}", error.field)
    };
    error
}

fn list_type(map: &Map<String, Value>) -> ListType {
    match text(map, "x-kubernetes-list-type") {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(map, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

pub(crate) fn flag(map: &Map<String, Value>, name: &str) -> bool {
    map.get(name).and_then(Value::as_bool).unwrap_or(false)
}

pub(crate) fn text<'a>(map: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    map.get(name).and_then(Value::as_str)
}

pub(crate) fn strings(map: &Map<String, Value>, name: &str) -> Vec<String> {
    let list = map.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn object<'a>(
    map: &'a Map<String, Value>,
    name: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Option<&'a Map<String, Value>> {
    match map.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::Object(object)) => Some(object),
        Some(other) => {
            errors.push(FieldError::invalid(format!("{path}.{name}"), other.clone(), "must be an object"));
            None
        }
    }
}
