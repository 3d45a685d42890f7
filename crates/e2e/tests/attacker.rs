//! The attacker's suite: each role tries every verb on every kind, and the ways by which a role could raise itself.
//!
//! `docs/roles.md` has the table of what a role reaches. `KNOLL_UPDATE_SNAPSHOTS=1` writes it again.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write;

use http::{Method, Request};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Secret;
use knoll_api::run::{Run, RunPhase};
use knoll_e2e::manifests::{MODULE, approval, inline, run, workspace};
use knoll_e2e::{Namespace, World};
use kube::api::PostParams;
use kube::{Api, Client};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/roles.md");

/// The roles of the table, in its order. `None` is a user without any role.
const ROLES: [Option<&str>; 6] =
    [None, Some("knoll-viewer"), Some("knoll-user"), Some("knoll-editor"), Some("knoll-approver"), Some("knoll-admin")];

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

const KNOLL: &str = "knoll.dev/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// What an attacker tries: the group with its version, and the resource with its subresource.
const TARGETS: [(&str, &str); 44] = [
    (KNOLL, "workspaces"),
    (KNOLL, "workspaces/status"),
    (KNOLL, "workspaces/finalizers"),
    (KNOLL, "runs"),
    (KNOLL, "runs/status"),
    (KNOLL, "runs/finalizers"),
    (KNOLL, "stacks"),
    (KNOLL, "stacks/status"),
    (KNOLL, "stacks/finalizers"),
    (KNOLL, "approvals"),
    (KNOLL, "approvals/status"),
    (KNOLL, "approvals/finalizers"),
    (KNOLL, "atoms"),
    (KNOLL, "atoms/status"),
    (KNOLL, "atoms/finalizers"),
    (KNOLL, "atomversions"),
    (KNOLL, "atomversions/status"),
    (KNOLL, "policies"),
    (KNOLL, "policies/status"),
    ("v1", "configmaps"),
    ("v1", "secrets"),
    ("v1", "pods"),
    ("v1", "pods/log"),
    ("v1", "pods/attach"),
    ("v1", "pods/exec"),
    ("v1", "events"),
    ("events.k8s.io/v1", "events"),
    ("v1", "serviceaccounts"),
    ("v1", "serviceaccounts/token"),
    (RBAC, "roles"),
    (RBAC, "rolebindings"),
    ("v1", "pods/portforward"),
    ("v1", "pods/ephemeralcontainers"),
    ("v1", "pods/eviction"),
    ("v1", "services"),
    ("v1", "persistentvolumeclaims"),
    ("v1", "namespaces"),
    ("apps/v1", "deployments"),
    ("batch/v1", "jobs"),
    ("coordination.k8s.io/v1", "leases"),
    (RBAC, "clusterroles"),
    (RBAC, "clusterrolebindings"),
    ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies"),
];

/// The last rows are asked for in access reviews only: the embedded cluster does not serve all of them.
const WITH_REQUESTS: usize = 31;

/// A client that acts as a user with this role in the namespace, and for cluster-scoped kinds in the cluster.
async fn attacker(namespace: &Namespace, role: Option<&str>) -> (String, Client) {
    let name = role.unwrap_or("nobody");
    let user = namespace.person(name, role.as_slice()).user;
    let client = World::get().client_as(&user).await;
    (user, client)
}

fn split(target: &str) -> (&str, Option<&str>) {
    target.split_once('/').map_or((target, None), |(resource, part)| (resource, Some(part)))
}

