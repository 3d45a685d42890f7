//! The signs of the kinds that Kubernetes brings.

use serde_json::Value;

use super::{Health, condition, group};

/// How an object of a built-in kind is; none for any other.
pub(super) fn health(object: &Value) -> Option<Health> {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    Some(match (group(object), kind) {
        ("apps", "Deployment") => seen(object).unwrap_or_else(|| deployment(object)),
        ("apps", "StatefulSet") => seen(object).unwrap_or_else(|| stateful_set(object)),
        ("apps", "DaemonSet") => seen(object).unwrap_or_else(|| daemon_set(object)),
        ("apps", "ReplicaSet") => seen(object).unwrap_or_else(|| replica_set(object)),
        ("batch", "Job") => job(object),
        ("batch", "CronJob") => Health::Ready,
        ("", "Pod") => pod(object),
        ("", "PersistentVolumeClaim") => match text(object, "/status/phase") {
            "Bound" => Health::Ready,
            "Lost" => Health::Failed("Its volume is lost.".to_owned()),
            phase => Health::waiting(format!("It is {}, not Bound.", or_pending(phase))),
        },
        ("", "Namespace") => match text(object, "/status/phase") {
            "Active" => Health::Ready,
            phase => Health::waiting(format!("It is {}, not Active.", or_pending(phase))),
        },
        ("", "Service") => service(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("apiregistration.k8s.io", "APIService") => match condition(object, "Available") {
            Some(available) if available.holds => Health::Ready,
            Some(available) => Health::waiting(available.tell()),
            None => Health::waiting("It is not available yet."),
        },
        _ => return None,
    })
}

/// Waiting, until the controller has said anything at all.
fn seen(object: &Value) -> Option<Health> {
    let unseen = object.pointer("/status/observedGeneration").is_none();
    unseen.then(|| Health::waiting("Its controller has not looked at it yet."))
}

fn deployment(object: &Value) -> Health {
    if let Some(progress) = condition(object, "Progressing").filter(|said| said.reason == "ProgressDeadlineExceeded") {
        return Health::Failed(progress.tell());
    }
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    let [all, updated, ready, available] =
        ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"].map(|field| status(object, field));
    if let Some(failed) = condition(object, "ReplicaFailure").filter(|failed| failed.holds) {
        return Health::waiting(failed.tell());
    }
    if updated < wanted {
        return Health::waiting(format!("{updated} of {wanted} pods are of the new version."));
    }
    if all > updated {
        return Health::waiting(format!("{} pods of the old version are still there.", all - updated));
    }
    if available < wanted || ready < wanted {
        return Health::waiting(format!("{} of {wanted} pods are available.", available.min(ready)));
    }
    match condition(object, "Available") {
        Some(available) if !available.holds => Health::waiting(available.tell()),
        _ => Health::Ready,
    }
}

fn stateful_set(object: &Value) -> Health {
    if text(object, "/spec/updateStrategy/type") == "OnDelete" {
        return Health::Ready;
    }
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    let partition = number(object, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    let [all, updated, ready] = ["replicas", "updatedReplicas", "readyReplicas"].map(|field| status(object, field));
    if all != wanted {
        return Health::waiting(format!("{all} of {wanted} pods are there."));
    }
    if ready < wanted {
        return Health::waiting(format!("{ready} of {wanted} pods are ready."));
    }
    let to_update = (wanted - partition).max(0);
    if updated < to_update {
        return Health::waiting(format!("{updated} of {to_update} pods are of the new version."));
    }
    if partition == 0 && text(object, "/status/currentRevision") != text(object, "/status/updateRevision") {
        return Health::waiting("The new version is not the current one yet.");
    }
    Health::Ready
}

fn daemon_set(object: &Value) -> Health {
    let wanted = status(object, "desiredNumberScheduled");
    let [updated, available, ready] =
        ["updatedNumberScheduled", "numberAvailable", "numberReady"].map(|field| status(object, field));
    let rolling = text(object, "/spec/updateStrategy/type") != "OnDelete";
    if rolling && updated < wanted {
        return Health::waiting(format!("{updated} of {wanted} pods are of the new version."));
    }
    if available < wanted || ready < wanted {
        return Health::waiting(format!("{} of {wanted} pods are available.", available.min(ready)));
    }
    Health::Ready
}

fn replica_set(object: &Value) -> Health {
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    if let Some(failed) = condition(object, "ReplicaFailure").filter(|failed| failed.holds) {
        return Health::waiting(failed.tell());
    }
    let available = status(object, "availableReplicas");
    if status(object, "replicas") != wanted || available < wanted {
        return Health::waiting(format!("{available} of {wanted} pods are available."));
    }
    Health::Ready
}

fn job(object: &Value) -> Health {
    if let Some(failed) = condition(object, "Failed").filter(|failed| failed.holds) {
        return Health::Failed(failed.tell());
    }
    if condition(object, "Complete").is_some_and(|complete| complete.holds) {
        return Health::Ready;
    }
    if object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        return Health::Ready;
    }
    let wanted = number(object, "/spec/completions").unwrap_or(1);
    Health::waiting(format!("{} of {wanted} completions are done.", status(object, "succeeded")))
}

fn pod(object: &Value) -> Health {
    match text(object, "/status/phase") {
        "Succeeded" => Health::Ready,
        "Failed" => {
            let why = [text(object, "/status/reason"), text(object, "/status/message")];
            let why = why.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
            Health::Failed(if why.is_empty() { "The pod has failed.".to_owned() } else { why })
        }
        phase => match condition(object, "Ready") {
            Some(ready) if ready.holds => Health::Ready,
            _ => Health::waiting(
                super::trouble(std::slice::from_ref(object))
                    .map_or_else(|| format!("It is {}.", or_pending(phase)), |trouble| trouble.message),
            ),
        },
    }
}

fn service(object: &Value) -> Health {
    let balanced = text(object, "/spec/type") == "LoadBalancer";
    let address = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    if balanced && address.is_none_or(Vec::is_empty) {
        return Health::waiting("It has no address of a load balancer yet.");
    }
    Health::Ready
}

fn definition(object: &Value) -> Health {
    if let Some(names) = condition(object, "NamesAccepted").filter(|names| names.status == "False") {
        return Health::Failed(names.tell());
    }
    match condition(object, "Established") {
        Some(established) if established.holds => Health::Ready,
        Some(established) => Health::waiting(established.tell()),
        None => Health::waiting("It is not established yet."),
    }
}

fn status(object: &Value, field: &str) -> i64 {
    object.get("status").and_then(|status| status.get(field)).and_then(Value::as_i64).unwrap_or(0)
}

fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn or_pending(phase: &str) -> &str {
    if phase.is_empty() { "Pending" } else { phase }
}
