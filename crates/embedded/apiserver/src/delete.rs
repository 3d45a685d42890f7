//! Deletion: preconditions, grace, finalizers, and what becomes of dependents.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::kinds::{Resource, Rules};
use crate::query::Query;
use crate::read::{self, Selection};
use crate::status::{ApiError, Result, Subject, json_response};
use crate::{Call, Server, controllers, list, meta, object, options, write};
use knoll_kube_model::schema::FieldError;
use knoll_kube_store::{self as store, Write};

/// The finalizer of an object that waits for its dependents.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that lets go of its dependents first.
pub const ORPHAN: &str = "orphan";

/// `DeleteOptions`, from the body and the query.
#[derive(Clone, Debug, Default)]
pub struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
    policy: Option<String>,
    dry_run: bool,
}

impl Options {
    /// Reads the options of a request.
    pub fn parse(call: &Call, body: &Value) -> Result<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        // Options in a body are all of the options.
        let none = Query::default();
        let query = if body.is_null() { &call.query } else { &none };
        let policy = text(&body["propagationPolicy"]).or_else(|| {
            let given = query.get("propagationPolicy");
            (!given.is_empty()).then(|| given.to_owned())
        });
        let orphan = body["orphanDependents"].as_bool().or_else(|| {
            let given = query.get("orphanDependents");
            (!given.is_empty()).then(|| given == "true")
        });
        let mut errors = Vec::new();
        if let Some(policy) = &policy {
            if orphan.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", policy.as_str(), why));
            }
            if !["Orphan", "Background", "Foreground"].contains(&policy.as_str()) {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", policy.as_str(), &known));
            }
        }
        let policy = policy.or_else(|| orphan.map(|o| if o { "Orphan" } else { "Background" }.to_owned()));
        let mut dry: Vec<String> = body["dryRun"].as_array().into_iter().flatten().filter_map(text).collect();
        dry.extend(query.all("dryRun").iter().cloned());
        errors.extend(options::dry_run(&dry));
        if !errors.is_empty() {
            return Err(options::invalid("DeleteOptions", &errors));
        }
        Ok(Self {
            grace: body["gracePeriodSeconds"].as_i64().or(query.number("gracePeriodSeconds")?),
            uid: text(&body["preconditions"]["uid"]),
            version: text(&body["preconditions"]["resourceVersion"]),
            policy,
            dry_run: !dry.is_empty(),
        })
    }

    /// A deletion that the server itself asks for.
    pub fn background(uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), policy: Some("Background".to_owned()), ..Self::default() }
    }

    /// A deletion that waits for dependents in turn.
    pub fn foreground(uid: &str) -> Self {
        Self { policy: Some("Foreground".to_owned()), ..Self::background(uid) }
    }
}

/// How a deletion ended.
pub enum Deleted {
    /// The object is gone; this was its last form.
    Gone(Value),
    /// The object waits for its finalizers or its grace period.
    Waiting(Value),
}

/// An object that is on its way out and waits for nothing any more.
pub fn may_go(resource: &Resource, object: &Value) -> bool {
    object::deleting(object)
        && object::finalizers(object).is_empty()
        && match resource.rules {
            Rules::Namespace => object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty),
            Rules::Pod => object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0,
            _ => true,
        }
}

/// Deletes one object, or sets it on its way out.
pub async fn delete(
    server: &Server,
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
    options: &Options,
) -> Result<Deleted> {
    loop {
        let Some(old) = server.read(resource, namespace, name)? else {
            return Err(ApiError::not_found(resource.subject(name)));
        };
        check(resource, &old, options)?;
        if resource.rules == Rules::Namespace && ["default", "kube-system", "kube-public"].contains(&name) {
            return Err(ApiError::forbidden(resource.subject(name), "this namespace may not be deleted"));
        }
        let mut new = old.clone();
        mark(server, resource, &mut new, options);
        meta::tidy(&mut new);
        let gone = may_go(resource, &new);
        if options.dry_run || (!gone && new == old) {
            let last = if resource.rules == Rules::Pod { new.clone() } else { old };
            return Ok(if gone { Deleted::Gone(last) } else { Deleted::Waiting(new) });
        }
        let key = resource.key(namespace, name);
        let expect = write::revision_of(&old);
        let value = write::stored(resource, &new);
        let write = if gone {
            // The last event shows the object as it was, not as a deletion of no duration would have left it.
            let last = if object::deleting(&old) { value } else { write::stored(resource, &old) };
            Write::Delete { key, expect, value: Some(last) }
        } else {
            Write::Update { key, expect, value }
        };
        match server.store.write(write).await {
            Ok(revision) => {
                if gone && resource.rules != Rules::Pod {
                    new = old;
                }
                object::set_meta(&mut new, "resourceVersion", Some(revision.to_string().into()));
                return Ok(if gone { Deleted::Gone(new) } else { Deleted::Waiting(new) });
            }
            Err(store::Error::Conflict { .. }) => {}
            Err(error) => return Err(write::store_error(error)),
        }
    }
}

