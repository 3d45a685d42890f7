//! Create, update and patch: from a body to a stored object.
//!
//! Every write reads the object, computes what it becomes, and stores it on the condition that it is still what was
//! read. Where the client named no version, a lost race is simply run again.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::patch::{self, Writer};
use crate::schema::error::{FieldError, FieldErrorKind};
use crate::server::kinds::{Resource, Rules};
use crate::server::query::FieldValidation;
use crate::server::rules::{self, drop_field};
use crate::server::status::{ApiError, Result};
use crate::server::{Call, Server, body, delete, meta, object};
use crate::store::{self, Write};

/// How often a write without a version of its own is run again when others are faster.
const ATTEMPTS: usize = 64;

/// What a write answers: the object, and warnings for the client.
pub struct Written {
    /// 200 or 201.
    pub code: StatusCode,
    /// The object, with its `resourceVersion`.
    pub object: Value,
    /// `Warning` headers.
    pub warnings: Vec<String>,
}

/// `POST` of a new object.
pub async fn create(server: &Server, call: &Call, body: Value) -> Result<Written> {
    let (object, warnings) = prepare_create(server, call, body, None)?;
    store_new(server, call, object, warnings).await
}

fn prepare_create(
    server: &Server,
    call: &Call,
    mut object: Value,
    applied: Option<&Apply<'_>>,
) -> Result<(Value, Vec<String>)> {
    let resource = &call.resource;
    check_envelope(call, &object)?;
    if resource.crd.as_ref().is_some_and(|c| c.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", why));
    }
    if !object::meta(&object, "resourceVersion").is_empty() && applied.is_none() {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    for key in ["uid", "resourceVersion", "selfLink", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        object::set_meta(&mut object, key, None);
    }
    if applied.is_none() {
        object::set_meta(&mut object, "managedFields", None);
    }
    if let Some(namespace) = &call.target.namespace {
        object::set_meta(&mut object, "namespace", Some(namespace.as_str().into()));
        check_namespace(server, call, namespace)?;
    }
    if object::meta(&object, "name").is_empty() && !object::meta(&object, "generateName").is_empty() {
        let name = meta::generate_name(object::meta(&object, "generateName"));
        object::set_meta(&mut object, "name", Some(name.into()));
    }
    if resource.rules == Rules::Custom && resource.status {
        drop_field(&mut object, "status");
    }
    let warnings = clean(call, &mut object)?;
    object::set_meta(&mut object, "uid", Some(uuid::Uuid::new_v4().to_string().into()));
    object::set_meta(&mut object, "creationTimestamp", Some(server.now_text().into()));
    if resource.has_generation() {
        object::set_meta(&mut object, "generation", Some(1.into()));
    }
    rules::prepare_create(resource, &mut object, server.node_name());
    if resource.rules == Rules::Pod {
        check_account(server, call, &object)?;
    }
    validate(resource, &object, None)?;
    rules::initial_status(resource, &mut object);
    if applied.is_none() {
        let manager = call.manager();
        patch::track_update(None, &mut object, &resource.schema(), &writer(server, call, &manager));
    }
    server.admit(call, "CREATE", Some(&object), None)?;
    Ok((object, warnings))
}

async fn store_new(server: &Server, call: &Call, mut object: Value, warnings: Vec<String>) -> Result<Written> {
    let name = object::meta(&object, "name").to_owned();
    let code = StatusCode::CREATED;
    if call.query.dry_run()? {
        if server.store.get(&call.key(&name)).map_err(ApiError::internal)?.is_some() {
            return Err(ApiError::already_exists(call.resource.subject(&name)));
        }
        return Ok(Written { code, object, warnings });
    }
    let value = stored(&call.resource, &object);
    match server.store.write(Write::Create { key: call.key(&name), value }).await {
        Ok(revision) => {
            object::set_meta(&mut object, "resourceVersion", Some(revision.to_string().into()));
            Ok(Written { code, object, warnings })
        }
        Err(store::Error::Exists) => Err(ApiError::already_exists(call.resource.subject(&name))),
        Err(error) => Err(store_error(error)),
    }
}

/// `PUT` of a whole object.
pub async fn update(server: &Server, call: &Call, body: Value) -> Result<Written> {
    let name = call.name()?;
    check_envelope(call, &body)?;
    let named = object::meta(&body, "name");
    if !named.is_empty() && named != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({name})"
        )));
    }
    let resource = &call.resource;
    let version = object::meta(&body, "resourceVersion").to_owned();
    for _ in 0..ATTEMPTS {
        let Some(old) = server.read(resource, call.target.namespace.as_deref(), name)? else {
            if resource.create_on_update() && call.target.subresource.is_none() && version.is_empty() {
                let mut body = body;
                object::set_meta(&mut body, "name", Some(name.into()));
                return create(server, call, body).await;
            }
            return Err(ApiError::not_found(resource.subject(name)));
        };
        if version.is_empty() && !resource.unconditional_update() {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            return Err(ApiError::invalid(&resource.group, &resource.kind, name, &[error]));
        }
        let manager = call.manager();
        let next = next_version(server, call, &old, body.clone(), &Origin::Update(&manager))?;
        if let Some(written) = store_next(server, call, old, next).await? {
            return Ok(written);
        }
        if !version.is_empty() {
            return Err(ApiError::modified(resource.subject(name)));
        }
    }
    Err(too_busy(resource, name))
}

