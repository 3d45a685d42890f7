//! The roles and bindings that every cluster has.

use serde_json::{Value, json};

use super::{ensure, resource};
use crate::Server;
use crate::status::{ApiError, Result};

const GROUP: &str = "rbac.authorization.k8s.io";
const ROLES: &str = "rbac.authorization.k8s.io/clusterroles//";

/// Creates those that are not there.
pub async fn create(server: &Server) -> Result<()> {
    if server.store.get(&format!("{ROLES}cluster-admin")).map_err(ApiError::internal)?.is_some() {
        return Ok(());
    }
    let roles = resource(server, GROUP, "clusterroles")?;
    let bindings = resource(server, GROUP, "clusterrolebindings")?;
    let meta = |name: &str| {
        json!({
            "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        })
    };
    let makers = roster().map(async |(name, rules, groups)| {
        // A binding grants nothing before its role is there.
        let role = ensure(server, &roles, None, json!({"metadata": meta(name), "rules": rules}));
        let subjects: Vec<Value> =
            groups.iter().map(|group| json!({"kind": "Group", "apiGroup": GROUP, "name": group})).collect();
        let reference = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
        let binding = json!({"metadata": meta(name), "roleRef": reference, "subjects": subjects});
        let bind = async { if groups.is_empty() { Ok(()) } else { ensure(server, &bindings, None, binding).await } };
        futures::future::try_join(role, bind).await
    });
    futures::future::try_join_all(makers).await?;
    Ok(())
}

/// Name, rules, and the groups that have the role.
fn roster() -> [(&'static str, Value, &'static [&'static str]); 7] {
    let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let look = ["get", "list", "watch"];
    let write = ["create", "delete", "deletecollection", "patch", "update"];
    let plain = ["configmaps", "events", "namespaces", "pods", "pods/log", "pods/status", "serviceaccounts"];
    let written = ["configmaps", "events", "pods", "pods/attach", "pods/exec", "secrets", "serviceaccounts"];
    let view = || {
        json!([
            {"apiGroups": [""], "resources": plain, "verbs": look},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": look},
        ])
    };
    let edit = || {
        let mut rules = view().as_array().cloned().unwrap_or_default();
        rules.push(json!({"apiGroups": [""], "resources": ["pods/attach", "pods/exec", "secrets"], "verbs": look}));
        rules.push(json!({"apiGroups": [""], "resources": written, "verbs": write}));
        rules.push(json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}));
        rules.push(json!({"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}));
        rules.push(json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": write}));
        rules
    };
    let admin = || {
        let mut rules = edit();
        let all: Vec<&str> = look.iter().chain(&write).copied().collect();
        rules.push(json!({"apiGroups": [GROUP], "resources": ["rolebindings", "roles"], "verbs": all}));
        rules.push(json!({
            "apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"],
        }));
        rules
    };
    [
        (
            "cluster-admin",
            json!([
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]},
            ]),
            &["system:masters"],
        ),
        (
            "system:basic-user",
            json!([
                {
                    "apiGroups": ["authorization.k8s.io"],
                    "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"],
                },
                {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
            ]),
            &["system:authenticated"],
        ),
        ("system:discovery", json!([{"nonResourceURLs": discovery, "verbs": ["get"]}]), &["system:authenticated"]),
        (
            "system:public-info-viewer",
            json!([{"nonResourceURLs": health, "verbs": ["get"]}]),
            &["system:authenticated", "system:unauthenticated"],
        ),
        ("view", view(), &[]),
        ("edit", edit().into(), &[]),
        ("admin", admin().into(), &[]),
    ]
}
