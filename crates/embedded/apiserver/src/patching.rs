//! `PATCH` in any of its four forms: JSON, merge, strategic merge and apply.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::decode::Decoded;
use crate::envelope::{self, Source};
use crate::kinds::{Resource, Rules};
use crate::query::FieldValidation;
use crate::rules::drop_field;
use crate::status::{ApiError, Result};
use crate::write::{self, ATTEMPTS, Origin, Written};
use crate::{Call, Server, body, object, options};
use knoll_kube_model::patch;
use knoll_kube_model::schema::type_name;

/// A server-side apply: who applies what, and whether it takes fields from others.
struct Apply<'a> {
    manager: &'a str,
    force: bool,
    applied: Value,
}

/// `PATCH` of an object.
pub async fn patch(server: &Server, call: &Call, bytes: Bytes) -> Result<Written> {
    let name = call.name()?;
    let resource = &call.resource;
    let form = call.content_type();
    let manager = call.manager();
    let applies = form == "application/apply-patch+yaml";
    if !applies && !known(resource, form) {
        return Err(unknown(resource));
    }
    options::check(if applies { options::Kind::Apply } else { options::Kind::Patch }, &call.query)?;
    let apply = if applies { Some(parse_apply(call, &bytes, &manager)?) } else { None };
    // Whether there is anything to patch is told first.
    let change = match &apply {
        Some(_) => Ok(Decoded::default()),
        None => body::parse_patch(&bytes).and_then(|decoded| shape(form, &decoded.value).map(|()| decoded)),
    };
    for _ in 0..ATTEMPTS {
        let old = server.read(resource, call.target.namespace.as_deref(), name)?;
        let (old, mut patched) = match (old, &apply) {
            (None, Some(apply)) if call.target.subresource.is_none() => {
                match create_by_apply(server, call, apply).await {
                    // Somebody else was faster, so it is an object to patch by now.
                    Err(error) if error.reason == "AlreadyExists" => continue,
                    created => return created,
                }
            }
            (None, _) => return Err(ApiError::not_found(resource.subject(name))),
            (Some(old), Some(apply)) => {
                let merged = run_apply(server, call, Some(&old), apply)?;
                (old, merged)
            }
            (Some(old), None) => {
                let change = change.as_ref().map_err(Clone::clone)?;
                let patched = patched(call, &old, form, &change.value)?;
                strict_operations(call, form, &change.value, &change.duplicates, &patched)?;
                (old, patched)
            }
        };
        let repeated: &[String] = match &change {
            Ok(change) if form != JSON => &change.duplicates,
            _ => &[],
        };
        envelope::take(call, &mut patched, repeated, if applies { Source::Apply } else { Source::Patch })?;
        envelope::check_name(call, &patched)?;
        let explicit = object::meta(&patched, "resourceVersion") != object::meta(&old, "resourceVersion");
        let origin = if applies { Origin::Apply } else { Origin::Update(&manager) };
        let next = write::next_version(server, call, &old, patched, &origin)?;
        if let Some(written) = write::store_next(server, call, old, next).await? {
            return Ok(written);
        }
        if explicit {
            return Err(ApiError::modified(resource.subject(name)));
        }
    }
    Err(write::too_busy(resource, name))
}

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn known(resource: &Resource, form: &str) -> bool {
    matches!(form, JSON | MERGE) || (form == STRATEGIC && resource.rules != Rules::Custom)
}

/// The answer to a patch of a form that the resource does not take.
pub fn unknown(resource: &Resource) -> ApiError {
    if resource.rules == Rules::Custom {
        return ApiError::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {JSON}, {MERGE}, application/apply-patch+yaml"
        ));
    }
    let mut error = ApiError::unsupported_media_type("415: Unsupported Media Type");
    error.details = Some(envelope::no_details());
    error
}

/// A patch must be a list of operations, or an object.
fn shape(form: &str, change: &Value) -> Result<()> {
    let into = match (form, change) {
        (JSON, Value::Array(_)) | (MERGE | STRATEGIC, Value::Object(_)) => return Ok(()),
        (JSON, _) => "[]handlers.jsonPatchOp",
        _ => "map[string]interface {}",
    };
    let prefix = if form == STRATEGIC { "" } else { "error decoding patch: " };
    let found = type_name(change);
    Err(ApiError::bad_request(format!("{prefix}json: cannot unmarshal {found} into Go value of type {into}")))
}

