//! Which built-in kind has which columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, age, cluster, list, pod, text};

type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// The columns of a kind, and the function that fills them.
pub fn columns(api_version: &str, kind: &str) -> (Vec<Column>, Cells) {
    let (name, age) = (Column::name(), Column::age());
    match (api_version, kind) {
        ("v1", "Pod") => (pod::columns(), pod::cells),
        ("v1", "Namespace") => (vec![name, Column::text("Status", "The status of the namespace"), age], namespace),
        ("v1", "ConfigMap") => (vec![name, Column::text("Data", "The number of entries."), age], config_map),
        ("v1", "Secret") => {
            let (ty, data) =
                (Column::text("Type", "What the secret is for."), Column::text("Data", "The number of entries."));
            (vec![name, ty, data, age], secret)
        }
        ("v1", "ServiceAccount") => {
            (vec![name, Column::text("Secrets", "The number of secrets."), age], service_account)
        }
        ("v1", "Node") => (cluster::node_columns(), cluster::node),
        ("v1" | "events.k8s.io/v1", "Event") => (cluster::event_columns(), cluster::event),
        ("coordination.k8s.io/v1", "Lease") => (vec![name, Column::text("Holder", "Who holds the lease."), age], lease),
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => {
            let columns = vec![
                name,
                Column::text("Role", "The role that is bound."),
                age,
                Column::text("Users", "Users in the binding").wide(),
                Column::text("Groups", "Groups in the binding").wide(),
                Column::text("ServiceAccounts", "ServiceAccounts in the binding").wide(),
            ];
            (columns, binding)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => {
            let columns = vec![
                name,
                Column::integer("Validations", "The number of expressions."),
                Column::text("ParamKind", "The kind of its parameters."),
                age,
            ];
            (columns, policy)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => {
            let columns = vec![
                name,
                Column::text("PolicyName", "The policy that is bound."),
                Column::text("ParamRef", "The parameters of the policy."),
                age,
            ];
            (columns, policy_binding)
        }
        _ => {
            let created = Column { ty: "date".into(), ..Column::text("Created At", "When the object was created.") };
            (vec![name, created], other)
        }
    }
}

fn other(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![json!(text(object, "/metadata/name")), json!(text(object, "/metadata/creationTimestamp"))]
}

fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![json!(text(object, "/metadata/name")), json!(text(object, "/status/phase")), age(object, now)]
}

fn entries(object: &Value, field: &str) -> usize {
    object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    let data = entries(object, "data") + entries(object, "binaryData");
    vec![json!(text(object, "/metadata/name")), json!(data), age(object, now)]
}

fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    let (name, ty) = (text(object, "/metadata/name"), text(object, "/type"));
    vec![json!(name), json!(ty), json!(entries(object, "data")), age(object, now)]
}

fn service_account(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![json!(text(object, "/metadata/name")), json!(list(object, "/secrets").len()), age(object, now)]
}

fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![json!(text(object, "/metadata/name")), json!(text(object, "/spec/holderIdentity")), age(object, now)]
}

fn policy(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = match object.pointer("/spec/paramKind") {
        Some(kind) => format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")),
        None => "<unset>".to_owned(),
    };
    let validations = list(object, "/spec/validations").len();
    vec![json!(text(object, "/metadata/name")), json!(validations), json!(kind), age(object, now)]
}

fn policy_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = match object.pointer("/spec/paramRef") {
        Some(reference) => match (text(reference, "/namespace"), text(reference, "/name")) {
            ("", "") => "*".to_owned(),
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        },
        None => "<unset>".to_owned(),
    };
    vec![
        json!(text(object, "/metadata/name")),
        json!(text(object, "/spec/policyName")),
        json!(parameters),
        age(object, now),
    ]
}

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let named = list(object, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
        let names: Vec<_> = named
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", text(subject, "/namespace"), text(subject, "/name"))
                }
                _ => text(subject, "/name").to_owned(),
            })
            .collect();
        json!(names.join(", "))
    };
    vec![
        json!(text(object, "/metadata/name")),
        json!(format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"))),
        age(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
