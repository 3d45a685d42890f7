//! Pods: the defaults of the API, the place on the node, and what may not change.

use serde_json::{Value, json};

use crate::schema::error::FieldError;
use crate::server::meta::bad_label;

/// Sets a field that is not there.
fn default(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        let slot = map.entry(key).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value;
        }
    }
}

fn each<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// What the API fills in, on creation and on every update.
pub fn defaults(object: &mut Value) {
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let spec = &mut object["spec"];
    default(spec, "restartPolicy", "Always".into());
    default(spec, "dnsPolicy", "ClusterFirst".into());
    default(spec, "terminationGracePeriodSeconds", 30.into());
    default(spec, "securityContext", json!({}));
    default(spec, "schedulerName", "default-scheduler".into());
    default(spec, "enableServiceLinks", true.into());
    for key in ["containers", "initContainers"] {
        for container in each(spec, key) {
            container_defaults(container);
        }
    }
    for volume in each(spec, "volumes") {
        volume_defaults(volume);
    }
}

fn container_defaults(container: &mut Value) {
    default(container, "resources", json!({}));
    default(container, "terminationMessagePath", "/dev/termination-log".into());
    default(container, "terminationMessagePolicy", "File".into());
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().unwrap_or_default();
    let moving = !image.contains('@') && (!tag.contains(':') || tag.ends_with(":latest"));
    default(container, "imagePullPolicy", if moving { "Always" } else { "IfNotPresent" }.into());
    for port in each(container, "ports") {
        default(port, "protocol", "TCP".into());
    }
    for env in each(container, "env") {
        if let Some(field) = env.get_mut("valueFrom").and_then(|v| v.get_mut("fieldRef")) {
            default(field, "apiVersion", "v1".into());
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|p| p.is_object()) {
            for (key, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                default(probe, key, value.into());
            }
        }
    }
}

fn volume_defaults(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|v| v.keys().any(|k| k != "name"));
    if !has_source {
        default(volume, "emptyDir", json!({}));
    }
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source).filter(|s| s.is_object()) {
            default(source, "defaultMode", 420.into());
            for part in each(source, "sources") {
                if let Some(token) = part.get_mut("serviceAccountToken") {
                    default(token, "expirationSeconds", 3600.into());
                }
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath").filter(|p| p.is_object()) {
        default(path, "type", "".into());
    }
}

/// What admission adds on creation: an account, priority, tolerations, and the node, since there is only one.
pub fn admit(object: &mut Value, node: Option<&str>) {
    let spec = &mut object["spec"];
    let account = spec["serviceAccountName"].as_str().filter(|s| !s.is_empty()).unwrap_or("default").to_owned();
    spec["serviceAccountName"] = account.as_str().into();
    spec["serviceAccount"] = account.into();
    default(spec, "preemptionPolicy", "PreemptLowerPriority".into());
    default(spec, "priority", 0.into());
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|t| t["key"] == *key && t["effect"] == "NoExecute") {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    spec["tolerations"] = tolerations.into();
    if let Some(node) = node {
        default(spec, "nodeName", node.into());
    }
    let class = quality(spec);
    object["status"] = json!({"phase": "Pending", "qosClass": class});
}

fn quality(spec: &Value) -> &'static str {
    let all = || ["containers", "initContainers"].iter().flat_map(|k| spec[k].as_array().into_iter().flatten());
    let some =
        |c: &Value| ["requests", "limits"].iter().any(|k| c["resources"][k].as_object().is_some_and(|m| !m.is_empty()));
    let full = |c: &Value| {
        let limits = &c["resources"]["limits"];
        let requests = &c["resources"]["requests"];
        ["cpu", "memory"].iter().all(|r| !limits[r].is_null() && (requests[r].is_null() || requests[r] == limits[r]))
    };
    match (all().any(some), all().all(full)) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// What is wrong with a pod, and what an update may not change.
pub fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &object["spec"];
    let containers = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for (list, key) in [
        (containers, "containers"),
        (spec["initContainers"].as_array().map_or(&[][..], Vec::as_slice), "initContainers"),
    ] {
        for (at, container) in list.iter().enumerate() {
            let path = format!("spec.{key}[{at}]");
            let name = container["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            } else if let Some(why) = bad_label(name) {
                errors.push(FieldError::invalid(format!("{path}.name"), name, why));
            } else if names.contains(&name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            names.push(name);
            if container["image"].as_str().unwrap_or_default().is_empty() && old.is_none() {
                errors.push(FieldError::required(format!("{path}.image"), ""));
            }
            errors.extend(mounts(spec, container, &path));
        }
    }
    let policy = spec["restartPolicy"].as_str().unwrap_or_default();
    if !["Always", "OnFailure", "Never"].contains(&policy) {
        errors.push(FieldError::not_supported("spec.restartPolicy", policy, &["Always", "OnFailure", "Never"]));
    }
    if let Some(old) = old
        && frozen(spec) != frozen(&old["spec"])
    {
        errors.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
    errors
}

fn mounts(spec: &Value, container: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, mount) in container["volumeMounts"].as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{at}]");
        let name = mount["name"].as_str().unwrap_or_default();
        if !spec["volumes"].as_array().into_iter().flatten().any(|v| v["name"] == name) {
            errors.push(FieldError::not_found(format!("{path}.name"), name));
        }
        if mount["mountPath"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
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
        for container in each(&mut spec, key) {
            container["image"] = Value::Null;
        }
    }
    spec
}
