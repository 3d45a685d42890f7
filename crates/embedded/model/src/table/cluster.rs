//! Columns of nodes and events.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, age, condition, count, list, or_none, text};

pub fn node_columns() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("Status", "The status of the node"),
        Column::text("Roles", "The roles of the node"),
        Column::age(),
        Column::text("Version", "The version of the kubelet."),
        Column::text("Internal-IP", "The address within the cluster.").wide(),
        Column::text("External-IP", "The address from outside.").wide(),
        Column::text("OS-Image", "The operating system.").wide(),
        Column::text("Kernel-Version", "The version of the kernel.").wide(),
        Column::text("Container-Runtime", "What runs containers.").wide(),
    ]
}

pub fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = vec![match condition(object, "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if object.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        status.push("SchedulingDisabled");
    }
    let roles: BTreeSet<_> = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    let roles = roles.into_iter().collect::<Vec<_>>().join(",");
    let address = |ty: &str| {
        let found = list(object, "/status/addresses").iter().find(|address| text(address, "/type") == ty);
        json!(found.map_or("<none>", |address| text(address, "/address")))
    };
    let info = |name: &str| match text(object, &format!("/status/nodeInfo/{name}")) {
        "" => json!("<unknown>"),
        text => json!(text),
    };
    vec![
        json!(text(object, "/metadata/name")),
        json!(status.join(",")),
        json!(or_none(&roles)),
        age(object, now),
        json!(text(object, "/status/nodeInfo/kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

pub fn event_columns() -> Vec<Column> {
    vec![
        Column::text("Last Seen", "When the event was last recorded."),
        Column::text("Type", "Normal or Warning."),
        Column::text("Reason", "Why, in one word."),
        Column::text("Object", "What the event is about."),
        Column::text("Subobject", "Which part of it.").wide(),
        Column::text("Source", "Who reports it.").wide(),
        Column::text("Message", "What happened."),
        Column::text("First Seen", "When the event was first recorded.").wide(),
        Column::text("Count", "How often it happened.").wide(),
        Column { priority: 1, ..Column::name() },
    ]
}

pub fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    // The two versions of events name the same fields differently.
    let either = |old: &'static str, new: &'static str| {
        if object.pointer(old).is_some() { old } else { new }
    };
    let since = |pointer: &str| super::age::since(object.pointer(pointer).and_then(Value::as_str), now);
    let known = |pointer: &str| !text(object, pointer).is_empty();
    let (first_at, last_at) =
        (either("/firstTimestamp", "/deprecatedFirstTimestamp"), either("/lastTimestamp", "/deprecatedLastTimestamp"));
    let first = since(if known(first_at) { first_at } else { "/eventTime" });
    let mut last = if known(last_at) { since(last_at) } else { first.clone() };
    let mut times = count(object, either("/count", "/deprecatedCount"));
    if object.get("series").is_some_and(Value::is_object) {
        last = since("/series/lastObservedTime");
        times = count(object, "/series/count");
    } else if times == 0 {
        times = 1;
    }
    let regarding = either("/involvedObject", "/regarding");
    let about = object.pointer(regarding).unwrap_or(&Value::Null);
    let kind = text(about, "/kind").to_lowercase();
    let target = match text(about, "/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either("/source", "/deprecatedSource");
    let first_of = |a: String, b: &'static str| {
        if text(object, &a).is_empty() { text(object, b).to_owned() } else { text(object, &a).to_owned() }
    };
    let component = match first_of(format!("{source}/component"), "/reportingComponent") {
        none if none.is_empty() => text(object, "/reportingController").to_owned(),
        component => component,
    };
    let instance = first_of(format!("{source}/host"), "/reportingInstance");
    let reporter = if instance.is_empty() { component } else { format!("{component}, {instance}") };
    vec![
        json!(last),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(target),
        json!(text(about, "/fieldPath")),
        json!(reporter),
        json!(text(object, either("/message", "/note")).trim()),
        json!(first),
        json!(times),
        json!(text(object, "/metadata/name")),
    ]
}
