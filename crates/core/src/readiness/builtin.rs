//! The readiness of the kinds that Kubernetes has built in.

use serde_json::Value;

use super::{Health, condition, group};

/// The health of an object of a built-in kind; none for any other.
pub(super) fn health(object: &Value) -> Option<Health> {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    Some(match (group(object), kind) {
        ("apps", "Deployment") => unobserved(object).unwrap_or_else(|| deployment(object)),
        ("apps", "StatefulSet") => unobserved(object).unwrap_or_else(|| stateful_set(object)),
        ("apps", "DaemonSet") => unobserved(object).unwrap_or_else(|| daemon_set(object)),
        ("apps", "ReplicaSet") => unobserved(object).unwrap_or_else(|| replica_set(object)),
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
            Some(available) => Health::waiting(available.describe()),
            None => Health::waiting("It is not available yet."),
        },
        _ => return None,
    })
}

/// Waiting, until the controller has written a status.
fn unobserved(object: &Value) -> Option<Health> {
    let unseen = object.pointer("/status/observedGeneration").is_none();
    unseen.then(|| Health::waiting("Its controller has not reconciled it yet."))
}

fn deployment(object: &Value) -> Health {
    if let Some(progress) =
        condition(object, "Progressing").filter(|progress| progress.reason == "ProgressDeadlineExceeded")
    {
        return Health::Failed(progress.describe());
    }
    let desired = number(object, "/spec/replicas").unwrap_or(1);
    let [all, updated, ready, available] =
        ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"].map(|field| status(object, field));
    if let Some(failed) = condition(object, "ReplicaFailure").filter(|failed| failed.holds) {
        return Health::waiting(failed.describe());
    }
    if updated < desired {
        return Health::waiting(format!("{updated} of {desired} pods are updated."));
    }
    if all > updated {
        return Health::waiting(format!("{} old pods are still there.", all - updated));
    }
    if available < desired || ready < desired {
        return Health::waiting(format!("{} of {desired} pods are available.", available.min(ready)));
    }
    match condition(object, "Available") {
        Some(available) if !available.holds => Health::waiting(available.describe()),
        _ => Health::Ready,
    }
}

fn stateful_set(object: &Value) -> Health {
    if text(object, "/spec/updateStrategy/type") == "OnDelete" {
        return Health::Ready;
    }
    let desired = number(object, "/spec/replicas").unwrap_or(1);
    let partition = number(object, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
    let [all, updated, ready] = ["replicas", "updatedReplicas", "readyReplicas"].map(|field| status(object, field));
    if all != desired {
        return Health::waiting(format!("{all} of {desired} pods exist."));
    }
    if ready < desired {
        return Health::waiting(format!("{ready} of {desired} pods are ready."));
    }
    let to_update = (desired - partition).max(0);
    if updated < to_update {
        return Health::waiting(format!("{updated} of {to_update} pods are updated."));
    }
    if partition == 0 && text(object, "/status/currentRevision") != text(object, "/status/updateRevision") {
        return Health::waiting("The new revision is not the current one yet.");
    }
    Health::Ready
}

fn daemon_set(object: &Value) -> Health {
    let desired = status(object, "desiredNumberScheduled");
    let [updated, available, ready] =
        ["updatedNumberScheduled", "numberAvailable", "numberReady"].map(|field| status(object, field));
    let rolling = text(object, "/spec/updateStrategy/type") != "OnDelete";
    if rolling && updated < desired {
        return Health::waiting(format!("{updated} of {desired} pods are updated."));
    }
    if available < desired || ready < desired {
        return Health::waiting(format!("{} of {desired} pods are available.", available.min(ready)));
    }
    Health::Ready
}

fn replica_set(object: &Value) -> Health {
    let desired = number(object, "/spec/replicas").unwrap_or(1);
    if let Some(failed) = condition(object, "ReplicaFailure").filter(|failed| failed.holds) {
        return Health::waiting(failed.describe());
    }
    let available = status(object, "availableReplicas");
    if status(object, "replicas") != desired || available < desired {
        return Health::waiting(format!("{available} of {desired} pods are available."));
    }
    Health::Ready
}

fn job(object: &Value) -> Health {
    if let Some(failed) = condition(object, "Failed").filter(|failed| failed.holds) {
        return Health::Failed(failed.describe());
    }
    if condition(object, "Complete").is_some_and(|complete| complete.holds) {
        return Health::Ready;
    }
    if object.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        return Health::Ready;
    }
    let desired = number(object, "/spec/completions").unwrap_or(1);
    Health::waiting(format!("{} of {desired} completions have succeeded.", status(object, "succeeded")))
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
                super::pod_problem(std::slice::from_ref(object))
                    .map_or_else(|| format!("It is {}.", or_pending(phase)), |problem| problem.message),
            ),
        },
    }
}

fn service(object: &Value) -> Health {
    let balanced = text(object, "/spec/type") == "LoadBalancer";
    let address = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    if balanced && address.is_none_or(Vec::is_empty) {
        return Health::waiting("It has no load balancer address yet.");
    }
    Health::Ready
}

fn definition(object: &Value) -> Health {
    if let Some(names) = condition(object, "NamesAccepted").filter(|names| names.status == "False") {
        return Health::Failed(names.describe());
    }
    match condition(object, "Established") {
        Some(established) if established.holds => Health::Ready,
        Some(established) => Health::waiting(established.describe()),
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