fn check(resource: &Resource, old: &Value, options: &Options) -> Result<()> {
    let name = object::meta(old, "name");
    let refuse = |what: &str, wanted: &str, found: &str| {
        let how = if what == "UID" { "deleted and then recreated" } else { "modified" };
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {how}"
        );
        Err(ApiError::conflict(Subject { group: &resource.group, resource: &resource.kind, name }, &why))
    };
    match (&options.uid, &options.version) {
        (Some(uid), _) if uid != object::meta(old, "uid") => refuse("UID", uid, object::meta(old, "uid")),
        (_, Some(version)) if version != object::meta(old, "resourceVersion") => {
            refuse("ResourceVersion", version, object::meta(old, "resourceVersion"))
        }
        _ => Ok(()),
    }
}

fn mark(server: &Server, resource: &Resource, object: &mut Value, options: &Options) {
    let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
    let had = object::deleting(object);
    match options.policy.as_deref() {
        Some("Orphan") => {
            finalizers.retain(|f| f != FOREGROUND && f != ORPHAN);
            finalizers.push(ORPHAN.to_owned());
        }
        Some("Foreground") => {
            finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
            finalizers.push(FOREGROUND.to_owned());
        }
        Some(_) => finalizers.retain(|f| f != ORPHAN && f != FOREGROUND),
        None => {}
    }
    if resource.rules == Rules::Crd && !had && !finalizers.iter().any(|f| f == controllers::definitions::FINALIZER) {
        // The definition stays until its objects are gone.
        finalizers.push(controllers::definitions::FINALIZER.to_owned());
        if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
            conditions.push(json!({
                "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
                "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                "lastTransitionTime": server.now_text(),
            }));
        }
    }
    object::set_meta(object, "finalizers", Some(json!(finalizers)));
    let grace = grace(resource, object, options);
    let before = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if !had || before.is_some_and(|before| grace < before) {
        let seconds = jiff::SignedDuration::from_secs(grace.max(0));
        let end = server.now().checked_add(seconds).unwrap_or(server.now());
        object::set_meta(object, "deletionTimestamp", Some(server.text_of(end).into()));
        if !matches!(resource.rules, Rules::Namespace | Rules::Crd) {
            object::set_meta(object, "deletionGracePeriodSeconds", Some(grace.into()));
        }
    }
    if !had && resource.has_generation() && resource.rules != Rules::Crd {
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
        object::set_meta(object, "generation", Some(generation.into()));
    }
    if resource.rules == Rules::Namespace {
        object["status"]["phase"] = "Terminating".into();
    }
}

/// A pod that a node runs gets time to end; all else goes at once.
fn grace(resource: &Resource, object: &Value, options: &Options) -> i64 {
    if resource.rules != Rules::Pod {
        return 0;
    }
    let placed = object["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty());
    let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let default = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    if !placed || ended { 0 } else { options.grace.unwrap_or(default).max(0) }
}

/// `DELETE` of one object.
pub async fn one(server: &Server, call: &Call, body: &Value) -> Result<Response> {
    let name = call.name()?;
    let resource = &call.resource;
    let options = Options::parse(call, body)?;
    let old = server.read(resource, call.target.namespace.as_deref(), name)?;
    server.admit(call, "DELETE", None, old.as_ref())?;
    match delete(server, resource, call.target.namespace.as_deref(), name, &options).await? {
        Deleted::Waiting(object) => read::answer(server, call, StatusCode::OK, &shown(resource, object)?),
        Deleted::Gone(object) if matches!(resource.rules, Rules::Pod | Rules::ServiceAccount) => {
            read::answer(server, call, StatusCode::OK, &object)
        }
        Deleted::Gone(object) => {
            let mut details = json!({"name": name, "kind": resource.plural, "uid": object["metadata"]["uid"]});
            if !resource.group.is_empty() {
                details["group"] = resource.group.as_str().into();
            }
            Ok(json_response(
                StatusCode::OK,
                &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
            ))
        }
    }
}

/// The object in the form of the version that the client speaks.
fn shown(resource: &Resource, object: Value) -> Result<Value> {
    if read::converts(resource) {
        let revision = write::revision_of(&object);
        return read::load_bytes(resource, &object::encode(&object), revision);
    }
    Ok(object)
}

/// `DELETE` of a whole resource, or of what the selectors leave of it.
pub async fn collection(server: &Server, call: &Call, body: &Value) -> Result<Response> {
    let options = Options::parse(call, body)?;
    let selection = Selection::parse(call)?;
    server.admit(call, "DELETE", None, None)?;
    let listed = list::select(server, call, &selection)?;
    let mut items = Vec::with_capacity(listed.entries.len());
    for entry in &listed.entries {
        let object = read::load(&call.resource, entry)?;
        let namespace = call.resource.namespaced.then(|| object::meta(&object, "namespace"));
        let name = object::meta(&object, "name");
        match delete(server, &call.resource, namespace, name, &options).await {
            Ok(_) => {
                let mut item = object.clone();
                list::untyped(&call.resource, &mut item);
                items.push(item);
            }
            Err(error) if error.code == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    let mut meta = json!({"resourceVersion": listed.revision.to_string()});
    if call.resource.rules == Rules::Custom {
        meta["continue"] = "".into();
    }
    Ok(json_response(
        StatusCode::OK,
        &json!({
            "kind": call.resource.list_kind, "apiVersion": call.api_version, "metadata": meta, "items": items,
        }),
    ))
}
