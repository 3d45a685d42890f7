//! Roles and bindings: what a rule must say, and what a binding may not change.

use serde_json::{Value, json};

use crate::kinds::Resource;
use knoll_kube_model::schema::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The API groups of what a binding names.
pub fn defaults(resource: &Resource, object: &mut Value) {
    if !resource.kind.ends_with("Binding") {
        return;
    }
    if object["roleRef"]["apiGroup"].as_str().unwrap_or_default().is_empty() {
        object["roleRef"]["apiGroup"] = GROUP.into();
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        let of_users = matches!(subject["kind"].as_str(), Some("User" | "Group"));
        if of_users && subject["apiGroup"].as_str().unwrap_or_default().is_empty() {
            subject["apiGroup"] = GROUP.into();
        }
    }
}

/// What is wrong with a role or a binding.
pub fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if resource.kind.ends_with("Binding") {
        return binding(resource, object, old);
    }
    let rules = object["rules"].as_array().into_iter().flatten().enumerate();
    rules.flat_map(|(at, rule)| self::rule(resource, rule, &format!("rules[{at}]"))).collect()
}

fn rule(resource: &Resource, rule: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = |key: &str| rule[key].as_array().is_none_or(Vec::is_empty);
    if empty("verbs") {
        errors.push(FieldError::required(format!("{path}.verbs"), "verbs must contain at least one value"));
    }
    if !empty("nonResourceURLs") {
        let mut wrong = |why: &str| {
            errors.push(FieldError::invalid(format!("{path}.nonResourceURLs"), rule["nonResourceURLs"].clone(), why))
        };
        if resource.namespaced {
            wrong("namespaced rules cannot apply to non-resource URLs");
        }
        if !(empty("apiGroups") && empty("resources") && empty("resourceNames")) {
            wrong("rules cannot apply to both regular resources and non-resource URLs");
        }
        return errors;
    }
    if empty("apiGroups") {
        let why = "resource rules must supply at least one api group";
        errors.push(FieldError::required(format!("{path}.apiGroups"), why));
    }
    if empty("resources") {
        errors.push(FieldError::required(
            format!("{path}.resources"),
            "resource rules must supply at least one resource",
        ));
    }
    errors
}

fn binding(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let role = &object["roleRef"];
    if text(&role["apiGroup"]) != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", text(&role["apiGroup"]), &[GROUP]));
    }
    let kinds: &[&str] = if resource.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(&role["kind"]).as_str()) {
        errors.push(FieldError::not_supported("roleRef.kind", text(&role["kind"]), kinds));
    }
    if text(&role["name"]).is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (at, subject) in object["subjects"].as_array().into_iter().flatten().enumerate() {
        errors.extend(self::subject(resource, subject, &format!("subjects[{at}]")));
    }
    if old.is_some_and(|old| old["roleRef"] != *role) {
        let shown = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        errors.push(FieldError::invalid("roleRef", shown, "cannot change roleRef"));
    }
    errors
}

fn subject(resource: &Resource, subject: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |key: &str| subject[key].as_str().unwrap_or_default();
    if text("name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let group = format!("{path}.apiGroup");
    match text("kind") {
        "ServiceAccount" => {
            if !text("apiGroup").is_empty() {
                errors.push(FieldError::not_supported(group, text("apiGroup"), &[""]));
            }
            if !resource.namespaced && text("namespace").is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        "User" | "Group" if text("apiGroup") != GROUP => {
            errors.push(FieldError::not_supported(group, text("apiGroup"), &[GROUP]));
        }
        "User" | "Group" => {}
        other => {
            errors.push(FieldError::not_supported(format!("{path}.kind"), other, &["ServiceAccount", "User", "Group"]))
        }
    }
    errors
}
