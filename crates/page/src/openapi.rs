//! The description of the JSON API.

use std::sync::LazyLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::act::{DecisionRequest, DecisionResult};
use crate::logs::LogView;
use crate::view::graph::GraphView;
use crate::view::home::HomeView;
use crate::view::lists::ListView;
use crate::view::objects::ObjectView;
use crate::view::plan::PlanView;
use crate::view::run::RunView;

static DOCUMENT: LazyLock<Value> = LazyLock::new(build);

/// The OpenAPI document of all routes under `/api`.
pub fn document() -> Value {
    DOCUMENT.clone()
}

fn build() -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let names = json!([parameter("namespace", "path"), parameter("name", "path")]);
    let namespace = json!([parameter("namespace", "query")]);
    let query = json!(["namespace", "q", "phase", "page"].map(|name| parameter(name, "query")));
    let mut paths = serde_json::Map::new();
    let mut read = |path: &str, summary: &str, parameters: &Value, schema: Value| {
        paths.insert(path.to_owned(), json!({"get": operation(summary, parameters, &schema)}));
    };
    read("/api/home", "What waits, failed, drifted and runs", &namespace, reference::<HomeView>(&mut generator));
    read("/api/graph", "The dependencies of stacks", &namespace, reference::<GraphView>(&mut generator));
    for kind in ["runs", "stacks", "workspaces", "atoms"] {
        read(&format!("/api/{kind}"), "One page of a list", &query, reference::<ListView>(&mut generator));
    }
    read("/api/runs/{namespace}/{name}", "A run", &names, reference::<RunView>(&mut generator));
    read("/api/runs/{namespace}/{name}/plan", "The plan of a run", &names, reference::<PlanView>(&mut generator));
    read("/api/runs/{namespace}/{name}/log", "The log of a run, by step", &names, reference::<LogView>(&mut generator));
    for kind in ["stacks", "workspaces", "atoms"] {
        let path = format!("/api/{kind}/{{namespace}}/{{name}}");
        read(&path, "An object and what belongs to it", &names, reference::<ObjectView>(&mut generator));
    }
    let events = json!({"get": {"summary": "Live events of a run: run, log, end", "parameters": names,
        "responses": {"200": {"description": "Server-sent events", "content": {"text/event-stream": {}}}}}});
    paths.insert("/api/runs/{namespace}/{name}/events".to_owned(), events);
    let mut decide = operation("Approve or discard a plan", &names, &reference::<DecisionResult>(&mut generator));
    let request = reference::<DecisionRequest>(&mut generator);
    decide["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": request}}});
    paths.insert("/api/runs/{namespace}/{name}/decision".to_owned(), json!({"post": decide}));
    let cancel = json!({"post": {"summary": "Cancel a run", "parameters": names,
        "responses": {"204": {"description": "The cancellation was requested"}}}});
    paths.insert("/api/runs/{namespace}/{name}/cancel".to_owned(), cancel);
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Knoll",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the web page shows and does, with the rights of the user whose bearer token is sent.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn reference<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn parameter(name: &str, place: &str) -> Value {
    json!({"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}})
}

fn operation(summary: &str, parameters: &Value, schema: &Value) -> Value {
    json!({"summary": summary, "parameters": parameters, "responses": {
        "200": {"description": "The answer", "content": {"application/json": {"schema": schema}}},
        "401": {"description": "No token, or one that the cluster does not accept"},
        "403": {"description": "The user may not do this"},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_document_has_its_schema() {
        let document = document();
        let text = document.to_string();
        for name in text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
        assert!(document["components"]["schemas"]["RunView"].is_object());
        assert_eq!(document["paths"].as_object().map(serde_json::Map::len), Some(15));
    }
}
