//! Events: one kind in two API groups. They are stored in the core form.

use serde_json::Value;

use crate::schema::error::FieldError;
use crate::server::kinds::Resource;
use crate::server::object;

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

/// The core form of an event of `events.k8s.io`.
pub fn to_core(event: &mut Value) {
    rename(event, "v1", RENAMED.iter().map(|&(core, new)| (new, core)));
}

/// The `events.k8s.io` form of a core event.
pub fn to_events(event: &mut Value) {
    rename(event, "events.k8s.io/v1", RENAMED.iter().copied());
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

/// The namespaces of an event and of what it is about must agree.
pub fn validate(resource: &Resource, event: &Value) -> Vec<FieldError> {
    let field = if resource.group.is_empty() { "involvedObject" } else { "regarding" };
    let about = event[field]["namespace"].as_str().unwrap_or_default();
    let own = object::meta(event, "namespace");
    if about == own || (about.is_empty() && own == "default") {
        return Vec::new();
    }
    let why = if about.is_empty() { "required in version v1" } else { "does not match event.namespace" };
    vec![FieldError::invalid("involvedObject.namespace", about, why)]
}
