//! Who may do what: the operator, and the roles that people are bound to.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use knoll_api::names::GROUP;

use crate::{Manifest, Settings, operator::metadata};

const RBAC: &str = "rbac.authorization.k8s.io";
/// What the built-in roles of a cluster take in.
const TO_VIEW: &str = "rbac.authorization.k8s.io/aggregate-to-view";
const TO_EDIT: &str = "rbac.authorization.k8s.io/aggregate-to-edit";
const TO_ADMIN: &str = "rbac.authorization.k8s.io/aggregate-to-admin";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const KINDS: &[&str] = &["approvals", "atoms", "atomversions", "runs", "stacks", "workspaces"];

const STATUS: &[&str] =
    &["approvals/status", "atoms/status", "atomversions/status", "runs/status", "stacks/status", "workspaces/status"];

/// What Atoms without a service account may be made of.
const ATOMS: &str = "knoll-atoms";
/// What applies, watches and deletes.
const MANAGE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

/// The operator's name, and that of its roles.
pub const OPERATOR: &str = "knoll-operator";
/// The operator's Lease.
pub const LEASE: &str = "knoll-operator";

/// What the operator may do: what it does, and nothing else.
pub fn for_operator(settings: &Settings) -> Vec<Manifest> {
    let namespace = settings.namespace.as_str();
    let everywhere = ClusterRole {
        metadata: metadata(OPERATOR, None),
        rules: Some(vec![
            rule(GROUP, KINDS, READ),
            // A Stack is held until it is destroyed; its Workspace and its Runs are made for it.
            rule(GROUP, &["stacks"], &["patch"]),
            rule(GROUP, &["workspaces"], &["create", "delete", "patch"]),
            rule(GROUP, &["runs"], &["create", "patch"]),
            // An Atom is held until its objects are gone; its versions go when there are too many.
            rule(GROUP, &["atoms"], &["patch"]),
            rule(GROUP, &["atomversions"], &["delete"]),
            rule(GROUP, STATUS, &["patch"]),
            // Runs that were kept long enough.
            rule(GROUP, &["runs"], &["delete"]),
            // Some clusters ask for this of whoever names an owner.
            rule(GROUP, &["atoms/finalizers", "runs/finalizers", "workspaces/finalizers"], &["update"]),
            rule("", &["pods"], &["get", "list", "watch", "create", "delete"]),
            // States and plans are kept in the namespace of their Workspace, and variables come from there.
            rule("", &["secrets"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
            // Modules are kept by their digest, and go when nothing refers to them; logs are kept with their Run.
            rule("", &["configmaps"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
            rule("events.k8s.io", &["events"], &["create", "patch"]),
            // The objects of an Atom are written with the rights of the service account that it names.
            rule("", &["serviceaccounts"], &["impersonate"]),
            // How the hub knows its runners.
            rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        ]),
        aggregation_rule: None,
    };
    let at_home = Role {
        metadata: metadata(OPERATOR, Some(namespace)),
        rules: Some(vec![
            rule("coordination.k8s.io", &["leases"], &["create"]),
            named(rule("coordination.k8s.io", &["leases"], &["get", "update", "delete"]), LEASE),
            // Its address is what runners are told.
            named(rule("", &["services"], &["get"]), crate::SERVICE),
        ]),
    };
    let subject = || {
        Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: OPERATOR.to_owned(),
            namespace: Some(namespace.to_owned()),
            api_group: None,
        }])
    };
    let role_ref =
        |kind: &str| RoleRef { api_group: RBAC.to_owned(), kind: kind.to_owned(), name: OPERATOR.to_owned() };
    let bound_everywhere = ClusterRoleBinding {
        metadata: metadata(OPERATOR, None),
        role_ref: role_ref("ClusterRole"),
        subjects: subject(),
    };
    let bound_at_home =
        RoleBinding { metadata: metadata(OPERATOR, Some(namespace)), role_ref: role_ref("Role"), subjects: subject() };
    let atoms_ref = RoleRef { api_group: RBAC.to_owned(), kind: "ClusterRole".to_owned(), name: ATOMS.to_owned() };
    let bound_atoms = ClusterRoleBinding { metadata: metadata(ATOMS, None), role_ref: atoms_ref, subjects: subject() };
    vec![
        Manifest::of(&everywhere),
        Manifest::of(&bound_everywhere),
        Manifest::of(&for_atoms()),
        Manifest::of(&bound_atoms),
        Manifest::of(&at_home),
        Manifest::of(&bound_at_home),
    ]
}

/// The objects of Atoms that name no service account: what `edit` of the cluster may write as well, and only in the
/// namespace of the Atom.
fn for_atoms() -> ClusterRole {
    let core = ["configmaps", "persistentvolumeclaims", "pods", "secrets", "serviceaccounts", "services"];
    ClusterRole {
        metadata: metadata(ATOMS, None),
        rules: Some(vec![
            rule("", &core, MANAGE),
            // Why a pod does not start is in the Atom's status.
            rule("", &["pods/log"], &["get"]),
            rule("apps", &["daemonsets", "deployments", "statefulsets"], MANAGE),
            rule("autoscaling", &["horizontalpodautoscalers"], MANAGE),
            rule("batch", &["cronjobs", "jobs"], MANAGE),
            rule("networking.k8s.io", &["ingresses", "networkpolicies"], MANAGE),
            rule("policy", &["poddisruptionbudgets"], MANAGE),
        ]),
        aggregation_rule: None,
    }
}

/// The roles of people. Nobody has one until somebody binds it; `view` and `edit` of the cluster take in what fits.
///
/// Approving is in none of the cluster's own roles: whoever may approve was chosen for it.
pub fn for_people() -> Vec<ClusterRole> {
    vec![
        role("knoll-viewer", &[TO_VIEW, TO_EDIT, TO_ADMIN], look()),
        role("knoll-user", &[TO_EDIT, TO_ADMIN], look().into_iter().chain(work()).collect()),
        role("knoll-approver", &[], look().into_iter().chain(decide()).collect()),
    ]
}

fn look() -> Vec<PolicyRule> {
    vec![
        rule(GROUP, KINDS, READ),
        // Logs of runs whose pods are gone are ConfigMaps.
        rule("", &["configmaps", "pods", "pods/log", "events"], READ),
        rule("events.k8s.io", &["events"], READ),
    ]
}

fn work() -> Vec<PolicyRule> {
    vec![
        rule(GROUP, &["atoms", "atomversions", "runs", "stacks", "workspaces"], WRITE),
        // The terminal of a Run, and sources that are sent with it.
        rule("", &["pods/attach"], &["create", "get"]),
        rule("", &["configmaps"], &["create", "delete", "patch", "update"]),
        // States, and those that are pushed. Who may run any module with any Secret of the namespace could read them anyway.
        rule("", &["secrets"], &["get", "list", "create"]),
    ]
}

fn decide() -> Vec<PolicyRule> {
    vec![rule(GROUP, &["approvals"], &["create", "delete"])]
}

fn role(name: &str, taken_in_by: &[&str], rules: Vec<PolicyRule>) -> ClusterRole {
    let mut metadata = metadata(name, None);
    let labels = metadata.labels.get_or_insert_default();
    labels.extend(taken_in_by.iter().map(|label| ((*label).to_owned(), "true".to_owned())));
    ClusterRole { metadata, rules: Some(rules), aggregation_rule: None }
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(strings(resources)),
        verbs: strings(verbs),
        ..PolicyRule::default()
    }
}

fn named(rule: PolicyRule, name: &str) -> PolicyRule {
    PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule }
}
