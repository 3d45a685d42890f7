//! What is wrong with a pod, and what of it never changes.

use serde_json::Value;

use crate::meta::bad_label;
use knoll_kube_model::Quantity;
use knoll_kube_model::schema::FieldError;

const FROZEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[][..], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// What is wrong with a pod, and what an update may not change.
pub fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if let Some(old) = old {
        errors.extend(changes(spec, &old["spec"]));
    }
    errors.extend(content(spec));
    errors
}

fn content(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut volumes: Vec<&str> = Vec::new();
    for (at, volume) in list(spec, "volumes").iter().enumerate() {
        let (field, name) = (format!("spec.volumes[{at}].name"), text(volume, "name"));
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if let Some(why) = bad_label(name) {
            errors.push(FieldError::invalid(field, name, why));
        } else if volumes.contains(&name) {
            errors.push(FieldError::duplicate(field, name));
        }
        volumes.push(name);
    }
    if list(spec, "containers").is_empty() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for key in ["containers", "initContainers"] {
        for (at, container) in list(spec, key).iter().enumerate() {
            errors.extend(check_container(container, &format!("spec.{key}[{at}]"), &volumes, &mut names));
        }
    }
    let policy = text(spec, "restartPolicy");
    if !["Always", "OnFailure", "Never"].contains(&policy) {
        errors.push(FieldError::not_supported("spec.restartPolicy", policy, &["Always", "OnFailure", "Never"]));
    }
    errors
}

fn check_container<'a>(
    container: &'a Value,
    path: &str,
    volumes: &[&str],
    names: &mut Vec<&'a str>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if let Some(why) = bad_label(name) {
        errors.push(FieldError::invalid(format!("{path}.name"), name, why));
    } else if names.contains(&name) {
        errors.push(FieldError::duplicate(format!("{path}.name"), name));
    }
    names.push(name);
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    for (at, port) in list(container, "ports").iter().enumerate() {
        let number = port["containerPort"].as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{path}.ports[{at}].containerPort"), number, why));
        }
    }
    for (at, variable) in list(container, "env").iter().enumerate() {
        errors.extend(check_variable(variable, &format!("{path}.env[{at}]")));
    }
    for (at, mount) in list(container, "volumeMounts").iter().enumerate() {
        let path = format!("{path}.volumeMounts[{at}]");
        let name = text(mount, "name");
        if !volumes.contains(&name) {
            errors.push(FieldError::not_found(format!("{path}.name"), name));
        }
        if text(mount, "mountPath").is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
    }
    let policy = text(container, "imagePullPolicy");
    if !["Always", "IfNotPresent", "Never"].contains(&policy) {
        let known = ["Always", "IfNotPresent", "Never"];
        errors.push(FieldError::not_supported(format!("{path}.imagePullPolicy"), policy, &known));
    }
    let resources = &container["resources"];
    for (resource, wanted) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][resource];
        if let (Some(a), Some(b)) = (amount(wanted), amount(limit))
            && a > b
        {
            let why = format!("must be less than or equal to {resource} limit of {}", shown(limit));
            errors.push(FieldError::invalid(format!("{path}.resources.requests"), shown(wanted), why));
        }
    }
    errors
}

fn check_variable(variable: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(variable, "name");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if !name.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid(format!("{path}.name"), name, why));
    }
    if !text(variable, "value").is_empty() && variable["valueFrom"].is_object() {
        let why = "may not be specified when `value` is not empty";
        errors.push(FieldError::invalid(format!("{path}.valueFrom"), "", why));
    }
    errors
}

/// What an update changes that it may not.
fn changes(spec: &Value, old: &Value) -> Vec<FieldError> {
    for key in ["containers", "initContainers"] {
        if list(spec, key).len() != list(old, key).len() {
            let why = format!("pod updates may not add or remove {key}");
            let field = format!("spec.{key}");
            return vec![FieldError::forbidden(field, why.replace("initContainers", "init containers"))];
        }
    }
    let mut errors = Vec::new();
    let field = "spec.activeDeadlineSeconds";
    match (old["activeDeadlineSeconds"].as_i64(), spec["activeDeadlineSeconds"].as_i64()) {
        (Some(before), Some(now)) if now > before => {
            errors.push(FieldError::invalid(field, now, "must be less than or equal to previous value"));
        }
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(field, Value::Null, why));
        }
        _ => {}
    }
    if frozen(spec) != frozen(old) {
        errors.push(FieldError::forbidden("spec", FROZEN));
    }
    errors
}

/// The part of a pod's spec that never changes.
fn frozen(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(map) = spec.as_object_mut() {
        for key in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "nodeName"] {
            map.remove(key);
        }
    }
    for key in ["containers", "initContainers"] {
        for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            container["image"] = Value::Null;
        }
    }
    spec
}

fn shown(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}

/// A quantity may be written as a string or as a number.
fn amount(quantity: &Value) -> Option<Quantity> {
    match quantity {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_numbers() {
        for (text, expect) in [
            (json!("100m"), "0.1"),
            (json!(1), "1"),
            (json!("1Ki"), "1024"),
            (json!("2e3"), "2000"),
            (json!(1.5), "1500m"),
        ] {
            assert_eq!(amount(&text), Quantity::parse(expect), "{text}");
        }
        assert_eq!(amount(&json!("lots")), None);
    }
}
