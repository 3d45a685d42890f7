//! Discovery: which APIs there are, in the old form (a document a group) and the aggregated one (all at once).

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};

use crate::kinds::{Resource, Rules, join_version};
use crate::status::{ApiError, bytes_response, json_response, page_not_found};
use crate::{OK, Server};

/// The version of Kubernetes whose behaviour the server follows.
pub const VERSION: &str = "v1.34.4";

const AGGREGATED: &str = "as=APIGroupDiscoveryList";

/// What is answered without credentials: health and the version.
pub fn open(segments: &[String], method: &Method) -> Option<Response> {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let ok = || {
        let mut response = bytes_response(OK, "ok");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    match words.as_slice() {
        _ if method != Method::GET && method != Method::HEAD => None,
        ["healthz" | "livez" | "readyz", ..] => Some(ok()),
        ["version"] => Some(json_response(
            OK,
            &json!({
                "major": "1", "minor": "34", "gitVersion": format!("{VERSION}+knoll"), "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
            }),
        )),
        _ => None,
    }
}

/// `/api`
pub fn core(server: &Server, headers: &HeaderMap) -> Response {
    if let Some(response) = aggregated(server, headers, true) {
        return response;
    }
    let host = headers.get(header::HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let address = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]);
    json_response(OK, &json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": address}))
}

/// `/apis`
pub fn groups(server: &Server, headers: &HeaderMap) -> Response {
    if let Some(response) = aggregated(server, headers, false) {
        return response;
    }
    let groups: Vec<Value> =
        named_groups(server).iter().map(|(group, versions)| group_document(group, versions)).collect();
    json_response(OK, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

/// `/apis/GROUP`
pub fn group(server: &Server, name: &str) -> Response {
    let groups = named_groups(server);
    let Some((group, versions)) = groups.iter().find(|(group, _)| group == name) else {
        return page_not_found();
    };
    let mut document = group_document(group, versions);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    json_response(OK, &document)
}

/// The order of the built-in groups; custom ones follow by name.
const ORDER: &[&str] = &[
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
];

/// Every group but the core one with its versions, the preferred one first.
fn named_groups(server: &Server) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for resource in server.registry.current().all().filter(|r| !r.group.is_empty()) {
        match groups.iter_mut().find(|(group, _)| *group == resource.group) {
            Some((_, versions)) if versions.contains(&resource.version) => {}
            Some((_, versions)) => versions.push(resource.version.clone()),
            None => groups.push((resource.group.clone(), vec![resource.version.clone()])),
        }
    }
    for (_, versions) in &mut groups {
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
    }
    let place = |group: &str| ORDER.iter().position(|known| *known == group).unwrap_or(ORDER.len());
    groups.sort_by_key(|(group, _)| place(group));
    groups
}

/// `v2` before `v1` before `v1beta2` before `v1alpha1`, and all of them before anything else.
fn rank(version: &str) -> (u8, u64, u64) {
    let parts = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest.get(..digits)?.parse().ok()?;
        let (stage, minor) = match rest.get(digits..)? {
            "" => (3, 0),
            stage => match (stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
                (Some(n), _) => (2, n.parse().ok()?),
                (_, Some(n)) => (1, n.parse().ok()?),
                _ => return None,
            },
        };
        Some((stage, major, minor))
    };
    parts().unwrap_or_default()
}

fn group_document(group: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": join_version(group, version), "version": version});
    let all: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": group, "versions": all, "preferredVersion": versions.first().map(entry)})
}

/// `/api/v1`, `/apis/GROUP/VERSION`
pub fn resources(server: &Server, group: &str, version: &str) -> Response {
    let current = server.registry.current();
    let mut rows = Vec::new();
    for resource in current.all().filter(|r| r.group == group && r.version == version) {
        let mut row = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs(),
        });
        if resource.stored {
            row["storageVersionHash"] = storage_hash(resource).into();
        }
        if !resource.short_names.is_empty() {
            row["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            row["categories"] = json!(resource.categories);
        }
        rows.push(row);
        for (name, (group, version, kind), verbs) in subresources(resource) {
            let mut row = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind, "verbs": verbs,
            });
            if !group.is_empty() {
                row["group"] = group.into();
                row["version"] = version.into();
            }
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return if group.is_empty() { ApiError::no_such_resource().into_response() } else { page_not_found() };
    }
    let group_version = join_version(group, version);
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": rows});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    json_response(OK, &list)
}

/// Tells clients whether the form in which objects are stored has changed.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let (group, version) = resource.storage_version.split_once('/').unwrap_or(("", &resource.storage_version));
    // Definitions are still said to be stored as they were first.
    let version = if resource.rules == Rules::Crd { "v1beta1" } else { version };
    let text = format!("{group}/{version}/{}", resource.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// Name, group-version-kind and verbs of a subresource.
type Row<'a> = (&'a str, (&'a str, &'a str, &'a str), Vec<&'a str>);

fn subresources(resource: &Resource) -> Vec<Row<'_>> {
    let mut all: Vec<_> = resource.subresources.iter().map(|s| (s.name, s.kind, s.verbs.to_vec())).collect();
    if resource.status {
        all.push(("status", ("", "", resource.kind.as_str()), vec!["get", "patch", "update"]));
    }
    if resource.scale.is_some() {
        all.push(("scale", ("autoscaling", "v1", "Scale"), vec!["get", "patch", "update"]));
    }
    if resource.rules != Rules::Custom {
        all.sort_by_key(|row| row.0);
    }
    all
}

fn aggregated(server: &Server, headers: &HeaderMap, core: bool) -> Option<Response> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    let range = accept.split(',').map(str::trim).find(|range| {
        range.starts_with("application/json") && range.contains(AGGREGATED) && range.contains("g=apidiscovery.k8s.io")
    })?;
    let version = if range.contains("v=v2beta1") { "v2beta1" } else { "v2" };
    let groups = if core { vec![(String::new(), vec!["v1".to_owned()])] } else { named_groups(server) };
    let current = server.registry.current();
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let rows: Vec<Value> = current
                        .all()
                        .filter(|r| r.group == *group && r.version == *version)
                        .map(|r| aggregated_resource(r))
                        .collect();
                    json!({"version": version, "resources": rows, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {}, "items": items,
    });
    let mut response = bytes_response(StatusCode::OK, document.to_string());
    let media = format!("application/json;g=apidiscovery.k8s.io;v={version};{AGGREGATED}");
    if let Ok(value) = http::HeaderValue::from_str(&media) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    Some(response)
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut row = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        row["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        row["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|(name, (group, version, of), verbs)| {
            let response =
                if group.is_empty() { kind(&resource.group, &resource.version, of) } else { kind(group, version, of) };
            json!({"subresource": name, "responseKind": response, "verbs": verbs})
        })
        .collect();
    if !subresources.is_empty() {
        row["subresources"] = subresources.into();
    }
    row
}
