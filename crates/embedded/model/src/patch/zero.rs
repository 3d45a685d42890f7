//! What an empty object of a built-in kind holds.
//!
//! The API server compares a new object with an empty one of its kind to see what its creator owns. Built-in kinds always have
//! some of their fields, so these are not owned for being there; custom resources start from nothing.

use serde_json::{Value, json};

/// The empty object of a kind.
pub fn object(api_version: &str, kind: &str) -> Value {
    let names = || json!({"plural": "", "kind": ""});
    let mut object = match (api_version, kind) {
        ("v1", "Namespace") => json!({"spec": {}, "status": {}}),
        ("v1", "Pod") => json!({"spec": {"containers": null}, "status": {}}),
        ("v1", "Node") => json!({"spec": {}, "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "",
                "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "", "architecture": ""
            }
        }}),
        ("v1", "Event") => json!({
            "involvedObject": {}, "source": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
            "reportingComponent": "", "reportingInstance": ""
        }),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => json!({"spec": {}, "status": {}}),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => json!({"spec": {}}),
        ("events.k8s.io/v1", "Event") => json!({
            "eventTime": null, "regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": null,
            "deprecatedLastTimestamp": null
        }),
        ("authentication.k8s.io/v1", "TokenReview") => json!({"spec": {}, "status": {"user": {}}}),
        ("authentication.k8s.io/v1", "TokenRequest") => json!({
            "spec": {"audiences": null, "expirationSeconds": null, "boundObjectRef": null},
            "status": {"token": "", "expirationTimestamp": null}
        }),
        ("authorization.k8s.io/v1", "SubjectAccessReview" | "SelfSubjectAccessReview" | "LocalSubjectAccessReview") => {
            json!({"spec": {}, "status": {"allowed": false}})
        }
        ("coordination.k8s.io/v1", "Lease") => json!({"spec": {}}),
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => json!({"rules": null}),
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => {
            json!({"roleRef": {"apiGroup": "", "kind": "", "name": ""}})
        }
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => json!({
            "spec": {"group": "", "names": names(), "scope": "", "versions": null},
            "status": {"conditions": null, "acceptedNames": names(), "storedVersions": null}
        }),
        _ => json!({}),
    };
    object["apiVersion"] = Value::from(api_version);
    object["kind"] = Value::from(kind);
    object["metadata"] = json!({});
    object
}
