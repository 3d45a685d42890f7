//! OpenAPI: version 3 for `kubectl explain` and for the question whether the server validates fields, and the frame of
//! version 2, which kubectl reads before it applies a `List` or a kind that is not there.

use axum::response::Response;
use http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use crate::kinds::{Resource, Rules, join_version};
use crate::status::{bytes_response, json_response, page_not_found};
use crate::{OK, Server};
use knoll_kube_model::schema;

/// `/openapi/v2`, `/openapi/v3` and the documents below it.
pub fn serve(server: &Server, segments: &[String], headers: &HeaderMap) -> Response {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["openapi", "v2"] => version_2(headers),
        ["openapi", "v3"] => json_response(OK, &index(server)),
        ["openapi", "v3", "api", version] => document(server, "", version),
        ["openapi", "v3", "apis", group, version] => document(server, group, version),
        ["openapi", "v3", ..] => {
            let mut response = Response::new(axum::body::Body::empty());
            *response.status_mut() = http::StatusCode::NOT_FOUND;
            response
        }
        _ => page_not_found(),
    }
}

/// The document of version 2, which describes no type: fields are validated by the server. A client that finds no
/// schema here leaves validation to the server.
fn version_2(headers: &HeaderMap) -> Response {
    const TITLE: &str = "Kubernetes";
    let version = super::discovery::VERSION;
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepted.contains("com.github.proto-openapi.spec.v2") {
        return json_response(
            OK,
            &json!({"swagger": "2.0", "info": {"title": TITLE, "version": version}, "paths": {}, "definitions": {}}),
        );
    }
    // Go clients read nothing but protobuf: field 1 is the version of the format, field 2 the title and the version.
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let info = [field(1, TITLE.as_bytes()), field(2, version.as_bytes())].concat();
    let mut response = bytes_response(OK, [field(1, b"2.0"), field(2, &info)].concat());
    let media_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(media_type));
    response
}

fn index(server: &Server) -> Value {
    let mut paths = Map::new();
    for resource in server.registry.current().all() {
        let path = if resource.group.is_empty() {
            format!("api/{}", resource.version)
        } else {
            format!("apis/{}/{}", resource.group, resource.version)
        };
        // Clients keep a document for as long as its address stays the same, so the address names the store's
        // revision at which the custom resources last changed.
        let url = format!("/openapi/v3/{path}?hash={:016X}", fingerprint(server, &resource.group));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn fingerprint(server: &Server, group: &str) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    for resource in server.registry.current().all().filter(|r| r.group == group) {
        (&resource.version, &resource.plural).hash(&mut hasher);
        if let Some(crd) = &resource.crd {
            crd.openapi.to_string().hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn document(server: &Server, group: &str, version: &str) -> Response {
    let current = server.registry.current();
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in current.all().filter(|r| r.group == group && r.version == version) {
        let name = definition(resource, &mut schemas);
        add_paths(resource, &name, &mut paths);
    }
    if paths.is_empty() {
        return page_not_found();
    }
    json_response(
        OK,
        &json!({
            "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": super::discovery::VERSION},
            "paths": paths, "components": {"schemas": schemas},
        }),
    )
}

/// Adds the schemas that a resource needs and gives the name of its own.
fn definition(resource: &Resource, schemas: &mut Map<String, Value>) -> String {
    let kind = json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
    let name;
    match &resource.crd {
        Some(crd) => {
            let reversed: Vec<&str> = resource.group.rsplit('.').collect();
            name = format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind);
            let mut own = crd.openapi.clone();
            let text = |what: &str| json!({"type": "string", "description": what});
            own["properties"]["apiVersion"] =
                text("APIVersion defines the versioned schema of this representation of an object.");
            own["properties"]["kind"] =
                text("Kind is a string value representing the REST resource this object represents.");
            let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
            own["properties"]["metadata"] = json!({"allOf": [{"$ref": format!("#/components/schemas/{meta}")}], "description": "Standard object's metadata."});
            schemas.insert(name.clone(), own);
            // ConfigMap stands for any built-in kind: its schemas include those of the metadata.
            if let Some(builtin) = schema::builtin_json("", "v1", "ConfigMap") {
                schemas.extend(builtin.schemas.into_iter().filter(|(key, _)| key.contains(".meta.v1.")));
            }
        }
        None => match schema::builtin_json(&resource.group, &resource.version, &resource.kind) {
            Some(builtin) => {
                name = builtin.name;
                schemas.extend(builtin.schemas);
            }
            None => {
                name = format!("io.k8s.api.{}.{}", resource.version, resource.kind);
                schemas.insert(name.clone(), json!({"type": "object"}));
            }
        },
    }
    if let Some(own) = schemas.get_mut(&name) {
        own["x-kubernetes-group-version-kind"] = kind;
    }
    name
}

fn add_paths(resource: &Resource, name: &str, paths: &mut Map<String, Value>) {
    let root = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}", join_version(&resource.group, &resource.version))
    };
    let folder = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{root}/{}", resource.plural)
    };
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let content = json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    let operation = |action: &str, parameters: &[&str], body: bool| {
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|p| json!({"name": p, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .collect();
        let mut operation = json!({
            "operationId": format!("{action}{}{}", resource.version, resource.kind),
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
        });
        if body {
            operation["requestBody"] = json!({"content": content});
        }
        operation
    };
    let write = ["dryRun", "fieldManager", "fieldValidation"];
    let mut collection = json!({"post": operation("post", &write, true)});
    if resource.rules != Rules::Review {
        collection["get"] = operation("list", &["labelSelector", "fieldSelector", "limit", "continue", "watch"], false);
        let patch = ["dryRun", "fieldManager", "fieldValidation", "force"];
        paths.insert(
            format!("{folder}/{{name}}"),
            json!({
                "get": operation("get", &[], false), "put": operation("put", &write, true),
                "patch": operation("patch", &patch, true), "delete": operation("delete", &["dryRun"], false),
            }),
        );
    }
    paths.insert(folder, collection);
}
