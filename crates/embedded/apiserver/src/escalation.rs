//! Nobody grants more than they have: who writes a role or a binding must hold each of its permissions, or be allowed
//! to `escalate` or to `bind` it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::kinds::Rules;
use crate::rbac::Wish;
use crate::status::{ApiError, Result};
use crate::{Call, Server, object};

/// Refuses a role or a binding that gives what the user does not have. `old` is what it is now.
pub fn check(server: &Server, call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    let user = &call.identity;
    if call.resource.rules != Rules::Role || user.is_admin() || old.is_some_and(|old| only_collected(new, old)) {
        return Ok(());
    }
    let namespace = call.target.namespace.as_deref();
    let granted = |verb, resource, group, name| {
        let wish = Wish::Resource { verb, group, resource, subresource: None, name, namespace };
        server.grants(user, &wish).is_some()
    };
    let refuse = |why: &str| Err(ApiError::forbidden(call.resource.subject(object::meta(new, "name")), why));
    let rules = if call.resource.kind.ends_with("Binding") {
        let role = &new["roleRef"];
        let text = |key: &str| role[key].as_str().unwrap_or_default();
        let roles = match text("kind") {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            other => {
                let why = format!("unsupported role reference kind: {other:?}");
                return Err(ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, "", why));
            }
        };
        if granted("bind", roles, text("apiGroup"), Some(text("name"))) {
            return Ok(());
        }
        // Kubernetes names the resource of the binding, with the name of the role.
        let missing = || ApiError::not_found(call.resource.subject(text("name")));
        server.role(role, namespace)?.ok_or_else(missing)?["rules"].clone()
    } else {
        if granted("escalate", &call.resource.plural, &call.resource.group, call.target.name.as_deref()) {
            return Ok(());
        }
        new["rules"].clone()
    };
    let held: Vec<Value> = server.rules_for(user, namespace).into_iter().map(|granted| granted.rule).collect();
    let missing = missing(&held, &rules);
    if !missing.is_empty() {
        let missing = Vec::from_iter(missing).join("\n");
        return refuse(&format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{missing}",
            user.name,
            list(user.groups.iter().map(String::as_str)),
        ));
    }
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    // What an aggregating role gathers is not known when it is written.
    if (aggregates(new) || old.is_some_and(aggregates)) && !self::missing(&held, &everything).is_empty() {
        return refuse("must have cluster-admin privileges to use the aggregationRule");
    }
    Ok(())
}

/// Whether only that changes which garbage collection changes.
fn only_collected(new: &Value, old: &Value) -> bool {
    let mut copy = new.clone();
    for key in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
        object::set_meta(&mut copy, key, old["metadata"].get(key).cloned());
    }
    copy == *old
}

fn aggregates(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

/// One verb on one resource, on one object of it or on all, or on one path.
enum Permission<'a> {
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str>, verb: &'a str },
    Path { url: &'a str, verb: &'a str },
}

/// The permissions of these rules that none of those that are held has, as Kubernetes prints them.
fn missing(held: &[Value], rules: &Value) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut resources: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    let permissions = rules.as_array().into_iter().flatten().flat_map(permissions);
    for permission in permissions.filter(|permission| !held.iter().any(|rule| permission.held_by(rule))) {
        match permission {
            Permission::Resource { group, resource, name, verb } => {
                resources.entry((group, resource, name)).or_default().push(verb);
            }
            Permission::Path { url, verb } => {
                paths.insert(format!("{{NonResourceURLs:{}, Verbs:{}}}", list([url]), list([verb])));
            }
        }
    }
    paths.extend(resources.into_iter().map(|((group, resource, name), verbs)| {
        let names = name.map(|name| format!("ResourceNames:{}, ", list([name]))).unwrap_or_default();
        let (group, resource) = (list([group]), list([resource]));
        format!("{{APIGroups:{group}, Resources:{resource}, {names}Verbs:{}}}", list(verbs))
    }));
    paths
}

