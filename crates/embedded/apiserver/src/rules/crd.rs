//! CustomResourceDefinitions: their own defaults and checks, and the resources that they stand for.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::{CrdOrigin, Resource, Rules, SchemaSource, join_version};
use crate::meta::bad_subdomain;
use crate::object;
use knoll_kube_model::schema::FieldError;
use knoll_kube_model::schema::Schema;

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
    if old.is_none() && object::meta(crd, "name") != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", object::meta(crd, "name"), why));
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
    if spec["preserveUnknownFields"] == true && old.is_none() {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", true, why));
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let name = text(&spec["names"][key]);
        let field = format!("spec.names.{key}");
        let shown = if matches!(key, "kind" | "listKind") { name.to_lowercase() } else { name.clone() };
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if let Some(why) = bad_word(&shown) {
            errors.push(FieldError::invalid(field, name.as_str(), why));
        }
    }
    errors.extend(validate_versions(crd));
    errors.extend(validate_stored(crd, old));
    match old {
        Some(old) => errors.extend(validate_change(spec, &old["spec"], &old["status"])),
        None => errors.extend(validate_approval(crd, &group)),
    }
    errors
}

/// What is wrong with a word that is part of a name in DNS.
fn bad_word(word: &str) -> Option<String> {
    if word.len() > 63 {
        return Some("must be no more than 63 characters".to_owned());
    }
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(legal) && !word.ends_with('-');
    (!good).then(|| "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')".to_owned())
}

/// What may not change once it is there.
fn validate_change(spec: &Value, old: &Value, status: &Value) -> Vec<FieldError> {
    let established = status["conditions"]
        .as_array()
        .is_some_and(|list| list.iter().any(|c| c["type"] == "Established" && c["status"] == "True"));
    let fixed = [("group", true), ("names.plural", true), ("scope", established), ("names.kind", established)];
    let at = |spec: &Value, path: &str| path.split('.').fold(spec.clone(), |value, key| value[key].clone());
    let changed = fixed.iter().filter(|(path, fixed)| *fixed && at(spec, path) != at(old, path));
    changed.map(|(path, _)| FieldError::invalid(format!("spec.{path}"), at(spec, path), "field is immutable")).collect()
}

/// Groups of Kubernetes' own need a word of those who own them.
fn validate_approval(crd: &Value, group: &str) -> Option<FieldError> {
    const APPROVED: &str = "api-approved.kubernetes.io";
    let own = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    let approved = crd["metadata"]["annotations"][APPROVED].as_str().is_some_and(|a| !a.is_empty());
    ((own("k8s.io") || own("kubernetes.io")) && !approved).then(|| {
        let why = format!(
            "protected groups must have approval annotation \"{APPROVED}\", see https://github.com/kubernetes/enhancements/pull/1111"
        );
        FieldError::required(format!("metadata.annotations[{APPROVED}]"), why)
    })
}

/// Every version in which objects may be stored must stay.
fn validate_stored(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if old.is_none() {
        let storing = versions(crd).any(|v| v["storage"] == true);
        let why = "must have at least one stored version";
        return if storing { Vec::new() } else { vec![FieldError::invalid("status.storedVersions", Value::Null, why)] };
    }
    let stored = crd["status"]["storedVersions"].as_array().into_iter().flatten().enumerate();
    stored
        .filter(|(_, name)| !versions(crd).any(|v| v["name"] == **name))
        .map(|(at, name)| {
            let name = name.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            FieldError::invalid(format!("status.storedVersions[{at}]"), name, why)
        })
        .collect()
}

/// What all versions have alike is told of the definition, not of each of them.
fn shared(crd: &Value, pointer: &str) -> bool {
    let mut all = versions(crd).map(|v| v.pointer(pointer));
    let first = all.next();
    first.is_some() && all.all(|other| Some(other) == first)
}

