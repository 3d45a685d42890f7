//! From a body to an object of the kind that the path names: what it says it is, types, unknown and repeated fields,
//! defaults. What does not fit is refused in the words of the API server's decoder.

use serde_json::{Value, json};

use crate::kinds::Rules;
use crate::query::FieldValidation;
use crate::rules;
use crate::status::{ApiError, Result};
use crate::{Call, meta, object};
use knoll_kube_model::schema::FieldError;
use knoll_kube_model::{patch, schema};

/// Where an object comes from, which decides how it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The body of a create or an update.
    Body,
    /// What a JSON or merge patch made of the object.
    Patch,
    /// What an apply made of the object, which was checked as it was applied.
    Apply,
}

/// Takes an object in: checks that it is what it should be, drops what is unknown and fills in the defaults.
pub fn take(call: &Call, object: &mut Value, duplicates: &[String], source: Source) -> Result<()> {
    let resource = &call.resource;
    let kind = object["kind"].as_str().unwrap_or(&resource.kind).to_owned();
    let version = object["apiVersion"].as_str().unwrap_or(&call.api_version).to_owned();
    let as_sent = object.clone();
    let refuse = |why: &str| match source {
        Source::Patch => bad_patch(&as_sent, why),
        _ => {
            let version = version.rsplit('/').next().unwrap_or_default();
            ApiError::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
                resource.kind
            ))
        }
    };
    let custom = resource.rules == Rules::Custom;
    if custom {
        check_custom(call, &as_sent, &kind)?;
        if let Some(why) = schema::metadata_error(&object["metadata"]) {
            return Err(refuse(&why));
        }
    } else {
        if let Some(why) = wrong_kind(call, &version, &kind) {
            return Err(refuse(&why));
        }
        if let Some(why) = schema::type_error(&resource.group, &resource.version, &resource.kind, object) {
            return Err(refuse(&why));
        }
        object["apiVersion"] = call.api_version.as_str().into();
        object["kind"] = resource.kind.as_str().into();
    }
    check_namespace(call, object)?;
    let schema = resource.schema();
    let unknown = schema.prune(object);
    if !custom {
        schema.as_go_keeps(object);
    }
    meta::tidy(object);
    let complaints: Vec<String> = duplicates
        .iter()
        .map(|path| format!("duplicate field \"{path}\""))
        .chain(unknown.iter().map(|path| format!("unknown field \"{path}\"")))
        .collect();
    match call.query.field_validation() {
        FieldValidation::Strict if !complaints.is_empty() => {
            return Err(refuse(&format!("strict decoding error: {}", complaints.join(", "))));
        }
        FieldValidation::Warn => complaints.into_iter().for_each(|complaint| call.warn(complaint)),
        _ => {}
    }
    schema.apply_defaults(object);
    if !custom {
        schema::always(object, &patch::empty_object(&call.api_version, &resource.kind));
    }
    rules::defaults(resource, object);
    Ok(())
}

/// A patch made something of the object that it cannot be.
pub fn bad_patch(patched: &Value, why: &str) -> ApiError {
    let error = FieldError::invalid("patch", patched.to_string(), why);
    ApiError::invalid("", "", "", &[error])
}

fn check_custom(call: &Call, object: &Value, kind: &str) -> Result<()> {
    let resource = &call.resource;
    let sent = object["apiVersion"].as_str().unwrap_or_default();
    if sent != call.api_version {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version ({})",
            call.api_version
        )));
    }
    if kind != resource.kind {
        let error = FieldError::invalid("kind", kind, format!("must be {}", resource.kind));
        return Err(ApiError::invalid(&resource.group, kind, object::meta(object, "name"), &[error]));
    }
    Ok(())
}

/// Why an object that says it is of that version and kind cannot be one of the resource.
fn wrong_kind(call: &Call, version: &str, kind: &str) -> Option<String> {
    let resource = &call.resource;
    if version == call.api_version && kind == resource.kind {
        return None;
    }
    let (group, number) = version.split_once('/').unwrap_or(("", version));
    if schema::kinds().any(|known| known == (group, number, kind)) {
        let package = match resource.group.split('.').next() {
            Some("") | None => "core",
            Some(word) => word,
        };
        return Some(format!("converting ({number}.{kind}) to ({package}.{}): unknown conversion", resource.kind));
    }
    Some(format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:110\""))
}

/// The namespace in the object, where there is one, must be the one in the path.
pub fn check_namespace(call: &Call, object: &Value) -> Result<()> {
    let namespace = object::meta(object, "namespace");
    match &call.target.namespace {
        Some(wanted) if !namespace.is_empty() && namespace != wanted => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        None if call.resource.namespaced && call.target.name.is_none() => {
            Err(ApiError::bad_request("an empty namespace may not be set during creation"))
        }
        _ => Ok(()),
    }
}

/// The name in the object must be the one in the path.
pub fn check_name(call: &Call, object: &Value) -> Result<()> {
    let (name, named) = (call.name()?, object::meta(object, "name"));
    if named.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if named != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// The reference of an object in the words of its store, for messages about it.
pub fn storage_key(call: &Call, name: &str) -> String {
    let resource = &call.resource;
    let group = match resource.rules {
        Rules::Custom | Rules::Crd => format!("{}/", resource.group),
        _ => String::new(),
    };
    let place = call.target.namespace.as_deref().map_or_else(String::new, |ns| format!("{ns}/"));
    format!("/registry/{group}{}/{place}{name}", resource.plural)
}

/// `details` of a Status that is about nothing in particular.
pub fn no_details() -> Value {
    json!({})
}