fn permissions(rule: &Value) -> Vec<Permission<'_>> {
    let names: Vec<Option<&str>> = texts(rule, "resourceNames").map(Some).collect();
    let names = if names.is_empty() { vec![None] } else { names };
    let mut all = Vec::new();
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for verb in texts(rule, "verbs") {
                all.extend(names.iter().map(|name| Permission::Resource { group, resource, name: *name, verb }));
            }
        }
    }
    for url in texts(rule, "nonResourceURLs") {
        all.extend(texts(rule, "verbs").map(|verb| Permission::Path { url, verb }));
    }
    all
}

impl Permission<'_> {
    fn held_by(&self, rule: &Value) -> bool {
        let has = |key: &str, wanted: &str| texts(rule, key).any(|text| text == wanted || text == "*");
        match *self {
            Permission::Resource { group, resource, name, verb } => {
                let below = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
                let mut names = texts(rule, "resourceNames").peekable();
                has("verbs", verb)
                    && has("apiGroups", group)
                    && (has("resources", resource)
                        || below.is_some_and(|below| texts(rule, "resources").any(|text| text == below)))
                    && (names.peek().is_none() || name.is_some_and(|name| names.any(|text| text == name)))
            }
            Permission::Path { url, verb } => {
                let covers =
                    |held: &str| held == url || (held.ends_with('*') && url.starts_with(held.trim_end_matches('*')));
                // A rule for objects by name holds no path, whatever else it says.
                has("verbs", verb)
                    && texts(rule, "nonResourceURLs").any(covers)
                    && texts(rule, "resourceNames").next().is_none()
            }
        }
    }
}

fn texts<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    rule[key].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// A list as Go prints it: `["a" "b"]`
fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(held: &Value, wanted: &Value, expect: &[&str]) {
        let held = held.as_array().cloned().unwrap_or_default();
        let found = missing(&held, &json!([wanted]));
        assert_eq!(Vec::from_iter(found), expect, "{wanted} by {held:?}");
    }

    #[test]
    fn what_is_held_covers_what_is_granted() {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        let named =
            |name: &str| json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [name]});
        let url = |url: &str| json!({"nonResourceURLs": [url], "verbs": ["get"]});
        let pods = rule(&[""], &["pods"], &["get", "list"]);
        check(&json!([pods]), &pods, &[]);
        check(&json!([rule(&["*"], &["*"], &["*"])]), &pods, &[]);
        // Several rules together may cover one.
        check(&json!([rule(&[""], &["pods"], &["get"]), rule(&[""], &["pods"], &["list"])]), &pods, &[]);
        let none = r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#;
        check(&json!([]), &pods, &[none]);
        check(&json!([rule(&["apps"], &["pods"], &["*"])]), &pods, &[none]);
        // A `*` is more than all that is known.
        let all = r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#;
        check(&json!([pods]), &rule(&[""], &["pods"], &["*"]), &[all]);
        let any = r#"{APIGroups:["*"], Resources:["pods"], Verbs:["get"]}"#;
        check(&json!([pods]), &rule(&["*"], &["pods"], &["get"]), &[any]);
        // Names narrow, and nobody gets from one object to all.
        check(&json!([pods]), &named("a"), &[]);
        check(&json!([named("a")]), &named("a"), &[]);
        let other = r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}"#;
        check(&json!([named("a")]), &named("b"), &[other]);
        check(&json!([named("a")]), &pods, &[none]);
        // Subresources are resources of their own.
        let exec = rule(&[""], &["pods/exec"], &["create"]);
        let missing = r#"{APIGroups:[""], Resources:["pods/exec"], Verbs:["create"]}"#;
        check(&json!([rule(&[""], &["pods"], &["create"])]), &exec, &[missing]);
        check(&json!([rule(&[""], &["*/exec"], &["create"])]), &exec, &[]);
        // Paths are covered by prefixes.
        check(&json!([url("/a/*")]), &url("/a/b"), &[]);
        check(&json!([url("/a/*")]), &url("/a/*"), &[]);
        check(&json!([url("/a/b")]), &url("/a/*"), &[r#"{NonResourceURLs:["/a/*"], Verbs:["get"]}"#]);
        check(&json!([rule(&["*"], &["*"], &["*"])]), &url("/a"), &[r#"{NonResourceURLs:["/a"], Verbs:["get"]}"#]);
    }
}
