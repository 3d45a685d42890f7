//! Get, in any of the three forms, and what it has in common with list and watch: forms and selectors.

use axum::response::Response;
use bytes::BytesMut;
use http::StatusCode;
use serde_json::{Value, json};

use crate::kinds::{Resource, Rules};
use crate::query::Form;
use crate::status::{ApiError, Result, bytes_response, json_response};
use crate::{Call, Server, object, rules};
use knoll_kube_model::select::{FieldSelector, LabelSelector};
use knoll_kube_model::table::{self, Columns, IncludeObject};
use knoll_kube_store::Entry;

/// `GET` of one object.
pub fn get(server: &Server, call: &Call) -> Result<Response> {
    let name = call.name()?;
    let resource = &call.resource;
    let version = call.query.get("resourceVersion");
    if !version.is_empty() && version.parse::<u64>().is_err() {
        return Err(unreadable_version(version));
    }
    let key = call.key(name);
    let entry = server.store.get(&key).map_err(ApiError::internal)?;
    let entry = entry.ok_or_else(|| ApiError::not_found(resource.subject(name)))?;
    if call.form == Form::Object && !converts(resource) {
        let mut out = BytesMut::new();
        object::splice(&mut out, &entry.value, entry.revision);
        return Ok(bytes_response(StatusCode::OK, out.freeze()));
    }
    let found = load(resource, &entry)?;
    answer(server, call, StatusCode::OK, &found)
}

/// An object as the client asked for it.
pub fn answer(server: &Server, call: &Call, code: StatusCode, object: &Value) -> Result<Response> {
    Ok(match call.form {
        Form::Object => json_response(code, object),
        Form::Metadata => json_response(code, &table::partial_object_metadata(object)),
        Form::MetadataList => {
            let message = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(&call.resource, &call.resource.kind)
            );
            return Err(ApiError::not_acceptable(message));
        }
        Form::Table => json_response(code, &tabled(server, call, object, true)?),
    })
}

/// The Go type of an object or a list, for messages that name it.
pub fn go_type(resource: &Resource, kind: &str) -> String {
    match resource.rules {
        Rules::Custom if kind == resource.list_kind => "*unstructured.UnstructuredList".to_owned(),
        Rules::Custom => "*unstructured.Unstructured".to_owned(),
        _ => format!("*{}.{kind}", resource.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core")),
    }
}

/// The columns of a resource's Tables.
pub fn columns(resource: &Resource) -> Columns {
    match &resource.columns {
        Some(columns) => Columns::custom(columns.as_array().map_or(&[][..], Vec::as_slice)),
        None if resource.rules == Rules::Custom => Columns::custom(&[]),
        None => Columns::built_in(&resource.api_version(), &resource.kind),
    }
}

/// One object as a Table.
pub fn tabled(server: &Server, call: &Call, object: &Value, header: bool) -> Result<Value> {
    let include = IncludeObject::parse(call.query.get("includeObject")).map_err(ApiError::bad_request)?;
    Ok(table::single(&columns(&call.resource), object, include, server.now(), header))
}

/// The resource is served in another form than it is stored in.
pub fn converts(resource: &Resource) -> bool {
    resource.api_version() != resource.storage_version
}

/// A stored object in the form of this resource's version.
pub fn load(resource: &Resource, entry: &Entry) -> Result<Value> {
    load_bytes(resource, &entry.value, entry.revision)
}

/// See [`load`].
pub fn load_bytes(resource: &Resource, stored: &[u8], revision: u64) -> Result<Value> {
    let mut object = object::decode(stored, revision).map_err(ApiError::internal)?;
    if converts(resource) {
        if resource.rules == Rules::Event {
            rules::to_events(&mut object);
        } else {
            object["apiVersion"] = resource.api_version().into();
        }
    }
    Ok(object)
}

/// Which objects a client wants.
#[derive(Debug)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    name: Option<String>,
}

impl Selection {
    /// Reads the selectors of a query. A path that names an object selects by that name.
    pub fn parse(call: &Call) -> Result<Self> {
        let labels =
            LabelSelector::parse(call.query.get("labelSelector")).map_err(|e| ApiError::bad_request(e.to_string()))?;
        let fields =
            FieldSelector::parse(call.query.get("fieldSelector")).map_err(|e| ApiError::bad_request(e.to_string()))?;
        for requirement in fields.requirements() {
            let path = requirement.field.as_str();
            let known = path == "metadata.name"
                || (path == "metadata.namespace" && call.resource.namespaced)
                || call.resource.selectable.iter().any(|s| s == path);
            if !known {
                let converted = !call.resource.selectable.is_empty() || call.resource.rules == Rules::Custom;
                return Err(ApiError::bad_request(if converted {
                    format!("field label not supported: {path}")
                } else {
                    format!("\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                }));
            }
        }
        Ok(Self { labels, fields, name: call.target.name.clone() })
    }

    /// Every object is wanted.
    pub fn everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }

    /// The key of the only object that can be wanted.
    pub fn only(&self, call: &Call) -> Option<String> {
        let name = self.name.as_deref().or_else(|| self.fields.exact("metadata.name"))?;
        let namespace = call.target.namespace.as_deref().or_else(|| self.fields.exact("metadata.namespace"));
        (namespace.is_some() || !call.resource.namespaced).then(|| call.resource.key(namespace, name))
    }

    /// The object, in its stored form, is wanted.
    pub fn matches(&self, stored: &[u8]) -> bool {
        if self.everything() {
            return true;
        }
        let Ok(light) = object::light(stored) else { return false };
        if self.name.as_ref().is_some_and(|n| *n != light.metadata.name) || !self.labels.matches(&light.metadata.labels)
        {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let needs_whole = self.fields.requirements().iter().any(|r| !r.field.starts_with("metadata."));
        let whole: Option<Value> = if needs_whole { serde_json::from_slice(stored).ok() } else { None };
        self.fields.matches(|path| match path {
            "metadata.name" => light.metadata.name.clone().into(),
            "metadata.namespace" => light.metadata.namespace.clone().into(),
            _ => field(whole.as_ref().unwrap_or(&Value::Null), path).into(),
        })
    }
}

/// The text of a field for a selector; an absent one is empty.
fn field(object: &Value, path: &str) -> String {
    let mut at = object;
    for part in path.split('.') {
        at = &at[part];
    }
    match at {
        Value::String(text) => text.clone(),
        Value::Null if path == "spec.hostNetwork" || path == "spec.unschedulable" => "false".to_owned(),
        Value::Null | Value::Array(_) => String::new(),
        // An event's source is selected by its component.
        Value::Object(map) => map.get("component").and_then(Value::as_str).unwrap_or_default().to_owned(),
        other => other.to_string(),
    }
}

/// `resourceVersion` is no number, which a get and a watch find out too late to blame the client.
pub fn unreadable_version(text: &str) -> ApiError {
    let why =
        format!("resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why)
}

/// `resourceVersion` is no number.
pub fn invalid_version(text: &str) -> ApiError {
    ApiError::bad_request(format!(
        "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    ))
}

/// The client knows a revision that the server has not reached.
pub fn too_new(asked: u64, newest: u64) -> ApiError {
    let message = format!("Too large resource version: {asked}, current: {newest}");
    let mut error = ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
    error.details = Some(
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1}),
    );
    error
}
