//! The messages of the Kubernetes API, one table each.
//!
//! Field numbers and JSON names are those of the API's published `.proto` files and Go types (1.34); they never change once
//! published, so a newer client only ever adds fields, which are skipped.

mod access;
mod apiextensions;
mod config;
mod container;
mod event;
mod meta;
mod node;
mod pod;
mod scheduling;
mod volume;

use super::message::Table;

/// The kinds with a table, as `apiVersion`, `kind` and the table.
pub(super) static KINDS: &[(&str, &str, &Table)] = &[
    ("v1", "ConfigMap", &config::CONFIG_MAP),
    ("v1", "Event", &event::EVENT),
    ("v1", "Namespace", &config::NAMESPACE),
    ("v1", "Node", &node::NODE),
    ("v1", "Pod", &pod::POD),
    ("v1", "Secret", &config::SECRET),
    ("v1", "ServiceAccount", &config::SERVICE_ACCOUNT),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", &apiextensions::CUSTOM_RESOURCE_DEFINITION),
    ("authentication.k8s.io/v1", "SelfSubjectReview", &access::SELF_SUBJECT_REVIEW),
    ("authentication.k8s.io/v1", "TokenRequest", &access::TOKEN_REQUEST),
    ("authentication.k8s.io/v1", "TokenReview", &access::TOKEN_REVIEW),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview", &access::LOCAL_SUBJECT_ACCESS_REVIEW),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview", &access::SELF_SUBJECT_ACCESS_REVIEW),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview", &access::SELF_SUBJECT_RULES_REVIEW),
    ("authorization.k8s.io/v1", "SubjectAccessReview", &access::SUBJECT_ACCESS_REVIEW),
    ("coordination.k8s.io/v1", "Lease", &event::LEASE),
    ("events.k8s.io/v1", "Event", &event::EVENTS_EVENT),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", &access::CLUSTER_ROLE),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", &access::CLUSTER_ROLE_BINDING),
    ("rbac.authorization.k8s.io/v1", "Role", &access::ROLE),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", &access::ROLE_BINDING),
];

/// The table of a kind. The options of a delete carry the version of whatever is deleted, so only their kind counts.
pub(super) fn of(api_version: &str, kind: &str) -> Option<Table> {
    if kind == "DeleteOptions" {
        return Some(meta::DELETE_OPTIONS);
    }
    KINDS.iter().find(|row| (row.0, row.1) == (api_version, kind)).map(|row| *row.2)
}
