//! The defaults of the types and those of the schemas are the same, and a whole status fits its schema.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use knoll_api::{
    Atom, AtomVersion, Run, RunPhase, Stack, Workspace, crds,
    run::{Operation, RunApproval},
    stack::{OnFailure, StackApproval, StackDeletionPolicy},
    workspace::{StateKind, Tool, WorkspaceDeletionPolicy, WorkspaceSpec},
};
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(kind: &str, spec: Value) -> T {
    let object = json!({ "apiVersion": "knoll.dev/v1alpha1", "kind": kind, "metadata": { "name": "a" }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

/// The schema of a kind's spec or status.
fn schema(kind: &str, part: &str) -> Value {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let crd = serde_json::to_value(crd).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part].clone()
}

/// Every default in a schema, by path.
fn defaults(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    if let Some(default) = schema.get("default") {
        found.push((path.to_owned(), default.clone()));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        defaults(property, &format!("{path}/{name}"), found);
    }
    if let Some(items) = schema.get("items") {
        defaults(items, &format!("{path}/*"), found);
    }
}

#[test]
fn an_empty_workspace_has_the_defaults() {
    let workspace: Workspace = read("Workspace", json!({}));
    assert_eq!(workspace.spec, WorkspaceSpec::default());
    assert_eq!(workspace.spec.tool, Tool::Terraform);
    assert_eq!(workspace.spec.state, StateKind::Managed);
    assert_eq!(workspace.spec.state_history, 10);
    assert_eq!(workspace.spec.run_history, 20);
    assert_eq!(workspace.spec.deletion_policy, WorkspaceDeletionPolicy::Orphan);
}

#[test]
fn a_short_run_has_the_defaults() {
    let run: Run = read("Run", json!({ "workspace": "net", "operation": "apply" }));
    assert_eq!(run.spec.operation, Operation::Apply);
    assert_eq!(run.spec.approval, RunApproval::Auto);
    assert!(!run.spec.attach);
    assert_eq!(run.status, None);
}

#[test]
fn a_short_stack_has_the_defaults() {
    let stack: Stack = read("Stack", json!({ "source": { "configMap": { "name": "net" } } }));
    assert_eq!(stack.spec.approval, StackApproval::Auto);
    assert_eq!(stack.spec.on_failure, OnFailure::Hold);
    assert_eq!(stack.spec.deletion_policy, StackDeletionPolicy::Destroy);
    assert_eq!(stack.spec.workspace, WorkspaceSpec::default());
}

#[test]
fn a_short_atom_has_the_defaults() {
    let atom: Atom = read("Atom", json!({ "version": "v1" }));
    assert_eq!(atom.spec.deadline.get().as_secs(), 300);
    assert_eq!(atom.spec.rollback_deadline.get().as_secs(), 300);
    assert_eq!(atom.spec.history_limit, 10);
}

#[test]
fn the_schemas_write_the_defaults_that_the_types_read() {
    let short = [
        serde_json::to_value(read::<Workspace>("Workspace", json!({}))).unwrap(),
        serde_json::to_value(read::<Run>("Run", json!({ "workspace": "net", "operation": "apply" }))).unwrap(),
        serde_json::to_value(read::<Stack>("Stack", json!({ "source": {} }))).unwrap(),
        serde_json::to_value(read::<Atom>("Atom", json!({ "version": "v1" }))).unwrap(),
        serde_json::to_value(read::<AtomVersion>("AtomVersion", json!({}))).unwrap(),
    ];
    for object in short {
        let kind = object["kind"].as_str().unwrap();
        let mut found = Vec::new();
        defaults(&schema(kind, "spec"), "", &mut found);
        // Defaults of list items and of what is absent here have no value to compare with.
        for (path, default) in found {
            if let Some(value) = object["spec"].pointer(&path) {
                assert_eq!(*value, default, "{kind}.spec{path}");
            }
        }
    }
}

#[test]
fn no_status_has_a_default() {
    for crd in crds() {
        let mut found = Vec::new();
        defaults(&schema(&crd.spec.names.kind, "status"), "", &mut found);
        assert_eq!(found, [], "{}", crd.spec.names.kind);
    }
}

#[test]
fn an_empty_status_is_pending() {
    let run: Run = serde_json::from_value(json!({
        "apiVersion": "knoll.dev/v1alpha1",
        "kind": "Run",
        "metadata": { "name": "a" },
        "spec": { "workspace": "net", "operation": "plan" },
        "status": {},
    }))
    .unwrap();
    assert_eq!(run.status.unwrap().phase, RunPhase::Pending);
}

#[test]
fn a_whole_run_status_is_read_and_written_alike() {
    let status = json!({
        "phase": "Review",
        "conditions": [{
            "type": "Ready", "status": "Unknown", "reason": "Progressing", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }],
        "observedGeneration": 1,
        "createdVersion": "90",
        "steps": [{
            "name": "pre-init", "state": "Succeeded", "attempts": 2, "exitCode": 0, "logOffset": 17,
            "startedAt": "2026-01-02T03:04:05.000006Z", "finishedAt": "2026-01-02T03:04:06.000000Z", "message": "m",
        }],
        "plan": {
            "digest": "sha256:0", "add": 1, "change": 2, "destroy": 3, "changes": true, "omitted": 4,
            "resources": [{ "address": "a.b", "action": "replace" }],
        },
        "planVerdict": {
            "plan": "sha256:0", "rules": "sha256:4", "action": "Warn", "deniedBy": ["p"], "overridable": true, "omitted": 1,
            "results": [{
                "policy": "p", "rule": "r", "action": "Deny", "message": "m", "addresses": ["a.b"], "omitted": 1,
                "failed": true,
            }],
        },
        "reviewDigest": "sha256:0",
        "tool": { "name": "terraform", "version": "1.11.4" },
        "job": {
            "digest": "sha256:2", "image": "i", "imageDigests": { "runner": "sha256:3" }, "planServiceAccount": "reader",
            "applyServiceAccount": "writer", "hooks": ["pre-plan/check"], "references": ["Secret/credentials"],
        },
        "approval": "Manual",
        "timeouts": { "pending": "10m" },
        "sizes": {
            "state": { "most": "1Mi", "policy": "p" }, "plan": { "most": "2Mi", "policy": "p" },
            "log": { "most": "3Mi", "policy": "p" }, "bundle": { "most": "4Mi", "policy": "q" },
        },
        "decision": { "approvals": ["a"], "decision": "Approve", "by": "alice" },
        "exitCode": 2,
        "podName": "p",
        "podUID": "u",
        "reportedAt": "2026-01-02T03:04:05.000006Z",
        "stopRequestedAt": "2026-01-02T03:04:05.000006Z",
        "startFailure": "m",
        "position": 1,
        "bundle": "sha256:1",
        "undeclaredVariables": ["sizee"],
        "startedAt": "2026-01-02T03:04:05.000006Z",
        "finishedAt": "2026-01-02T03:04:06.000000Z",
    });
    let known: Vec<String> = schema("Run", "status")["properties"].as_object().unwrap().keys().cloned().collect();
    let written: Vec<String> = status.as_object().unwrap().keys().cloned().collect();
    assert_eq!(written, known, "the example has every field");
    let read: knoll_api::RunStatus = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), status);
}