fn validate_versions(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    let (one_schema, one_look) = (shared(crd, "/schema"), shared(crd, "/additionalPrinterColumns"));
    let one_part = shared(crd, "/subresources");
    for (at, version) in versions(crd).enumerate() {
        let path = format!("spec.versions[{at}]");
        let name = version["name"].as_str().unwrap_or_default();
        if let Some(why) = bad_word(name) {
            if at == 0 {
                errors.push(FieldError::invalid("spec.version", name, why.clone()));
            }
            errors.push(FieldError::invalid(format!("{path}.name"), name, why));
        }
        names.push(name);
        if at == 0 || !one_look {
            let place = if one_look { "spec".to_owned() } else { path.clone() };
            errors.extend(validate_columns(&version["additionalPrinterColumns"], &place));
        }
        if at == 0 || !one_part {
            let place = if one_part { "spec".to_owned() } else { path.clone() };
            errors.extend(validate_scale(&version["subresources"]["scale"], &place));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_null() {
            errors.push(FieldError::required(format!("{path}.schema.openAPIV3Schema"), ""));
            continue;
        }
        if at > 0 && one_schema {
            continue;
        }
        if let Err(found) = Schema::shared(schema) {
            errors.extend(found.into_iter().map(|mut e| {
                if !one_schema {
                    e.field = e.field.replacen("spec.validation", &format!("{path}.schema"), 1);
                }
                e
            }));
        }
    }
    let storing = versions(crd).filter(|v| v["storage"] == true).count();
    let shown = || go_versions(crd, one_schema, one_look, one_part);
    if storing != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", shown(), why));
    }
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    if unique.len() != names.len() {
        errors.push(FieldError::invalid("spec.versions", shown(), "must contain unique version names"));
    }
    errors
}

/// The versions as the API server quotes them.
fn go_versions(crd: &Value, one_schema: bool, one_look: bool, one_part: bool) -> Value {
    let Some(list) = crd["spec"]["versions"].as_array() else { return Value::Null };
    let part = |version: &Value, key: &str, hidden: bool| {
        if hidden { Value::Null } else { version.get(key).cloned().unwrap_or_default() }
    };
    list.iter()
        .map(|v| {
            json!({
                "Name": v["name"], "Served": v["served"] == true, "Storage": v["storage"] == true,
                "Deprecated": v["deprecated"] == true, "DeprecationWarning": v["deprecationWarning"],
                "Schema": part(v, "schema", one_schema), "SelectableFields": v["selectableFields"],
                "AdditionalPrinterColumns": part(v, "additionalPrinterColumns", one_look),
                "Subresources": part(v, "subresources", one_part),
            })
        })
        .collect()
}

fn validate_columns(columns: &Value, place: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = format!("{place}.additionalPrinterColumns[{at}]");
        let text = |key: &str| column[key].as_str().unwrap_or_default();
        if text("name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let kinds = ["boolean", "date", "integer", "number", "string"];
        if text("type").is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), format!("must be one of {}", kinds.join(","))));
        } else if !kinds.contains(&text("type")) {
            let why = format!("must be one of {}", kinds.join(","));
            errors.push(FieldError::invalid(format!("{path}.type"), text("type"), why));
        }
        errors.extend(simple_path(text("jsonPath"), &format!("{path}.JSONPath")));
    }
    errors
}

fn validate_scale(scale: &Value, place: &str) -> Vec<FieldError> {
    if scale.is_null() {
        return Vec::new();
    }
    let text = |key: &str| scale[key].as_str().unwrap_or_default();
    let path = |key: &str| format!("{place}.subresources.scale.{key}");
    let mut errors = Vec::new();
    for (key, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let found = simple_path(text(key), &path(key));
        if found.is_none() && !text(key).starts_with(root) {
            let why = format!("should be a json path under {}", root.trim_end_matches('.'));
            errors.push(FieldError::invalid(path(key), text(key), why));
        }
        errors.extend(found);
    }
    errors
}

fn simple_path(path: &str, field: &str) -> Option<FieldError> {
    if path.is_empty() {
        return Some(FieldError::required(field, ""));
    }
    (!path.starts_with('.')).then(|| FieldError::invalid(field, path, "must be a simple json path starting with ."))
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
            let schema = Schema::shared(&openapi).ok()?;
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
                schema: SchemaSource::Own(schema),
                scale: crate::scale::Paths::parse(&version["subresources"]["scale"]).map(Arc::new),
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
