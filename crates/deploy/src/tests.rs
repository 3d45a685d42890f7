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
fn whoever_runs_cannot_approve_and_whoever_approves_cannot_run() {
    let may = |role: &str, resource: &str, verb: &str| rules_of(role).iter().any(|(r, v)| r == resource && v == verb);
    let rows = [
        ("knoll-user", "runs", "create", true),
        ("knoll-user", "approvals", "get", true),
        ("knoll-user", "approvals", "create", false),
        ("knoll-approver", "approvals", "create", true),
        ("knoll-approver", "runs", "get", true),
        ("knoll-approver", "runs", "create", false),
        ("knoll-approver", "secrets", "get", false),
        ("knoll-viewer", "runs", "get", true),
        ("knoll-viewer", "runs", "create", false),
        ("knoll-viewer", "approvals", "create", false),
        ("knoll-viewer", "secrets", "get", false),
    ];
    for (role, resource, verb, expect) in rows {
        assert_eq!(may(role, resource, verb), expect, "{role} {verb} {resource}");
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
