//! The CustomResourceDefinitions of the kinds, as they are installed.
//!
//! What `schemars` derives is a schema for serde; what Kubernetes wants differs in a few points, and
//! [`crds`] puts them right in one place. `Kind::crd()` of the single kinds lacks that: install [`crds`].

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube_core::CustomResourceExt;

use crate::{Approval, Atom, AtomVersion, Policy, Run, Stack, Workspace};

/// The CustomResourceDefinitions of all kinds.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        Workspace::crd(),
        Run::crd(),
        Stack::crd(),
        Approval::crd(),
        Policy::crd(),
        Atom::crd(),
        AtomVersion::crd(),
    ];
    for crd in &mut crds {
        let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
        for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
            schema.title = None;
            for (name, part) in schema.properties.iter_mut().flatten() {
                // A default in a status would be written by the API server, not by the controller that knows.
                tidy(part, if name == "status" { Defaults::None } else { Defaults::Meant });
            }
        }
    }
    crds
}

/// Which defaults a schema keeps.
#[derive(Clone, Copy, PartialEq)]
enum Defaults {
    None,
    /// All but the empty ones: they would fill every stored object with `[]` and `false`.
    Meant,
}

/// Adds the values of an enum and the default to the description, for `kubectl explain`.
fn document(schema: &mut JSONSchemaProps, defaults: Defaults) {
    let values = schema.title.take();
    let default = match schema.default.as_ref().map(|json| &json.0) {
        Some(serde_json::Value::String(text)) => Some(text.clone()),
        Some(value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => Some(value.to_string()),
        Some(_) => None,
        None => (schema.type_.as_deref() == Some("boolean")).then(|| "false".to_owned()),
    };
    let default = default.filter(|_| defaults == Defaults::Meant).map(|value| format!("Defaults to `{value}`."));
    let description = schema.description.get_or_insert_default();
    for addition in values.into_iter().chain(default.filter(|_| !description.contains("efaults to"))) {
        let space = match description.trim_end() {
            "" => "",
            text if text.ends_with('.') => " ",
            _ => ". ",
        };
        *description = format!("{}{space}{addition}", description.trim_end());
    }
    schema.description = schema.description.take().filter(|description| !description.is_empty());
}

fn tidy(schema: &mut JSONSchemaProps, defaults: Defaults) {
    // An absent field is absent; a null in its place is a mistake, and would be one more case in every rule.
    if schema.x_kubernetes_preserve_unknown_fields.is_none() {
        schema.nullable = None;
    }
    // The API server warns about formats that it does not know; `minimum: 0` stays and says the rest.
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = Some("int64".to_owned());
    }
    let is_meant = |value: &serde_json::Value| match value {
        serde_json::Value::Null | serde_json::Value::Bool(false) => false,
        serde_json::Value::Array(items) => !items.is_empty(),
        serde_json::Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    schema.default = schema.default.take().filter(|json| defaults == Defaults::Meant && is_meant(&json.0));
    document(schema, defaults);

    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        tidy(property, defaults);
    }
    match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(items)) => tidy(items, defaults),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(|item| tidy(item, defaults)),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = schema.additional_properties.as_mut() {
        tidy(values, defaults);
    }
}
