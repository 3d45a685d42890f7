//! Create and update: from a body to a stored object.
//!
//! Every write reads the object, computes what it becomes, and stores it on the condition that it is still what was
//! read. Where the client named no version, a lost race is simply run again.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::decode::Decoded;
use crate::envelope::{self, Source};
use crate::kinds::{Resource, Rules};
use crate::rules::{self, drop_field};
use crate::status::{ApiError, Result};
use crate::{Call, Server, delete, escalation, meta, object};
use knoll_kube_model::patch::{self, Writer};
use knoll_kube_model::schema::{FieldError, FieldErrorKind, WHOLE_OBJECT};
use knoll_kube_store::{self as store, Write};

/// How often a write without a version of its own is run again when others are faster.
pub const ATTEMPTS: usize = 64;

/// What a write answers.
pub struct Written {
    pub code: StatusCode,
    /// The object, with its `resourceVersion`.
    pub object: Value,
}

/// `POST` of a new object.
pub async fn create(server: &Server, call: &Call, body: Decoded) -> Result<Written> {
    let object = prepare_create(server, call, body, Source::Body)?;
    store_new(server, call, object).await
}

/// Everything that makes a new object of what a client sent.
pub fn prepare_create(server: &Server, call: &Call, body: Decoded, source: Source) -> Result<Value> {
    let resource = &call.resource;
    let Decoded { value: mut object, duplicates } = body;
    envelope::take(call, &mut object, &duplicates, source)?;
    if resource.crd.as_ref().is_some_and(|c| c.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", why));
    }
    for key in ["uid", "selfLink", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        object::set_meta(&mut object, key, None);
    }
    if source == Source::Body {
        object::set_meta(&mut object, "managedFields", None);
        // Who creates an object owns what it sent and the defaults, not what the server adds from here on.
        let manager = call.manager();
        patch::track_update(None, &mut object, &resource.schema(), &writer(server, call, &manager));
    }
    if let Some(namespace) = &call.target.namespace {
        object::set_meta(&mut object, "namespace", Some(namespace.as_str().into()));
        let named = ["name", "generateName"].map(|key| object::meta(&object, key));
        check_namespace(server, call, namespace, named.into_iter().find(|n| !n.is_empty()).unwrap_or_default())?;
    }
    escalation::check(server, call, &object, None)?;
    if object::meta(&object, "name").is_empty() && !object::meta(&object, "generateName").is_empty() {
        let name = meta::generate_name(object::meta(&object, "generateName"));
        object::set_meta(&mut object, "name", Some(name.into()));
    }
    if resource.rules == Rules::Custom && resource.status {
        drop_field(&mut object, "status");
    }
    object::set_meta(&mut object, "uid", Some(uuid::Uuid::new_v4().to_string().into()));
    object::set_meta(&mut object, "creationTimestamp", Some(server.now_text().into()));
    if resource.has_generation() {
        object::set_meta(&mut object, "generation", Some(1.into()));
    }
    if resource.rules == Rules::Pod {
        give_account(server, call, &mut object)?;
    }
    rules::prepare_create(resource, &mut object, server.node_name());
    validate(call, &object, None, meta::validate(resource, &object))?;
    rules::initial_status(resource, &mut object);
    server.admit(call, "CREATE", Some(&object), None)?;
    if !object::meta(&object, "resourceVersion").is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why));
    }
    Ok(object)
}

/// Stores a new object, or only looks whether it could be.
pub async fn store_new(server: &Server, call: &Call, mut object: Value) -> Result<Written> {
    let name = object::meta(&object, "name").to_owned();
    let code = StatusCode::CREATED;
    if call.query.dry_run() {
        if server.store.get(&call.key(&name)).map_err(ApiError::internal)?.is_some() {
            return Err(exists(server, call, &name));
        }
        return Ok(Written { code, object });
    }
    let value = stored(&call.resource, &object);
    match server.store.write(Write::Create { key: call.key(&name), value }).await {
        Ok(revision) => {
            object::set_meta(&mut object, "resourceVersion", Some(revision.to_string().into()));
            Ok(Written { code, object })
        }
        Err(store::Error::Exists) => Err(exists(server, call, &name)),
        Err(error) => Err(store_error(error)),
    }
}