/// A server-side apply: who applies what, and whether it takes fields from others.
struct Apply<'a> {
    manager: &'a str,
    force: bool,
    applied: Value,
}

/// `PATCH` in any of the four forms.
pub async fn patch(server: &Server, call: &Call, body: Bytes) -> Result<Written> {
    let name = call.name()?;
    let resource = &call.resource;
    let form = call.content_type();
    let manager = call.manager();
    let apply = match form {
        "application/apply-patch+yaml" | "application/apply-patch+json" => Some(parse_apply(call, &body, &manager)?),
        _ => None,
    };
    let change = if apply.is_some() { Value::Null } else { body::parse_patch(&body)? };
    for _ in 0..ATTEMPTS {
        let old = server.read(resource, call.target.namespace.as_deref(), name)?;
        let (old, mut patched) = match (old, &apply) {
            (None, Some(apply)) if call.target.subresource.is_none() => {
                return create_by_apply(server, call, apply).await;
            }
            (None, _) => return Err(ApiError::not_found(resource.subject(name))),
            (Some(old), Some(apply)) => {
                let merged = run_apply(server, call, Some(&old), apply)?;
                (old, merged)
            }
            (Some(old), None) => {
                let patched = patched(call, &old, form, &change)?;
                (old, patched)
            }
        };
        check_envelope(call, &patched)?;
        if object::meta(&patched, "name") != name {
            // The name of an object is its address: a patch cannot move it.
            object::set_meta(&mut patched, "name", Some(name.into()));
        }
        let explicit = object::meta(&patched, "resourceVersion") != object::meta(&old, "resourceVersion");
        let origin = if apply.is_some() { Origin::Apply } else { Origin::Update(&manager) };
        let next = next_version(server, call, &old, patched, &origin)?;
        if let Some(written) = store_next(server, call, old, next).await? {
            return Ok(written);
        }
        if explicit {
            return Err(ApiError::modified(resource.subject(name)));
        }
    }
    Err(too_busy(resource, name))
}

fn patched(call: &Call, old: &Value, form: &str, body: &Value) -> Result<Value> {
    let resource = &call.resource;
    match form {
        "application/json-patch+json" => patch::json_patch(old, body),
        "application/merge-patch+json" => patch::merge_patch(old, body),
        "application/strategic-merge-patch+json" if resource.rules != Rules::Custom => {
            patch::strategic_merge_patch(old, body, &resource.schema())
        }
        other => {
            let known = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            let known = if resource.rules == Rules::Custom {
                known.to_owned()
            } else {
                known.replacen(", application/apply", ", application/strategic-merge-patch+json, application/apply", 1)
            };
            return Err(ApiError::unsupported_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: {known} (got `{other}`)"
            )));
        }
    }
    .map_err(|error| patch_error(&error))
}

fn patch_error(error: &patch::PatchError) -> ApiError {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::BAD_REQUEST);
    let reason = match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        _ => "",
    };
    ApiError::new(code, reason, error.to_string())
}

