use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

fn rules_of(role: &str) -> Vec<(String, String)> {
    let roles = rules("operator");
    let role = roles.iter().find(|manifest| manifest.name() == role).map(|manifest| &manifest.value);
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut granted = Vec::new();
    for rule in role.and_then(|role| role["rules"].as_array()).into_iter().flatten() {
        for resource in words(&rule["resources"]) {
            granted.extend(words(&rule["verbs"]).into_iter().map(|verb| (resource.clone(), verb)));
        }
    }
    granted
}

#[test]
fn no_role_can_raise_itself() {
    let may = |role: &str, resource: &str, verb: &str| rules_of(role).iter().any(|(r, v)| r == resource && v == verb);
    let rows = [
        ("knoll-user", "runs", "create", true),
        ("knoll-user", "approvals", "get", true),
        // A review of a Stack says nothing when its source is the ConfigMap of the user who asks.
        ("knoll-user", "configmaps", "create", true),
        ("knoll-user", "configmaps", "patch", false),
        ("knoll-user", "workspaces", "patch", false),
        ("knoll-user", "stacks", "create", false),
        ("knoll-user", "atoms", "create", false),
        ("knoll-editor", "workspaces", "patch", true),
        ("knoll-editor", "policies", "get", true),
        ("knoll-approver", "approvals", "create", true),
        ("knoll-approver", "approvals", "delete", false),
        ("knoll-approver", "runs", "create", false),
        ("knoll-viewer", "secrets", "get", false),
        ("knoll-admin", "policies", "update", true),
        ("knoll-admin", "runs", "create", false),
    ];
    for (role, resource, verb, expect) in rows {
        assert_eq!(may(role, resource, verb), expect, "{role} {verb} {resource}");
    }
    for role in PEOPLE {
        for (resource, verb) in rules_of(role) {
            assert!(!resource.ends_with("/status") && !resource.ends_with("/finalizers"), "{role} {verb} {resource}");
            let raises = ["pods/exec", "serviceaccounts/token", "roles", "rolebindings"].contains(&resource.as_str());
            let starts = resource == "pods" && !["get", "list", "watch"].contains(&verb.as_str());
            assert!(!raises && !starts, "{role} {verb} {resource}");
            assert!(
                resource != "approvals" || verb != "create" || role == "knoll-approver",
                "{role} {verb} {resource}"
            );
            let writes = resource == "policies" && !["get", "list", "watch"].contains(&verb.as_str());
            assert!(!writes || role == "knoll-admin", "{role} {verb} {resource}");
            assert!(
                resource != "secrets" || ["knoll-user", "knoll-editor"].contains(&role),
                "{role} {verb} {resource}"
            );
        }
    }
}

/// The roles for users.
const PEOPLE: [&str; 5] = ["knoll-viewer", "knoll-user", "knoll-editor", "knoll-approver", "knoll-admin"];

#[test]
fn approving_and_policies_are_in_no_built_in_role() {
    let roles = rules("operator");
    let taken_in_by = |role: &str| -> Vec<String> {
        let role = roles.iter().find(|manifest| manifest.name() == role).map(|manifest| &manifest.value);
        let labels = role.and_then(|role| role["metadata"]["labels"].as_object()).into_iter().flatten();
        let labels = labels.filter_map(|(key, _)| key.strip_prefix("rbac.authorization.k8s.io/aggregate-to-"));
        labels.map(str::to_owned).collect()
    };
    let rows: [(&str, &[&str]); 5] = [
        ("knoll-viewer", &["admin", "edit", "view"]),
        ("knoll-user", &["admin", "edit"]),
        ("knoll-editor", &["admin"]),
        ("knoll-approver", &[]),
        ("knoll-admin", &[]),
    ];
    for (role, expect) in rows {
        assert_eq!(taken_in_by(role), expect, "{role}");
    }
}

#[test]
fn no_role_is_a_wildcard() {
    for manifest in all(&Settings::default()) {
        for rule in manifest.value["rules"].as_array().into_iter().flatten() {
            assert!(!rule.to_string().contains(r#""*""#), "{}: {rule}", manifest.title());
        }
    }
}

#[test]
fn the_files_hold_what_an_installation_applies() {
    let title = |manifest: &Manifest| (manifest.title(), manifest.value.to_string());
    let applied: BTreeSet<_> = all(&Settings::default()).iter().map(title).collect();
    let written: BTreeSet<_> =
        files::contents().iter().flat_map(|(_, manifests)| manifests.iter().map(title)).collect();
    assert_eq!(applied, written);
}

#[test]
fn an_installation_is_where_and_what_it_was_asked_to_be() {
    let settings = Settings {
        namespace: "elsewhere".to_owned(),
        image: "mine:1".to_owned(),
        replicas: 3,
        image_volumes: true,
        allow_source_cidrs: vec!["10.1.0.0/16".to_owned(), "fd00::/8".to_owned()],
        plain_http_credentials: true,
    };
    let all = operator(&settings);
    for manifest in &all {
        assert!(manifest.namespace().is_none_or(|namespace| namespace == "elsewhere"), "{}", manifest.title());
        for subject in manifest.value["subjects"].as_array().into_iter().flatten() {
            assert_eq!(subject["namespace"], "elsewhere");
        }
    }
    let deployment = all.iter().find(|manifest| manifest.resource.kind == "Deployment").map(|manifest| &manifest.value);
    let deployment = deployment.cloned().unwrap_or_default();
    assert_eq!(deployment["spec"]["replicas"], 3);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "mine:1");
    let named =
        |name: &str| container["env"].as_array()?.iter().find(|variable| variable["name"] == name)?["value"].as_str();
    assert_eq!((named("KNOLL_IMAGE"), named("KNOLL_IMAGE_VOLUMES")), (Some("mine:1"), Some("true")));
    let fetches = (named("KNOLL_ALLOW_SOURCE_CIDR"), named("KNOLL_PLAIN_HTTP_CREDENTIALS"));
    assert_eq!(fetches, (Some("10.1.0.0/16,fd00::/8"), Some("true")));
}
