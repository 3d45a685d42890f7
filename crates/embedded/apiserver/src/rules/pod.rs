//! Pods: the defaults of the API, the place on the node, and what may not change.

use serde_json::{Value, json};

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
    if let Some(status) = object.get_mut("status") {
        status_defaults(status);
    }
}

fn container_defaults(container: &mut Value) {
    default(container, "resources", json!({}));
    // What is limited is asked for, unless something else is.
    let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
    for (resource, quantity) in limits {
        if container["resources"]["requests"].get(&resource).is_none() {
            container["resources"]["requests"][resource] = quantity;
        }
    }
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
            if let Some(action) = probe.get_mut("httpGet").filter(|a| a.is_object()) {
                default(action, "path", "/".into());
                default(action, "scheme", "HTTP".into());
            }
        }
    }
}

/// Fields of the status that are always there, known or not.
fn status_defaults(status: &mut Value) {
    for condition in each(status, "conditions") {
        if let Some(map) = condition.as_object_mut() {
            for key in ["lastProbeTime", "lastTransitionTime"] {
                map.entry(key).or_insert(Value::Null);
            }
        }
    }
    for key in ["containerStatuses", "initContainerStatuses"] {
        for container in each(status, key) {
            default(container, "state", json!({}));
            default(container, "lastState", json!({}));
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
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0) {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
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

/// The account that a pod runs as: the namespace's own unless it names one.
pub fn name_account(object: &mut Value) -> String {
    let spec = &mut object["spec"];
    let account = spec["serviceAccountName"].as_str().filter(|s| !s.is_empty()).unwrap_or("default").to_owned();
    spec["serviceAccountName"] = account.as_str().into();
    spec["serviceAccount"] = account.as_str().into();
    account
}

/// Where a pod's programs look for the token of their account.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Gives a pod what its account is: the account's token, as a volume in every container, and the secrets that its
/// images are pulled with.
pub fn use_account(object: &mut Value, account: &Value) {
    let spec = &mut object["spec"];
    let pulls = &account["imagePullSecrets"];
    if spec["imagePullSecrets"].as_array().is_none_or(Vec::is_empty) && pulls.as_array().is_some_and(|p| !p.is_empty())
    {
        spec["imagePullSecrets"] = pulls.clone();
    }
    let wanted = spec["automountServiceAccountToken"].as_bool();
    if !wanted.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
        return;
    }
    let name = crate::meta::generate_name("kube-api-access-");
    let mut used = false;
    for key in ["initContainers", "containers"] {
        for container in each(spec, key) {
            let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().any(|m| m["mountPath"] == TOKEN_PATH) {
                continue;
            }
            used = true;
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH}));
            container["volumeMounts"] = mounts.into();
        }
    }
    if used {
        let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
        spec["volumes"] = volumes.into();
    }
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
