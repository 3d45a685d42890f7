//! Compares the operator's roles with what the operator asked for, by the audit log of a cluster.
//!
//! A permission that nobody used is one that an attacker of the operator would have for nothing. A request that was
//! forbidden is a permission that is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::cluster::Place;

const OPERATOR: &str = "system:serviceaccount:knoll-system:knoll-operator";

/// Permissions that the tests do not show to be used: verb, resource, and why the operator has them.
const EXCUSED: [(&str, &str, &str); 8] = [
    ("update", "atoms.knoll.dev/finalizers", OWNERS),
    ("update", "runs.knoll.dev/finalizers", OWNERS),
    ("update", "workspaces.knoll.dev/finalizers", OWNERS),
    ("create", "workspaces.knoll.dev", "a server-side apply that creates an object is a patch in the audit log"),
    ("patch", "events.events.k8s.io", "an event that is repeated within six minutes extends its series"),
    ("delete", "configmaps", "a bundle is deleted when nothing has referred to it for an hour"),
    ("delete", "atomversions.knoll.dev", "a version is deleted when it is beyond the historyLimit of its Atom"),
    (
        "delete",
        "leases.coordination.k8s.io",
        "a leader that shuts down gives its Lease back; one that is killed does not",
    ),
];

const OWNERS: &str = "the admission plugin OwnerReferencesPermissionEnforcement asks for it, where it is enabled";

/// A verb on a resource, as `pods/log` or `runs.knoll.dev/status`.
type Permission = (String, String);

/// Fails if the operator lacked a permission, or has one that it did not use and that is not excused.
pub fn check(place: &Place) -> anyhow::Result<()> {
    let mut granted = BTreeSet::new();
    for words in [["clusterrole", "knoll-operator"], ["clusterrole", "knoll-atoms"], ["role", "knoll-operator"]] {
        let mut kubectl = Command::new("kubectl");
        kubectl.arg("--kubeconfig").arg(place.kubeconfig()).args(["--namespace", "knoll-system", "get"]);
        let output = kubectl.args(words).args(["--output", "json"]).output().context("cannot run kubectl")?;
        let role: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("cannot read the {}: {}", words[0], String::from_utf8_lossy(&output.stderr)))?;
        granted.extend(grants(&role));
    }
    let mut requests = Requests::default();
    for log in logs(&place.path("logs"))? {
        requests.read(&log);
    }
    report(&granted, &requests)
}

/// The audit log, and those that were rotated away.
fn logs(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("audit") && name.ends_with(".log") {
            logs.push(std::fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?);
        }
    }
    Ok(logs)
}

/// Every permission of a role.
fn grants(role: &Value) -> BTreeSet<Permission> {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                let (resource, part) = resource.split_once('/').unwrap_or((&resource, ""));
                let named = name_of(&group, resource, part);
                granted.extend(words(&rule["verbs"]).into_iter().map(|verb| (verb, named.clone())));
            }
        }
    }
    granted
}

fn name_of(group: &str, resource: &str, part: &str) -> String {
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let part = if part.is_empty() { String::new() } else { format!("/{part}") };
    format!("{resource}{group}{part}")
}

/// What the operator asked for.
#[derive(Debug, Default)]
struct Requests {
    used: BTreeSet<Permission>,
    /// What it was not allowed to do, and how often it tried.
    forbidden: BTreeMap<Permission, usize>,
}

impl Requests {
    /// Reads an audit log: one JSON object a line.
    fn read(&mut self, log: &str) {
        // Most lines are of others, and to parse them takes long.
        for line in log.lines().filter(|line| line.contains(OPERATOR)) {
            let Ok(entry) = serde_json::from_str::<Value>(line) else { continue };
            let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            if text("/user/username") != OPERATOR || entry["objectRef"].is_null() {
                continue;
            }
            let (resource, part) = (text("/objectRef/resource"), text("/objectRef/subresource"));
            let asked = (text("/verb").to_owned(), name_of(text("/objectRef/apiGroup"), resource, part));
            if !entry["impersonatedUser"].is_null() {
                // The rest is for the roles of the impersonated account to decide.
                self.used.insert(("impersonate".to_owned(), "serviceaccounts".to_owned()));
            } else if entry.pointer("/annotations/authorization.k8s.io~1decision") == Some(&"forbid".into()) {
                *self.forbidden.entry(asked).or_default() += 1;
            } else {
                self.used.insert(asked);
            }
        }
    }
}

fn report(granted: &BTreeSet<Permission>, requests: &Requests) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for ((verb, resource), count) in &requests.forbidden {
        wrong.push(format!("missing: {verb} {resource} was forbidden {count} times"));
    }
    for (verb, resource) in granted.difference(&requests.used) {
        // An object that can be listed can be read.
        let listed = verb == "get" && requests.used.contains(&("list".to_owned(), resource.clone()));
        let excuse = EXCUSED.iter().find(|(known, of, _)| known == verb && of == resource);
        match excuse {
            Some((.., why)) => println!("not used: {verb} {resource}: {why}"),
            None if listed => {}
            None => wrong.push(format!("unused: {verb} {resource} was never asked for")),
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!(
        "the operator's role is not what the operator uses:\n  {}\n  \
         change crates/deploy/src/roles.rs, or excuse it with a reason in xtask/src/permissions.rs",
        wrong.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn line(user: &str, verb: &str, resource: &str, more: Value) -> String {
        let mut entry = json!({"user": {"username": user}, "verb": verb, "objectRef": {"resource": resource}});
        entry.as_object_mut().into_iter().for_each(|entry| entry.extend(more.as_object().cloned().unwrap_or_default()));
        entry.to_string()
    }

    fn checked(rules: Value, log: &[String]) -> anyhow::Result<()> {
        let mut requests = Requests::default();
        requests.read(&log.join("\n"));
        report(&grants(&json!({ "rules": rules })), &requests)
    }

    #[test]
    fn a_role_is_what_is_used() {
        let rules = || {
            json!([
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
                {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
                {"apiGroups": ["knoll.dev"], "resources": ["runs/finalizers"], "verbs": ["update"]},
            ])
        };
        let list = line(OPERATOR, "list", "pods", json!({}));
        let acts = line(OPERATOR, "delete", "deployments", json!({"impersonatedUser": {"username": "x"}}));
        let others = line("admin", "delete", "pods", json!({"note": OPERATOR}));
        let log = [list.clone(), acts.clone(), others, "{\"half".to_owned()];
        assert!(checked(rules(), &log).is_ok());

        let unused = checked(rules(), &[list]).unwrap_err().to_string();
        assert!(unused.contains("unused: impersonate serviceaccounts"), "{unused}");
        let unused = checked(rules(), &[acts]).unwrap_err().to_string();
        assert!(unused.contains("unused: get pods") && unused.contains("unused: list pods"), "{unused}");
    }

    #[test]
    fn what_was_forbidden_is_missing() {
        let object = json!({"resource": "runs", "apiGroup": "knoll.dev", "subresource": "status"});
        let forbidden = json!({"objectRef": object, "annotations": {"authorization.k8s.io/decision": "forbid"}});
        let missing = checked(json!([]), &[line(OPERATOR, "patch", "runs", forbidden)]).unwrap_err().to_string();
        assert!(missing.contains("missing: patch runs.knoll.dev/status was forbidden 1 times"), "{missing}");
    }
}
