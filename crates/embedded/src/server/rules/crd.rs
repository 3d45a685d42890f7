//! CustomResourceDefinitions: their own defaults and checks, and the resources that they stand for.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::schema::Schema;
use crate::schema::error::FieldError;
use crate::server::kinds::{CrdOrigin, Resource, Rules, SchemaSource, join_version};
use crate::server::meta::{bad_label, bad_subdomain};
use crate::server::object;

/// Names that follow from others, and the conversion that there is.
pub fn defaults(crd: &mut Value) {
    let spec = &mut crd["spec"];
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    if !kind.is_empty() {
        if spec["names"]["singular"].as_str().unwrap_or_default().is_empty() {
            spec["names"]["singular"] = kind.to_lowercase().into();
        }
        if spec["names"]["listKind"].as_str().unwrap_or_default().is_empty() {
            spec["names"]["listKind"] = format!("{kind}List").into();
        }
    }
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
}

/// The status of a definition that nobody has looked at yet.
pub fn initial_status(crd: &mut Value) {
    let stored: Vec<&Value> = versions(crd).filter(|v| v["storage"] == true).map(|v| &v["name"]).collect();
    crd["status"] = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored});
}

/// The status of a definition whose names are its own, or `None` when it has that already.
pub fn established(crd: &Value, now: &str) -> Option<Value> {
    let mut status = crd["status"].clone();
    let condition = |kind: &str, reason: &str, message: &str| {
        let old = crd["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind);
        match old {
            Some(old) if old["status"] == "True" => old.clone(),
            _ => {
                json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now})
            }
        }
    };
    status["acceptedNames"] = crd["spec"]["names"].clone();
    status["conditions"] = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]);
    let mut stored = status["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in versions(crd).filter(|v| v["storage"] == true) {
        if !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    status["storedVersions"] = stored.into();
    (status != crd["status"]).then_some(status)
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd["spec"]["versions"].as_array().into_iter().flatten()
}

/// What is wrong with a definition.
pub fn validate(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &crd["spec"];
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let expected = format!("{plural}.{group}");
    if object::meta(crd, "name") != expected {
        errors.push(FieldError::invalid(
            "metadata.name",
            object::meta(crd, "name"),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(why) = bad_subdomain(&group) {
        errors.push(FieldError::invalid("spec.group", group.as_str(), why));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", group.as_str(), "should be a domain with at least one dot"));
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "Namespaced" | "Cluster" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        other => errors.push(FieldError::not_supported("spec.scope", other, &["Cluster", "Namespaced"])),
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(&spec["names"][key]);
        let field = format!("spec.names.{key}");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if let Some(why) = bad_label(&name.to_lowercase()) {
            errors.push(FieldError::invalid(field, name.as_str(), why));
        }
    }
    errors.extend(validate_versions(crd));
    if let Some(old) = old {
        for field in ["group", "scope"] {
            if old["spec"][field] != spec[field] {
                errors.push(FieldError::invalid(format!("spec.{field}"), spec[field].clone(), "field is immutable"));
            }
        }
    }
    errors
}

fn validate_versions(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = &crd["spec"]["versions"];
    let mut names: Vec<&str> = Vec::new();
    for (at, version) in versions(crd).enumerate() {
        let path = format!("spec.versions[{at}]");
        let name = version["name"].as_str().unwrap_or_default();
        if let Some(why) = bad_label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), name, why));
        }
        names.push(name);
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_null() {
            errors.push(FieldError::required(format!("{path}.schema.openAPIV3Schema"), "schemas are required"));
            continue;
        }
        if let Err(found) = Schema::from_json(schema) {
            errors.extend(found.into_iter().map(|mut e| {
                e.field = format!("{path}.schema.openAPIV3Schema.{}", e.field).trim_end_matches('.').to_owned();
                e
            }));
        }
    }
    let storing = versions(crd).filter(|v| v["storage"] == true).count();
    if storing != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            list.clone(),
            "must have exactly one version marked as storage version",
        ));
    }
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    if unique.len() != names.len() {
        errors.push(FieldError::invalid("spec.versions", list.clone(), "must contain unique version names"));
    }
    errors
}

/// The resources that a definition stands for, one a served version.
pub fn custom_resources(crd: &Value) -> Vec<Arc<Resource>> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let group = text(&spec["group"]);
    let plural = text(&spec["names"]["plural"]);
    let storage = versions(crd).find(|v| v["storage"] == true).map(|v| text(&v["name"])).unwrap_or_default();
    versions(crd)
        .filter(|version| version["served"] == true)
        .filter_map(|version| {
            let openapi = version["schema"]["openAPIV3Schema"].clone();
            let schema = Schema::from_json(&openapi).ok()?;
            let selectable = version["selectableFields"].as_array().into_iter().flatten();
            Some(Arc::new(Resource {
                group: group.clone(),
                version: text(&version["name"]),
                kind: text(&spec["names"]["kind"]),
                list_kind: text(&spec["names"]["listKind"]),
                plural: plural.clone(),
                singular: text(&spec["names"]["singular"]),
                short_names: words(&spec["names"]["shortNames"]),
                categories: words(&spec["names"]["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                stored: true,
                folder: format!("{group}/{plural}"),
                storage_version: join_version(&group, &storage),
                rules: Rules::Custom,
                status: !version["subresources"]["status"].is_null(),
                subresources: &[],
                selectable: selectable.map(|f| text(&f["jsonPath"]).trim_start_matches('.').to_owned()).collect(),
                schema: SchemaSource::Own(Arc::new(schema)),
                scale: crate::server::scale::Paths::parse(&version["subresources"]["scale"]).map(Arc::new),
                columns: version.get("additionalPrinterColumns").cloned().map(Arc::new),
                crd: Some(Arc::new(CrdOrigin {
                    name: object::meta(crd, "name").to_owned(),
                    openapi,
                    terminating: object::deleting(crd),
                })),
            }))
        })
        .collect()
}
