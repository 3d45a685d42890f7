//! Events: one kind in two API groups. They are stored in the core form.

use serde_json::{Value, json};

use crate::kinds::Resource;
use crate::object;
use knoll_kube_model::schema::FieldError;

/// Core name and `events.k8s.io` name of the fields that differ.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// What may not change of an event that is written through `events.k8s.io`, by core names.
const FIXED: &[&str] = &[
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

/// The core form of an event of `events.k8s.io`.
pub fn to_core(event: &mut Value) {
    rename(event, "v1", RENAMED.iter().map(|&(core, new)| (new, core)));
    for (key, value) in [
        ("source", json!({})),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
        ("involvedObject", json!({})),
    ] {
        if let Some(map) = event.as_object_mut() {
            map.entry(key).or_insert(value);
        }
    }
}

/// The `events.k8s.io` form of a core event.
pub fn to_events(event: &mut Value) {
    rename(event, "events.k8s.io/v1", RENAMED.iter().copied());
    if let Some(map) = event.as_object_mut() {
        map.retain(|key, value| !(matches!(key.as_str(), "reportingController" | "reportingInstance") && *value == ""));
    }
}

fn rename<'a>(event: &mut Value, version: &str, pairs: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(map) = event.as_object_mut() else { return };
    map.insert("apiVersion".into(), version.into());
    for (from, to) in pairs {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// Namespaces must agree; an event of the new form says who reports what, and stays what it is.
pub fn validate(resource: &Resource, event: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let new_form = !resource.group.is_empty();
    let in_core = |event: &Value| {
        let mut event = event.clone();
        if new_form {
            to_core(&mut event);
        }
        event
    };
    let core = in_core(event);
    let mut errors = agreement(resource, &core);
    if !new_form {
        return errors;
    }
    let Some(old) = old else {
        if core["eventTime"].is_null() {
            errors.push(FieldError::required("eventTime", ""));
        }
        let kind = core["type"].as_str().unwrap_or_default();
        if !matches!(kind, "Normal" | "Warning") {
            errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
        }
        for (field, set) in [
            ("firstTimestamp", !core["firstTimestamp"].is_null()),
            ("lastTimestamp", !core["lastTimestamp"].is_null()),
            ("count", core["count"].as_i64().unwrap_or(0) != 0),
            ("source", core["source"].as_object().is_some_and(|s| !s.is_empty())),
        ] {
            if set {
                errors.push(FieldError::invalid(field, "", "needs to be unset"));
            }
        }
        return errors;
    };
    let old = in_core(old);
    for field in FIXED.iter().filter(|field| core[**field] != old[**field]) {
        let shown = if *field == "reportingComponent" { "reportingController" } else { field };
        errors.push(FieldError::invalid(shown, core[*field].clone(), "field is immutable"));
    }
    errors
}

fn agreement(resource: &Resource, core: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let about = core["involvedObject"]["namespace"].as_str().unwrap_or_default();
    let own = object::meta(core, "namespace");
    let wrong = if core["eventTime"].is_null() {
        about != own && !(about.is_empty() && own == "default")
    } else {
        about.is_empty() && !matches!(own, "default" | "kube-system")
    };
    if wrong {
        errors.push(FieldError::invalid("involvedObject.namespace", about, "does not match event.namespace"));
    }
    if core["eventTime"].is_null() {
        return errors;
    }
    let reporter = if resource.group.is_empty() { "reportingComponent" } else { "reportingController" };
    for (field, shown) in [
        ("reportingComponent", reporter),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ] {
        if core[field].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(shown, ""));
        }
    }
    errors
}