fn parse_apply<'a>(call: &Call, body: &[u8], manager: &'a str) -> Result<Apply<'a>> {
    if call.query.get("fieldManager").is_empty() {
        let message =
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message));
    }
    let mut applied = body::parse_yaml(body)?;
    check_envelope(call, &applied)?;
    if applied["apiVersion"].is_null() || applied["kind"].is_null() {
        return Err(ApiError::bad_request("apply patches must name `apiVersion` and `kind`"));
    }
    if applied["metadata"].get("managedFields").is_some_and(|m| !m.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let name = call.name()?;
    object::set_meta(&mut applied, "name", Some(name.into()));
    if let Some(namespace) = &call.target.namespace {
        object::set_meta(&mut applied, "namespace", Some(namespace.as_str().into()));
    }
    Ok(Apply { manager, force: call.query.flag("force"), applied })
}

fn run_apply(server: &Server, call: &Call, live: Option<&Value>, apply: &Apply<'_>) -> Result<Value> {
    let name = call.name()?;
    let mut applied = apply.applied.clone();
    // An apply only ever speaks of its half of the object.
    if call.resource.status {
        match call.target.subresource.as_deref() {
            Some("status") => keep_only(&mut applied, "status"),
            _ => drop_field(&mut applied, "status"),
        }
    }
    let mut checked = applied.clone();
    let unknown = call.resource.schema().prune(&mut checked);
    if call.query.field_validation()? == FieldValidation::Strict
        && let Some(error) = strict_error(&unknown)
    {
        return Err(error);
    }
    let result =
        patch::apply(live, &checked, &call.resource.schema(), &writer(server, call, apply.manager), apply.force);
    result.map_err(|error| match error {
        patch::ApplyError::Conflicts(conflicts) => {
            let mut error = ApiError::new(StatusCode::CONFLICT, "Conflict", patch::conflict::message(&conflicts));
            error.details = Some(json!({
                "name": name, "kind": call.resource.plural, "causes": patch::conflict::causes(&conflicts),
            }));
            if !call.resource.group.is_empty()
                && let Some(details) = &mut error.details
            {
                details["group"] = call.resource.group.as_str().into();
            }
            error
        }
        patch::ApplyError::Invalid(message) => ApiError::bad_request(message),
        patch::ApplyError::Untyped(message) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message),
    })
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
    if !object::meta(&apply.applied, "resourceVersion").is_empty() {
        return Err(ApiError::not_found(call.resource.subject(call.name()?)));
    }
    let (object, warnings) = prepare_create(server, call, merged, Some(apply))?;
    store_new(server, call, object, warnings).await
}

/// Whose write it is, for the record of who owns which field.
enum Origin<'a> {
    /// A plain write by that manager.
    Update(&'a str),
    /// An apply, whose record is in the object already.
    Apply,
}

/// What an object becomes, and what the client must hear of it.
struct Next {
    object: Value,
    warnings: Vec<String>,
    changed: bool,
}

fn next_version(server: &Server, call: &Call, old: &Value, new: Value, origin: &Origin<'_>) -> Result<Next> {
    let resource = &call.resource;
    let name = object::meta(old, "name");
    check_version(resource, old, &new)?;
    let mut new = new;
    let warnings = clean(call, &mut new)?;
    match call.target.subresource.as_deref() {
        Some("status") => {
            let mut whole = old.clone();
            whole["status"] = new["status"].take();
            if whole["status"].is_null() {
                drop_field(&mut whole, "status");
            }
            whole["metadata"]["managedFields"] = new["metadata"]["managedFields"].take();
            new = whole;
        }
        Some("finalize") => {
            let mut whole = old.clone();
            whole["spec"]["finalizers"] = new["spec"]["finalizers"].take();
            new = whole;
        }
        Some(_) => return Err(ApiError::no_such_resource()),
        None if resource.status => match old.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => drop_field(&mut new, "status"),
        },
        None => {}
    }
    if resource.rules == Rules::Namespace && call.target.subresource.as_deref() != Some("finalize") {
        new["spec"] = old["spec"].clone();
    }
    keep_identity(old, &mut new);
    meta::tidy(&mut new);
    if call.target.subresource.is_none() {
        rules::prepare_update(resource, &mut new);
    }
    if resource.has_generation() {
        let grown = object_generation(old) + i64::from(counts(old) != counts(&new));
        object::set_meta(&mut new, "generation", Some(grown.into()));
    }
    let mut errors = meta::validate_update(old, &new);
    errors.extend(meta::validate(resource, &new));
    if errors.is_empty() {
        validate(resource, &new, Some(old))?;
    } else {
        return Err(ApiError::invalid(&resource.group, &resource.kind, name, &errors));
    }
    if let Origin::Update(manager) = origin {
        patch::track_update(Some(old), &mut new, &resource.schema(), &writer(server, call, manager));
    }
    server.admit(call, "UPDATE", Some(&new), Some(old))?;
    let changed = new != *old;
    Ok(Next { object: new, warnings, changed })
}

