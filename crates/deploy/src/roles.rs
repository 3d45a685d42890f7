//! The permissions of the operator, and the roles for users.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use knoll_api::names::GROUP;

use crate::{Manifest, Settings, operator::metadata};

const RBAC: &str = "rbac.authorization.k8s.io";
/// The labels by which a role is aggregated to the built-in roles.
const TO_VIEW: &str = "rbac.authorization.k8s.io/aggregate-to-view";
const TO_EDIT: &str = "rbac.authorization.k8s.io/aggregate-to-edit";
const TO_ADMIN: &str = "rbac.authorization.k8s.io/aggregate-to-admin";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const KINDS: &[&str] = &["approvals", "atoms", "atomversions", "runs", "stacks", "workspaces"];

const STATUS: &[&str] = &[
    "approvals/status",
    "atoms/status",
    "atomversions/status",
    "policies/status",
    "runs/status",
    "stacks/status",
    "workspaces/status",
];

/// The role with which the operator acts as the service accounts of Atoms.
const ATOMS: &str = "knoll-atoms";

/// The name of the operator's service account and roles.
pub const OPERATOR: &str = "knoll-operator";
pub const LEASE: &str = "knoll-operator";

/// The operator's permissions: only what it uses, without wildcards.
pub fn for_operator(settings: &Settings) -> Vec<Manifest> {
    let namespace = settings.namespace.as_str();
    let everywhere = ClusterRole {
        metadata: metadata(OPERATOR, None),
        rules: Some(vec![
            rule(GROUP, KINDS, READ),
            // Policies select by the labels of namespaces.
            rule(GROUP, &["policies"], READ),
            rule("", &["namespaces"], READ),
            // The operator sets finalizers on Stacks, and creates their Workspaces and Runs.
            rule(GROUP, &["stacks"], &["patch"]),
            rule(GROUP, &["workspaces"], &["create", "delete", "patch"]),
            rule(GROUP, &["runs"], &["create", "patch"]),
            // The operator sets finalizers on Atoms, and deletes old AtomVersions.
            rule(GROUP, &["atoms"], &["patch"]),
            rule(GROUP, &["atomversions"], &["delete"]),
            rule(GROUP, STATUS, &["patch"]),
            // Runs are deleted after `ttlAfterFinished`.
            rule(GROUP, &["runs"], &["delete"]),
            // The admission plugin OwnerReferencesPermissionEnforcement requires this to set owner references.
            rule(GROUP, &["atoms/finalizers", "runs/finalizers", "workspaces/finalizers"], &["update"]),
            rule("", &["pods"], &["get", "list", "watch", "create", "delete"]),
            // States and plans are stored in the namespace of their Workspace, and variables are read from there.
            rule("", &["secrets"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
            // Bundles and logs are stored in ConfigMaps. Unreferenced bundles are deleted.
            rule("", &["configmaps"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
            rule("events.k8s.io", &["events"], &["create", "patch"]),
            // The hub authenticates runners.
            rule("authentication.k8s.io", &["tokenreviews"], &["create"]),
        ]),
        aggregation_rule: None,
    };
    let at_home = Role {
        metadata: metadata(OPERATOR, Some(namespace)),
        rules: Some(vec![
            rule("coordination.k8s.io", &["leases"], &["create"]),
            named(rule("coordination.k8s.io", &["leases"], &["get", "update", "delete"]), LEASE),
            // The operator tells runners the cluster IP of the Service.
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

/// Permission to act as the service accounts of Atoms: the operator reads and writes the objects of an Atom as the account
/// of the Atom, and never as itself. It is a role of its own, so that an administrator can replace its ClusterRoleBinding
/// by a RoleBinding in each namespace that may have Atoms.
fn for_atoms() -> ClusterRole {
    ClusterRole {
        metadata: metadata(ATOMS, None),
        rules: Some(vec![rule("", &["serviceaccounts"], &["impersonate"])]),
        aggregation_rule: None,
    }
}

/// The roles for users. They take effect when they are bound; some are aggregated to the built-in roles.
///
/// `view` takes in the viewer, `edit` the user, and `admin` the editor. Approving and the Policies are part of no built-in
/// role, so these users are chosen by name. No role has a status, a finalizer, a pod or a token of a service account.
pub fn for_people() -> Vec<ClusterRole> {
    let with = |more: Vec<PolicyRule>| view().into_iter().chain(more).collect::<Vec<_>>();
    vec![
        role("knoll-viewer", &[TO_VIEW, TO_EDIT, TO_ADMIN], view()),
        role("knoll-user", &[TO_EDIT, TO_ADMIN], with(work())),
        role("knoll-editor", &[TO_ADMIN], with(work().into_iter().chain(edit()).collect())),
        role("knoll-approver", &[], with(decide())),
        role("knoll-admin", &[], with(govern())),
    ]
}

fn view() -> Vec<PolicyRule> {
    vec![
        rule(GROUP, KINDS, READ),
        // Policies are cluster-scoped: a RoleBinding does not grant them. A Workspace's status says what holds for it.
        rule(GROUP, &["policies"], READ),
        // The logs of finished runs are ConfigMaps.
        rule("", &["configmaps", "pods", "pods/log", "events"], READ),
        rule("events.k8s.io", &["events"], READ),
    ]
}

fn work() -> Vec<PolicyRule> {
    vec![
        // A Run is cancelled by an annotation, or by its deletion.
        rule(GROUP, &["runs"], &["create", "delete", "patch"]),
        rule("", &["pods/attach"], &["create", "get"]),
        // Uploaded bundles. Nothing else than `create`: the sources of Stacks and the scripts of hooks are ConfigMaps too.
        rule("", &["configmaps"], &["create"]),
        // States, and the input of Runs. A user who can run any module with any Secret of the namespace could read them
        // anyway.
        rule("", &["secrets"], &["get", "list", "create"]),
    ]
}

fn edit() -> Vec<PolicyRule> {
    vec![
        rule(GROUP, &["atoms", "atomversions", "stacks", "workspaces"], WRITE),
        // The sources of Stacks and the scripts of hooks.
        rule("", &["configmaps"], &["delete", "patch", "update"]),
    ]
}

fn decide() -> Vec<PolicyRule> {
    // An Approval is a record: it never changes, and no approver deletes that of another.
    vec![rule(GROUP, &["approvals"], &["create"])]
}

fn govern() -> Vec<PolicyRule> {
    vec![rule(GROUP, &["policies"], WRITE)]
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