/// Fields of operations that are repeated or mean nothing, which only strict clients hear of as an error.
fn strict_operations(call: &Call, form: &str, change: &Value, duplicates: &[String], patched: &Value) -> Result<()> {
    if form != JSON {
        return Ok(());
    }
    let mut complaints: Vec<String> =
        duplicates.iter().map(|path| format!("json patch duplicate field \"{path}\"")).collect();
    for (at, operation) in change.as_array().into_iter().flatten().enumerate() {
        let fields = operation.as_object().into_iter().flatten();
        complaints.extend(
            fields
                .filter(|(key, _)| !matches!(key.as_str(), "op" | "path" | "from" | "value"))
                .map(|(key, _)| format!("json patch unknown field \"[{at}].{key}\"")),
        );
    }
    match call.query.field_validation() {
        FieldValidation::Strict if !complaints.is_empty() => {
            Err(envelope::bad_patch(patched, &format!("strict decoding error: {}", complaints.join(", "))))
        }
        FieldValidation::Warn => {
            complaints.into_iter().for_each(|complaint| call.warn(complaint));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn patched(call: &Call, old: &Value, form: &str, body: &Value) -> Result<Value> {
    let resource = &call.resource;
    match form {
        JSON => patch::json_patch(old, body),
        MERGE => patch::merge_patch(old, body),
        _ => patch::strategic_merge_patch(old, body, &resource.schema()),
    }
    .map_err(|error| failed(&error))
}

/// The answer to a patch that cannot be carried out.
pub fn failed(error: &patch::PatchError) -> ApiError {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::BAD_REQUEST);
    let reason = match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        _ => "",
    };
    if code == StatusCode::UNPROCESSABLE_ENTITY {
        // Kubernetes does not say which operation failed.
        let mut refused = ApiError::new(code, reason, "the server rejected our request due to an error in our request");
        refused.details = Some(envelope::no_details());
        return refused;
    }
    ApiError::new(code, reason, error.to_string())
}

fn parse_apply<'a>(call: &Call, bytes: &[u8], manager: &'a str) -> Result<Apply<'a>> {
    let applied = body::parse_apply(bytes, call.query.field_validation())?;
    Ok(Apply { manager, force: call.query.flag("force"), applied })
}

fn run_apply(server: &Server, call: &Call, live: Option<&Value>, apply: &Apply<'_>) -> Result<Value> {
    let mut applied = apply.applied.clone();
    // An apply only ever speaks of its half of the object.
    let writer = write::writer(server, call, apply.manager);
    let schema = call.resource.schema();
    patch::precheck(live, &applied, &schema, &writer, &call.resource.kind).map_err(|e| refused(&e))?;
    if call.resource.status {
        match call.target.subresource.as_deref() {
            Some("status") => keep_only(&mut applied, "status"),
            _ => drop_field(&mut applied, "status"),
        }
    }
    patch::apply(live, &applied, &schema, &writer, apply.force).map_err(|e| refused(&e))
}

fn refused(error: &patch::ApplyError) -> ApiError {
    match error {
        patch::ApplyError::Conflicts(conflicts) => {
            let mut error = ApiError::new(StatusCode::CONFLICT, "Conflict", patch::message(conflicts));
            error.details = Some(json!({"causes": patch::causes(conflicts)}));
            error
        }
        patch::ApplyError::Invalid(message) => ApiError::bad_request(message.clone()),
        patch::ApplyError::Untyped(message) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message.clone()),
    }
}

fn keep_only(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.retain(|key, _| key == field || matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
    }
}

async fn create_by_apply(server: &Server, call: &Call, apply: &Apply<'_>) -> Result<Written> {
    let merged = run_apply(server, call, None, apply)?;
    let uid = object::meta(&apply.applied, "uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(ApiError::conflict(call.resource.subject(call.name()?), &why));
    }
    envelope::check_namespace(call, &merged)?;
    envelope::check_name(call, &merged)?;
    if !object::meta(&apply.applied, "resourceVersion").is_empty() {
        return Err(ApiError::not_found(call.resource.subject(call.name()?)));
    }
    let object = write::prepare_create(server, call, merged.into(), Source::Apply)?;
    write::store_new(server, call, object).await
}
