//! Who may act as whom, and who may grant what.
#![allow(clippy::unwrap_used, reason = "tests")]

mod cluster;

use axum::body::Body;
use cluster::TestCluster;
use http::Request;
use http_body_util::BodyExt;
use knoll_embedded::Identity;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// What the server answers to a user without any group but that of all users.
async fn ask(
    cluster: &TestCluster,
    user: &str,
    headers: &[(&str, &str)],
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let identity = match user {
        "admin" => Identity::admin("admin"),
        user => Identity { name: user.into(), groups: vec!["system:authenticated".into()], ..Identity::default() },
    };
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = Request::builder().method(method).uri(path).header("content-type", kind);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let response = cluster.cluster().server.handle(request.extension(identity).body(body).unwrap()).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

/// Gives a user these permissions in the whole cluster.
async fn grant(cluster: &TestCluster, user: &str, rules: Value) {
    let role = json!({"metadata": {"name": user}, "rules": rules});
    assert_eq!(ask(cluster, "admin", &[], "POST", &format!("{RBAC}/clusterroles"), &role).await.0, 201);
    let binding = json!({
        "metadata": {"name": user}, "roleRef": {"kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "User", "name": user}],
    });
    assert_eq!(ask(cluster, "admin", &[], "POST", &format!("{RBAC}/clusterrolebindings"), &binding).await.0, 201);
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

#[test]
fn each_impersonation_header_is_authorized() {
    let cluster = TestCluster::start();
    let who = |user: &'static str, headers: &'static [(&'static str, &'static str)]| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let cluster = &cluster;
        async move {
            let (code, answer) = ask(cluster, user, headers, "POST", path, &body).await;
            let info = &answer["status"]["userInfo"];
            (code, if code == 201 { info.clone() } else { answer["message"].clone() })
        }
    };
    let refused = |what: &str, group: &str, resource: &str, name: &str| {
        (
            403,
            json!(format!(
                "{what} \"{name}\" is forbidden: User \"proxy\" cannot impersonate resource \"{resource}\" in API group \"{group}\" at the cluster scope"
            )),
        )
    };
    cluster.block_on(async {
        let mut users = rule("", "users", &["impersonate"]);
        users["resourceNames"] = json!(["alice"]);
        grant(&cluster, "proxy", json!([users])).await;
        assert_eq!(who("proxy", &[("Impersonate-User", "alice")]).await.0, 201);
        assert_eq!(who("proxy", &[("Impersonate-User", "bob")]).await, refused("users", "", "users", "bob"));
        assert_eq!(
            who("proxy", &[("Impersonate-User", "alice"), ("Impersonate-Group", "system:masters")]).await,
            refused("groups", "", "groups", "system:masters")
        );
        assert_eq!(
            who("proxy", &[("Impersonate-User", "alice"), ("Impersonate-Uid", "7")]).await,
            refused("uids.authentication.k8s.io", "authentication.k8s.io", "uids", "7")
        );
        assert_eq!(
            who("proxy", &[("Impersonate-User", "alice"), ("Impersonate-Extra-Scopes", "all")]).await,
            refused("userextras.authentication.k8s.io", "authentication.k8s.io", "userextras/scopes", "all")
        );
        let (code, message) = who("proxy", &[("Impersonate-User", "system:serviceaccount:default:default")]).await;
        assert_eq!(code, 403);
        assert_eq!(message, "serviceaccounts \"default\" is forbidden: User \"proxy\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"default\"");
        assert_eq!(who("proxy", &[("Impersonate-User", "")]).await.0, 400);
        assert_eq!(who("proxy", &[("Impersonate-Group", "system:masters")]).await.0, 500);
        assert_eq!(who("admin", &[("Impersonate-User", "system:anonymous")]).await.0, 403);

        for (headers, expect) in [
            (
                &[("Impersonate-User", "alice")][..],
                json!({"username": "alice", "groups": ["system:authenticated"]}),
            ),
            (
                &[("Impersonate-User", "system:serviceaccount:a:b")],
                json!({
                    "username": "system:serviceaccount:a:b",
                    "groups": ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
                }),
            ),
            (
                &[
                    ("Impersonate-User", "alice"),
                    ("Impersonate-Group", "system:masters"),
                    ("Impersonate-Uid", "7"),
                    ("Impersonate-Extra-Acme.com%2fScopes", "all"),
                ],
                json!({
                    "username": "alice", "groups": ["system:masters", "system:authenticated"], "uid": "7",
                    "extra": {"acme.com/scopes": ["all"]},
                }),
            ),
        ] {
            assert_eq!(who("admin", headers).await, (201, expect), "{headers:?}");
        }
    });
}

#[test]
fn nobody_grants_what_they_do_not_have() {
    let cluster = TestCluster::start();
    cluster.block_on(async {
        let all = ["create", "get", "patch", "update"];
        let roles = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
        let mut rules: Vec<Value> = roles.iter().map(|r| rule("rbac.authorization.k8s.io", r, &all)).collect();
        rules.push(rule("", "configmaps", &["get"]));
        grant(&cluster, "maker", json!(rules)).await;
        let held = |name: &str| json!({"metadata": {"name": name}, "rules": [rule("", "configmaps", &["get"])]});
        let more = |name: &str| json!({"metadata": {"name": name}, "rules": [rule("", "secrets", &["get", "list"])]});
        let bind = |name: &str, kind: &str, role: &str| {
            json!({
                "metadata": {"name": name}, "roleRef": {"kind": kind, "name": role},
                "subjects": [{"kind": "User", "name": "maker"}],
            })
        };
        let why = "user \"maker\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}";
        for place in [RBAC.to_owned(), format!("{RBAC}/namespaces/default")] {
            let (roles, bindings, kind) = match place == RBAC {
                true => ("clusterroles", "clusterrolebindings", "ClusterRole"),
                false => ("roles", "rolebindings", "Role"),
            };
            let (to_roles, to_bindings) = (format!("{place}/{roles}"), format!("{place}/{bindings}"));
            let check = async |user: &str, method: &str, path: String, body: Value, expect: u16, named: &str| {
                let (code, answer) = ask(&cluster, user, &[], method, &path, &body).await;
                assert_eq!(code, expect, "{user} {method} {path}: {answer}");
                if code == 403 {
                    assert_eq!(answer["message"], format!("{named} is forbidden: {why}"), "{method} {path}");
                }
            };
            let role = |name: &str| format!("{roles}.rbac.authorization.k8s.io \"{name}\"");
            let binding = |name: &str| format!("{bindings}.rbac.authorization.k8s.io \"{name}\"");
            check("maker", "POST", to_roles.clone(), held("mine"), 201, "").await;
            check("maker", "POST", to_roles.clone(), more("more"), 403, &role("more")).await;
            check("maker", "PUT", format!("{to_roles}/mine"), more("mine"), 403, &role("mine")).await;
            check("maker", "PUT", format!("{to_roles}/new"), more("new"), 403, &role("new")).await;
            let patch = json!({"rules": more("x")["rules"]});
            check("maker", "PATCH", format!("{to_roles}/mine"), patch.clone(), 403, &role("mine")).await;
            check("maker", "PATCH", format!("{to_roles}/mine"), json!({"metadata": {"labels": {"a": "b"}}}), 200, "").await;

            check("admin", "POST", to_roles.clone(), more("more"), 201, "").await;
            check("maker", "PATCH", format!("{to_roles}/more"), json!({"metadata": {"labels": {"a": "b"}}}), 403, &role("more")).await;
            check("maker", "PATCH", format!("{to_roles}/more"), json!({"metadata": {"finalizers": ["a.b/c"]}}), 200, "").await;

            check("maker", "POST", to_bindings.clone(), bind("mine", kind, "mine"), 201, "").await;
            check("maker", "POST", to_bindings.clone(), bind("more", kind, "more"), 403, &binding("more")).await;
            check("maker", "POST", to_bindings.clone(), bind("none", kind, "none"), 404, "").await;
            check("admin", "POST", to_bindings.clone(), bind("more", kind, "none"), 201, "").await;
            check("admin", "POST", to_bindings.clone(), json!({
                "metadata": {"name": "empty"}, "roleRef": {"kind": kind, "name": "more"}, "subjects": [],
            }), 201, "").await;
            let subjects = json!({"subjects": bind("", kind, "")["subjects"]});
            check("maker", "PATCH", format!("{to_bindings}/empty"), subjects, 403, &binding("empty")).await;
        }

        // A role in a namespace, bound by cluster role, is the same step up.
        let path = format!("{RBAC}/namespaces/default/rolebindings");
        assert_eq!(ask(&cluster, "maker", &[], "POST", &path, &bind("up", "ClusterRole", "cluster-admin")).await.0, 403);
        let gathers = json!({
            "metadata": {"name": "gathers"}, "rules": [],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        });
        let (code, answer) = ask(&cluster, "maker", &[], "POST", &format!("{RBAC}/clusterroles"), &gathers).await;
        assert_eq!(code, 403);
        assert_eq!(
            answer["message"],
            "clusterroles.rbac.authorization.k8s.io \"gathers\" is forbidden: must have cluster-admin privileges to use the aggregationRule"
        );
    });
}

#[test]
fn escalate_and_bind_let_grant_what_one_does_not_have() {
    let cluster = TestCluster::start();
    cluster.block_on(async {
        let of = |resource: &str, verbs: &[&str]| rule("rbac.authorization.k8s.io", resource, verbs);
        grant(&cluster, "one", json!([of("clusterroles", &["create", "escalate"])])).await;
        let mut bind = of("clusterroles", &["bind"]);
        bind["resourceNames"] = json!(["view"]);
        grant(
            &cluster,
            "other",
            json!([of("clusterrolebindings", &["create"]), of("clusterroles", &["create"]), bind]),
        )
        .await;
        let role = json!({"metadata": {"name": "r"}, "rules": [rule("*", "*", &["*"])]});
        let path = format!("{RBAC}/clusterroles");
        assert_eq!(ask(&cluster, "other", &[], "POST", &path, &role).await.0, 403);
        assert_eq!(ask(&cluster, "one", &[], "POST", &path, &role).await.0, 201);
        let path = format!("{RBAC}/clusterrolebindings");
        for (role, expect) in [("view", 201), ("edit", 403)] {
            let binding = json!({"metadata": {"name": role}, "roleRef": {"kind": "ClusterRole", "name": role}});
            assert_eq!(ask(&cluster, "other", &[], "POST", &path, &binding).await.0, expect, "{role}");
        }
    });
}