/// An object of that name is there, or on its way out.
fn exists(server: &Server, call: &Call, name: &str) -> ApiError {
    let mut error = ApiError::already_exists(call.resource.subject(name));
    let found = server.read(&call.resource, call.target.namespace.as_deref(), name);
    if found.is_ok_and(|found| found.is_some_and(|found| object::deleting(&found))) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// `PUT` of a whole object.
pub async fn update(server: &Server, call: &Call, body: Decoded) -> Result<Written> {
    let name = call.name()?;
    let resource = &call.resource;
    let Decoded { value: mut body, duplicates } = body;
    envelope::take(call, &mut body, &duplicates, Source::Body)?;
    envelope::check_name(call, &body)?;
    let version = version_sent(&body)?;
    for _ in 0..ATTEMPTS {
        let Some(old) = server.read(resource, call.target.namespace.as_deref(), name)? else {
            if resource.create_on_update() && call.target.subresource.is_none() {
                object::set_meta(&mut body, "resourceVersion", None);
                return create(server, call, body.into()).await;
            }
            return Err(ApiError::not_found(resource.subject(name)));
        };
        let uid = object::meta(&body, "uid");
        if !uid.is_empty() && uid != object::meta(&old, "uid") {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                envelope::storage_key(call, name),
                object::meta(&old, "uid")
            );
            return Err(ApiError::conflict(resource.subject(name), &why));
        }
        if version.is_none() && !resource.unconditional_update() {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            // This one is told of the resource, not of the kind.
            return Err(ApiError::invalid(&resource.group, &resource.plural, name, &[error]));
        }
        let manager = call.manager();
        let next = next_version(server, call, &old, body.clone(), &Origin::Update(&manager))?;
        if let Some(written) = store_next(server, call, old, next).await? {
            return Ok(written);
        }
        if version.is_some() {
            return Err(ApiError::modified(resource.subject(name)));
        }
    }
    Err(too_busy(resource, name))
}

/// The version that an update is made on condition of.
fn version_sent(object: &Value) -> Result<Option<u64>> {
    let text = object::meta(object, "resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse::<u64>() {
        Ok(0) => Ok(None),
        Ok(version) => Ok(Some(version)),
        Err(_) => {
            let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why))
        }
    }
}

/// A change of an object that is computed from what it is.
pub async fn change(server: &Server, call: &Call, compute: impl Fn(&Value) -> Result<Value>) -> Result<Value> {
    let name = call.name()?;
    let resource = &call.resource;
    let manager = call.manager();
    for _ in 0..ATTEMPTS {
        let old = server.read(resource, call.target.namespace.as_deref(), name)?;
        let old = old.ok_or_else(|| ApiError::not_found(resource.subject(name)))?;
        let next = next_version(server, call, &old, compute(&old)?, &Origin::Update(&manager))?;
        if let Some(written) = store_next(server, call, old, next).await? {
            return Ok(written.object);
        }
    }
    Err(too_busy(resource, name))
}

/// Whose write it is, for the record of who owns which field.
pub enum Origin<'a> {
    /// A plain write by that manager.
    Update(&'a str),
    /// An apply, whose record is in the object already.
    Apply,
}

/// What an object becomes.
pub struct Next {
    object: Value,
    changed: bool,
}