/// Whether the API server says that the user may do it.
async fn is_allowed(client: &Client, namespace: &str, group: &str, target: &str, verb: &str) -> bool {
    let (resource, part) = split(target);
    let attributes = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some(verb.to_owned()),
        group: Some(group.rsplit_once('/').map_or("", |(group, _)| group).to_owned()),
        resource: Some(resource.to_owned()),
        subresource: part.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    api.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

/// The code of the answer to a request that changes nothing: it names no object that exists, and is a dry run.
async fn code_of(client: &Client, namespace: &str, group: &str, target: &str, verb: &str) -> u16 {
    let (resource, part) = split(target);
    let root = if group.contains('/') { format!("/apis/{group}") } else { format!("/api/{group}") };
    // A cluster-scoped kind has no path in a namespace.
    let folder = if resource == "policies" { root } else { format!("{root}/namespaces/{namespace}") };
    let part = part.map(|part| format!("/{part}")).unwrap_or_default();
    let one = format!("{folder}/{resource}/nothing{part}");
    let all = format!("{folder}/{resource}");
    // Objects of a part of another, such as a token, are created by a request to that part.
    let new = if part.is_empty() { all.clone() } else { one.clone() };
    let (method, path, body) = match verb {
        "get" => (Method::GET, one, ""),
        "list" => (Method::GET, format!("{all}?limit=1"), ""),
        "watch" => (Method::GET, format!("{all}?watch=true&timeoutSeconds=1"), ""),
        "create" => (Method::POST, format!("{new}?dryRun=All"), "{}"),
        "update" => (Method::PUT, format!("{one}?dryRun=All"), "{}"),
        "patch" => (Method::PATCH, format!("{one}?dryRun=All"), "{}"),
        "delete" => (Method::DELETE, format!("{one}?dryRun=All"), ""),
        _ => (Method::DELETE, format!("{all}?dryRun=All&labelSelector=none%3Dnone"), ""),
    };
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(kube::client::Body::from(body.as_bytes().to_vec())).unwrap();
    client.send(request).await.unwrap().status().as_u16()
}

/// The parts of an object that have no collection.
fn has_no_collection(target: &str, verb: &str) -> bool {
    target.contains('/') && ["list", "watch", "deletecollection"].contains(&verb)
}

#[tokio::test]
async fn each_role_reaches_what_the_table_says_and_nothing_else() {
    let namespace = World::get().namespace().await;
    let mut reached: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    for (column, role) in ROLES.into_iter().enumerate() {
        let (user, client) = attacker(&namespace, role).await;
        for (row, (group, target)) in TARGETS.into_iter().enumerate() {
            for verb in VERBS {
                let allowed = is_allowed(&client, &namespace.name, group, target, verb).await;
                if allowed {
                    reached.entry((row, column)).or_default().push(verb);
                }
                // A finalizers subresource has no requests: the permission is asked for by admission plugins.
                if row >= WITH_REQUESTS
                    || has_no_collection(target, verb)
                    || target.ends_with("/finalizers")
                    || target == "policies/status"
                {
                    continue;
                }
                // A RoleBinding grants a kind without namespaces to nobody, whatever the review of a namespace says.
                let expect = allowed && target != "policies";
                let code = code_of(&client, &namespace.name, group, target, verb).await;
                assert_eq!(code != 403, expect, "{user}: {verb} {group}/{target} was answered with {code}");
            }
        }
    }
    let text = table(&reached);
    if std::env::var_os("KNOLL_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(TABLE, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(TABLE).unwrap_or_default(), text, "docs/roles.md is not current");
}

const HEAD: &str = "# What each role reaches

The test `crates/e2e/tests/attacker.rs` writes this page: a user with each role tries every verb on every kind, with
requests and with access reviews. The page is compared with the answers of the embedded cluster and of a real one.

A role is bound by its name in a namespace (`kubectl create rolebinding ann --clusterrole knoll-approver --user ann`).
`knoll-admin` writes Policies, which have no namespace: bind it with `kubectl create clusterrolebinding`.

| role | for | in the built-in roles |
|---|---|---|
| `knoll-viewer` | reads everything except Secrets | `view`, `edit`, `admin` |
| `knoll-user` | starts and cancels Runs of the Workspaces that exist, and reads the Secrets of the namespace | `edit`, `admin` |
| `knoll-editor` | writes Workspaces, Stacks and Atoms | `admin` |
| `knoll-approver` | approves and discards plans | none |
| `knoll-admin` | writes Policies | none |

`read` is `get`, `list` and `watch`; `write` is `create`, `update`, `patch`, `delete` and `deletecollection`.
A row without an entry is a right that no role has.

";

fn table(reached: &BTreeMap<(usize, usize), Vec<&str>>) -> String {
    let mut text = HEAD.to_owned();
    let names = ROLES.iter().skip(1).flatten().map(|role| format!(" `{role}` |")).collect::<String>();
    let _ = writeln!(text, "| resource |{names}\n|---|{}", "---|".repeat(ROLES.len() - 1));
    for (row, (group, target)) in TARGETS.into_iter().enumerate() {
        let group = group.rsplit_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        let (resource, part) = split(target);
        let part = part.map(|part| format!("/{part}")).unwrap_or_default();
        assert_eq!(reached.get(&(row, 0)), None, "a user without a role reaches {target}");
        let cells = (1..ROLES.len()).map(|column| {
            let cell = short(reached.get(&(row, column)).map(Vec::as_slice).unwrap_or_default());
            if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") }
        });
        let _ = writeln!(text, "| {resource}{group}{part} |{}", cells.collect::<String>());
    }
    text
}

fn short(verbs: &[&str]) -> String {
    let (read, write) = VERBS.split_at(3);
    let mut words = Vec::new();
    for (word, all) in [("read", read), ("write", write)] {
        match all.iter().filter(|verb| verbs.contains(verb)).copied().collect::<Vec<_>>() {
            some if some == all => words.push(word),
            some => words.extend(some),
        }
    }
    words.join(", ")
}

/// The verbs by which RBAC lets somebody become somebody else, or have more than they have.
#[tokio::test]
async fn no_role_becomes_another_one() {
    let namespace = World::get().namespace().await;
    let rbac = [(RBAC, "roles"), (RBAC, "clusterroles")];
    let tries = [
        ("impersonate", &[("v1", "users"), ("v1", "groups"), ("v1", "serviceaccounts")][..]),
        ("bind", &rbac),
        ("escalate", &rbac),
    ];
    for role in ROLES {
        let (user, client) = attacker(&namespace, role).await;
        for (verb, targets) in tries {
            for (group, target) in targets {
                let allowed = is_allowed(&client, &namespace.name, group, target, verb).await;
                assert!(!allowed, "{user} may {verb} {target}");
            }
        }
    }
}

/// A Run in review, and the digest of its plan.
async fn waiting(namespace: &Namespace) -> String {
    namespace.create(&workspace("w"));
    namespace.create(&format!("{}  approval: Manual\n", run("change", "w", &inline(MODULE))));
    namespace.run_in("change", RunPhase::Review).await.status.unwrap().review_digest.unwrap()
}

#[tokio::test]
async fn nobody_but_an_approver_ends_a_review() {
    let namespace = World::get().namespace().await;
    let digest = waiting(&namespace).await;
    for role in ROLES.into_iter().filter(|role| *role != Some("knoll-approver")) {
        let who = namespace.person(role.unwrap_or("nobody"), role.as_slice());
        let decision = approval("approve", "change", &digest, "Approve", &who.user);
        let said = who.kubectl_with(&decision, &["create", "-f", "-"]).refused();
        assert!(said.contains("cannot create resource \"approvals\""), "{}: {said}", who.user);
        let status =
            r#"{"status": {"phase": "Running", "decision": {"approval": "", "decision": "Approve", "by": "ann"}}}"#;
        let words = ["patch", "runs", "change", "--subresource=status", "--type=merge", "--patch", status];
        let said = who.kubectl(&words).refused();
        assert!(said.contains("forbidden"), "{}: {said}", who.user);
        // A status in the object itself is ignored, or the write is refused.
        let _ = who.kubectl(&["patch", "runs", "change", "--type=merge", "--patch", status]);
    }
    let run: Run = namespace.api().get("change").await.unwrap();
    let status = run.status.unwrap();
    assert_eq!((status.phase, status.decision), (RunPhase::Review, None));
}

/// Whoever removed them lost what a running apply had made, or let a second terraform run beside it.
#[tokio::test]
async fn only_the_operator_and_administrators_remove_the_finalizers_of_knoll() {
    let namespace = World::get().namespace().await;
    waiting(&namespace).await;
    let eve = namespace.person("eve", &["knoll-user", "knoll-editor"]);
    let patch = |finalizers: &str| format!(r#"{{"metadata": {{"finalizers": {finalizers}}}}}"#);
    for object in ["run/change", "workspace/w"] {
        let held = namespace.kubectl(&["get", object, "-o", "jsonpath={.metadata.finalizers}"]).ok();
        assert!(held.contains("knoll.dev/"), "{object}: {held}");
        for finalizers in ["null", "[]"] {
            let said = eve.kubectl(&["patch", object, "--type=merge", "--patch", &patch(finalizers)]).refused();
            assert!(said.contains("the operator removes it when nothing runs any more"), "{object}: {said}");
        }
        let labels = r#"{"metadata": {"labels": {"team": "shop"}}}"#;
        let _ = eve.kubectl(&["patch", object, "--type=merge", "--patch", labels]).ok();
    }
    // In a cluster whose operator is gone, somebody has to.
    let _ = namespace.kubectl(&["patch", "run/change", "--type=merge", "--patch", &patch("null")]).ok();
}

#[tokio::test]
async fn a_user_keeps_no_run_from_being_deleted() {
    let namespace = World::get().namespace().await;
    waiting(&namespace).await;
    let eve = namespace.person("eve", &["knoll-user"]);
    let patch = r#"{"metadata": {"finalizers": ["knoll.dev/run", "example.com/mine"]}}"#;
    let said = eve.kubectl(&["patch", "runs", "change", "--type=merge", "--patch", patch]).refused();
    assert!(said.contains("would keep the Run for ever"), "{said}");
    let kept =
        run("kept", "w", &inline(MODULE)).replace("{name: kept}", "{name: kept, finalizers: [example.com/mine]}");
    let said = eve.kubectl_with(&kept, &["create", "-f", "-"]).refused();
    assert!(said.contains("would keep the Run for ever"), "{said}");
    // An owner that blocks its deletion does not keep the Run either.
    let uid = namespace.kubectl(&["get", "workspaces", "w", "-o", "jsonpath={.metadata.uid}"]).ok();
    let owner = format!(
        r#"{{"metadata": {{"ownerReferences": [{{"apiVersion": "knoll.dev/v1alpha1", "kind": "Workspace", "name": "w", "uid": "{uid}", "blockOwnerDeletion": true}}]}}}}"#
    );
    let _ = eve.kubectl(&["patch", "runs", "change", "--type=merge", "--patch", &owner]);
    let _ = namespace.kubectl(&["delete", "runs", "change", "--timeout=60s"]).ok();
    let _ = namespace.kubectl(&["delete", "workspaces", "w", "--cascade=foreground", "--timeout=60s"]).ok();
}

#[tokio::test]
async fn a_user_changes_no_script_and_no_source_of_others() {
    let namespace = World::get().namespace().await;
    let _ = namespace.kubectl(&["create", "configmap", "hooks", "--from-literal=check=true"]).ok();
    for role in ["knoll-user", "knoll-approver", "knoll-viewer", "knoll-admin"] {
        let who = namespace.person(role, &[role]);
        let patch = ["patch", "configmaps", "hooks", "--type=merge", "--patch", r#"{"data": {"check": "evil"}}"#];
        for words in [&patch[..], &["delete", "configmaps", "hooks"]] {
            let said = who.kubectl(words).refused();
            assert!(said.contains("forbidden"), "{}: {said}", who.user);
        }
    }
}

#[tokio::test]
async fn a_user_gets_no_token_of_a_service_account() {
    let namespace = World::get().namespace().await;
    let eve = namespace.person("eve", &["knoll-user"]);
    let said = eve.kubectl(&["create", "token", "default"]).refused();
    assert!(said.contains("forbidden"), "{said}");
    let secret = "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\nmetadata: {name: stolen, annotations: {kubernetes.io/service-account.name: default}}\n";
    let tried = eve.kubectl_with(secret, &["create", "-f", "-"]);
    if World::get().is_real() {
        assert!(tried.refused().contains("knoll-tokens"));
    } else if tried.code == Some(0) {
        // No controller of the embedded cluster writes a token into such a Secret.
        let stolen: Secret = namespace.api().get("stolen").await.unwrap();
        assert!(!stolen.data.unwrap_or_default().contains_key("token"));
    }
    // Administrators create such Secrets as before.
    let _ = namespace.kubectl_with(&secret.replace("stolen", "allowed"), &["create", "-f", "-"]).ok();
}