fn object_generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(1)
}

/// What a change of counts in the generation.
fn counts(object: &Value) -> Value {
    let mut rest = object.clone();
    drop_field(&mut rest, "metadata");
    drop_field(&mut rest, "status");
    rest
}

fn check_version(resource: &Resource, old: &Value, new: &Value) -> Result<()> {
    let name = object::meta(old, "name");
    let version = object::meta(new, "resourceVersion");
    if !version.is_empty() && version != object::meta(old, "resourceVersion") {
        return Err(ApiError::modified(resource.subject(name)));
    }
    let uid = object::meta(new, "uid");
    if !uid.is_empty() && uid != object::meta(old, "uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            object::meta(old, "uid")
        );
        return Err(ApiError::conflict(resource.subject(name), &why));
    }
    Ok(())
}

/// The fields of the metadata that no client can change.
fn keep_identity(old: &Value, new: &mut Value) {
    for key in [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ] {
        object::set_meta(new, key, old["metadata"].get(key).cloned());
    }
}

/// Stores the next version. `None`: somebody was faster.
async fn store_next(server: &Server, call: &Call, old: Value, next: Next) -> Result<Option<Written>> {
    let Next { mut object, warnings, changed } = next;
    let code = StatusCode::OK;
    if call.query.dry_run()? || !changed {
        return Ok(Some(Written { code, object, warnings }));
    }
    let key = call.key(object::meta(&object, "name"));
    let expect = revision_of(&old);
    let value = stored(&call.resource, &object);
    let write = if delete::may_go(&call.resource, &object) {
        Write::Delete { key, expect, value: Some(value) }
    } else {
        Write::Update { key, expect, value }
    };
    match server.store.write(write).await {
        Ok(revision) => {
            object::set_meta(&mut object, "resourceVersion", Some(revision.to_string().into()));
            Ok(Some(Written { code, object, warnings }))
        }
        Err(store::Error::Conflict { .. }) => Ok(None),
        Err(error) => Err(store_error(error)),
    }
}

/// The revision that an object was read at.
pub fn revision_of(object: &Value) -> u64 {
    object::meta(object, "resourceVersion").parse().unwrap_or_default()
}

/// The stored form of an object that a client sent in this resource's version.
pub fn stored(resource: &Resource, object: &Value) -> Bytes {
    if resource.api_version() == resource.storage_version {
        return object::encode(object);
    }
    let mut object = object.clone();
    if resource.rules == Rules::Event {
        rules::to_core(&mut object);
    } else {
        object["apiVersion"] = resource.storage_version.as_str().into();
    }
    object::encode(&object)
}

/// What the store said, as the client hears it.
pub fn store_error(error: store::Error) -> ApiError {
    match error {
        store::Error::TooLarge { .. } => ApiError::too_large(format!("etcdserver: request is too large ({error})")),
        error => ApiError::internal(error),
    }
}

fn too_busy(resource: &Resource, name: &str) -> ApiError {
    ApiError::conflict(resource.subject(name), "the object is being changed by too many writers at once; try again")
}

fn writer<'a>(server: &Server, call: &'a Call, manager: &'a str) -> Writer<'a> {
    Writer {
        manager,
        api_version: &call.api_version,
        subresource: call.target.subresource.as_deref(),
        reset: match call.target.subresource.as_deref() {
            Some("status") => &["spec"],
            _ if call.resource.status => &["status"],
            _ => &[],
        },
        now: server.now(),
    }
}