/// What an object becomes by a write that gives it this new form, of which everything is checked here but its types.
pub fn next_version(server: &Server, call: &Call, old: &Value, new: Value, origin: &Origin<'_>) -> Result<Next> {
    let resource = &call.resource;
    let name = object::meta(old, "name");
    escalation::check(server, call, &new, Some(old))?;
    let sent = version_sent(&new)?;
    if sent.is_some_and(|version| version != revision_of(old)) {
        return Err(ApiError::modified(resource.subject(name)));
    }
    let mut new = new;
    if let Origin::Update(manager) = origin {
        patch::track_update(Some(old), &mut new, &resource.schema(), &writer(server, call, manager));
    }
    let update_errors = meta::validate_update(old, &new);
    match call.target.subresource.as_deref() {
        Some("status") if resource.rules.keeps_metadata_in_status() => {
            new["spec"] = old["spec"].clone();
            if resource.rules == Rules::Pod {
                object::set_meta(&mut new, "ownerReferences", old["metadata"].get("ownerReferences").cloned());
            }
        }
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
            whole["metadata"]["managedFields"] = new["metadata"]["managedFields"].take();
            whole["spec"]["finalizers"] = new["spec"]["finalizers"].take();
            new = whole;
        }
        Some("scale") => {}
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
    let mut errors = update_errors;
    errors.extend(meta::validate(resource, &new));
    validate(call, &new, Some(old), errors)?;
    server.admit(call, "UPDATE", Some(&new), Some(old))?;
    let changed = new != *old;
    Ok(Next { object: new, changed })
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

/// The fields of the metadata that no client can change.
fn keep_identity(old: &Value, new: &mut Value) {
    for key in [
        "name",
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
pub async fn store_next(server: &Server, call: &Call, old: Value, next: Next) -> Result<Option<Written>> {
    let Next { mut object, changed } = next;
    let code = StatusCode::OK;
    if call.query.dry_run() || !changed {
        return Ok(Some(Written { code, object }));
    }
    let key = call.key(object::meta(&object, "name"));
    let expect = revision_of(&old);
    let value = stored(&call.resource, &object);
    let gone = delete::may_go(&call.resource, &object);
    // The last event shows the object as it was when its last finalizer went.
    let value = if gone { stored(&call.resource, &old) } else { value };
    let write =
        if gone { Write::Delete { key, expect, value: Some(value) } } else { Write::Update { key, expect, value } };
    match server.store.write(write).await {
        Ok(revision) => {
            if !gone {
                object::set_meta(&mut object, "resourceVersion", Some(revision.to_string().into()));
            }
            Ok(Some(Written { code, object }))
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

/// Others were faster every time.
pub fn too_busy(resource: &Resource, name: &str) -> ApiError {
    ApiError::conflict(resource.subject(name), "the object is being changed by too many writers at once; try again")
}

/// Who writes, for the record of who owns which field.
pub fn writer<'a>(server: &Server, call: &'a Call, manager: &'a str) -> Writer<'a> {
    Writer {
        manager,
        api_version: &call.api_version,
        subresource: call.target.subresource.as_deref(),
        reset: match call.target.subresource.as_deref() {
            Some("status") if call.resource.rules == Rules::Pod => {
                &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]
            }
            Some("status") => &["spec"],
            _ if call.resource.status => &["status"],
            _ => &[],
        },
        now: server.now(),
    }
}

fn check_namespace(server: &Server, call: &Call, namespace: &str, name: &str) -> Result<()> {
    let Some(found) = server.read_namespace(namespace)? else {
        return Err(ApiError::not_found(crate::status::Subject { group: "", resource: "namespaces", name: namespace }));
    };
    if found["status"]["phase"] == "Terminating" {
        let mut error = ApiError::forbidden(
            call.resource.subject(name),
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
fn give_account(server: &Server, call: &Call, pod: &mut Value) -> Result<()> {
    let account = rules::name_account(pod);
    let namespace = object::meta(pod, "namespace").to_owned();
    if let Some(found) = server.read_account(&namespace, &account)? {
        rules::use_account(pod, &found);
        return Ok(());
    }
    let why = format!("error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found");
    Err(ApiError::forbidden(call.resource.subject(object::meta(pod, "name")), &why))
}

/// Everything that is wrong with an object, of whose metadata that is known already.
fn validate(call: &Call, object: &Value, old: Option<&Value>, known: Vec<FieldError>) -> Result<()> {
    let resource = &call.resource;
    let schema = resource.schema();
    let errors = if resource.rules == Rules::Custom {
        let mut errors = schema.validate_after(known, object, old);
        if let Some(scale) = &resource.scale {
            let at = errors.iter().position(|e| e.field == WHOLE_OBJECT).unwrap_or(errors.len());
            errors.splice(at..at, scale.validate(object));
        }
        if call.target.subresource.as_deref() == Some("status") {
            errors.iter_mut().for_each(below_status);
        }
        errors
    } else {
        let mut errors = known;
        if errors.is_empty() {
            errors = schema.validate(object, old);
            // Types were looked at before, and whether a list may repeat itself is for the rules of the kind to say.
            errors.retain(|e| !matches!(e.kind, FieldErrorKind::Duplicate | FieldErrorKind::TypeInvalid));
        }
        if errors.iter().all(|e| e.field.starts_with("metadata.")) {
            errors.extend(rules::validate(resource, object, old));
        }
        errors
    };
    let name = object::meta(object, "name");
    // Events are core objects, whatever the API that they are written through.
    let group = if resource.rules == Rules::Event { "" } else { &resource.group };
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(group, &resource.kind, name, &errors)) }
}

/// A status that is written alone is validated alone: what is wrong is told as seen from there.
fn below_status(error: &mut FieldError) {
    if error.field.starts_with("status.")
        && let Some(rest) = error.detail.strip_prefix("status.")
    {
        error.detail = rest.to_owned();
    }
}