#[test]
fn the_schemas_have_nothing_that_the_api_server_warns_about() {
    fn check(schema: &Value, path: &str) {
        let any = schema.get("x-kubernetes-preserve-unknown-fields").is_some();
        assert!(any || schema.get("nullable").is_none(), "{path}");
        assert!(!schema["format"].as_str().is_some_and(|format| format.starts_with("uint")), "{path}");
        for (name, inner) in schema.as_object().into_iter().flatten() {
            check(inner, &format!("{path}/{name}"));
        }
    }
    for crd in crds() {
        let kind = &crd.spec.names.kind;
        check(&schema(kind, "spec"), kind);
        check(&schema(kind, "status"), kind);
    }
}

/// The description of a field, with that of the items of a list.
fn described(schema: &Value) -> String {
    let text = |schema: &Value| schema["description"].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(schema), text(&schema["items"]))
}

/// What the fields below a schema do not say: the meaning of a value, or a default. Fields of Kubernetes' own types are
/// described by Kubernetes.
fn unsaid(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let (path, told) = (format!("{path}.{name}"), described(field));
        if told.trim().is_empty() && !path.contains(".volumes.") {
            found.push(format!("{path}: no description"));
        }
        let values = field.get("enum").or_else(|| field["items"].get("enum")).and_then(Value::as_array);
        for value in values.into_iter().flatten().filter_map(Value::as_str) {
            // The name in backquotes, and a sentence behind it.
            let meaning = told.split(&format!("`{value}`: ")).nth(1).unwrap_or_default();
            if meaning.trim().len() < 4 {
                found.push(format!("{path}: what `{value}` means"));
            }
        }
        let is_scalar = |default: &Value| !default.is_object() && !default.is_array();
        if field.get("default").is_some_and(is_scalar) && !told.contains("efaults to") {
            found.push(format!("{path}: its default"));
        }
        unsaid(field, &path, found);
        unsaid(&field["items"], &path, found);
        unsaid(&field["additionalProperties"], &path, found);
    }
}

#[test]
fn kubectl_explain_tells_every_default_and_the_meaning_of_every_value() {
    let mut found = Vec::new();
    for kind in ["Approval", "Atom", "AtomVersion", "Policy", "Run", "Stack", "Workspace"] {
        for part in ["spec", "status"] {
            unsaid(&schema(kind, part), &format!("{kind}.{part}"), &mut found);
        }
    }
    assert_eq!(found, Vec::<String>::new());
    let on_failure = schema("Stack", "spec")["properties"]["onFailure"]["description"].clone();
    let expect = "`Hold`: Nothing is done until the Stack changes.";
    assert!(on_failure.as_str().unwrap().contains(expect), "{on_failure}");
    assert!(on_failure.as_str().unwrap().ends_with("Defaults to `Hold`."), "{on_failure}");
}

#[test]
fn a_timeout_says_what_holds_without_it() {
    let timeouts = schema("Run", "spec")["properties"]["timeouts"]["properties"].clone();
    for (name, field) in timeouts.as_object().unwrap() {
        let told = described(field);
        assert!(told.contains("if unset") || told.contains("Defaults to"), "{name}: {told}");
    }
}