/// `apiVersion`, `kind` and namespace must be those of the path.
fn check_envelope(call: &Call, object: &Value) -> Result<()> {
    let resource = &call.resource;
    if !object.is_object() {
        return Err(ApiError::bad_request("the body must be a JSON object"));
    }
    for (key, expected) in [("apiVersion", call.api_version.as_str()), ("kind", resource.kind.as_str())] {
        match &object[key] {
            Value::Null if resource.rules != Rules::Custom => {}
            Value::String(text) if text == expected => {}
            Value::String(text) if key == "apiVersion" => {
                return Err(ApiError::bad_request(format!(
                    "the API version in the data ({text}) does not match the expected API version ({expected})"
                )));
            }
            Value::String(text) => {
                return Err(ApiError::bad_request(format!(
                    "{} in version \"{}\" cannot be handled as a {}: no kind \"{text}\" is expected here, but \"{expected}\"",
                    text, resource.version, resource.kind
                )));
            }
            _ => {
                return Err(ApiError::bad_request(format!(
                    "Object '{}' is missing in the body",
                    if key == "kind" { "Kind" } else { "apiVersion" }
                )));
            }
        }
    }
    meta::shape(object).map_err(|why| {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            resource.kind, resource.version, resource.kind
        ))
    })?;
    let namespace = object::meta(object, "namespace");
    match &call.target.namespace {
        Some(wanted) if !namespace.is_empty() && namespace != wanted => Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        None if resource.namespaced && call.target.name.is_none() => {
            Err(ApiError::bad_request("an empty namespace may not be set during creation"))
        }
        _ => Ok(()),
    }
}

fn check_namespace(server: &Server, call: &Call, namespace: &str) -> Result<()> {
    let Some(found) = server.read_namespace(namespace)? else {
        return Err(ApiError::not_found(crate::server::status::Subject {
            group: "",
            resource: "namespaces",
            name: namespace,
        }));
    };
    if found["status"]["phase"] == "Terminating" {
        let mut error = ApiError::forbidden(
            call.resource.subject(call.target.name.as_deref().unwrap_or_default()),
            &format!("unable to create new content in namespace {namespace} because it is being terminated"),
        );
        if let Some(details) = &mut error.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace",
            }]);
        }
        return Err(error);
    }
    Ok(())
}

/// A pod runs as a service account that exists.
fn check_account(server: &Server, call: &Call, pod: &Value) -> Result<()> {
    let namespace = object::meta(pod, "namespace");
    let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    if server.read_account(namespace, account)?.is_some() {
        return Ok(());
    }
    let why = format!("error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found");
    Err(ApiError::forbidden(call.resource.subject(object::meta(pod, "name")), &why))
}

/// Defaults, and drops what the schema does not know, as the client asked.
fn clean(call: &Call, object: &mut Value) -> Result<Vec<String>> {
    let resource = &call.resource;
    let schema = resource.schema();
    if resource.rules != Rules::Custom {
        object["apiVersion"] = call.api_version.as_str().into();
        object["kind"] = resource.kind.as_str().into();
        drop_nulls(object);
    }
    meta::tidy(object);
    let unknown = schema.prune(object);
    let validation = call.query.field_validation()?;
    if validation == FieldValidation::Strict
        && let Some(error) = strict_error(&unknown)
    {
        return Err(error);
    }
    schema.apply_defaults(object);
    if let Some(why) = rules::bad_encoding(resource.rules, object) {
        return Err(ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            resource.kind, resource.version, resource.kind
        )));
    }
    let warns = validation == FieldValidation::Warn;
    Ok(unknown.iter().filter(|_| warns).map(|path| unknown_field(path)).collect())
}

fn unknown_field(path: &str) -> String {
    format!("unknown field \"{path}\"")
}

fn strict_error(unknown: &[String]) -> Option<ApiError> {
    let texts: Vec<String> = unknown.iter().map(|path| unknown_field(path)).collect();
    (!texts.is_empty()).then(|| ApiError::bad_request(format!("strict decoding error: {}", texts.join(", "))))
}

/// In a built-in kind an explicit null is an absent field.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Result<()> {
    let name = object::meta(object, "name");
    let mut errors = Vec::new();
    if old.is_none() {
        errors.extend(meta::validate(resource, object));
    }
    let found = resource.schema().validate(object, old);
    let wrong_type = |e: &FieldError| e.kind == FieldErrorKind::TypeInvalid;
    if resource.rules != Rules::Custom
        && let Some(error) = found.iter().find(|e| wrong_type(e))
    {
        return Err(ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {error}",
            resource.kind, resource.version, resource.kind
        )));
    }
    errors.extend(found);
    if errors.is_empty() {
        errors.extend(rules::validate(resource, object, old));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(&resource.group, &resource.kind, name, &errors)) }
}
