//! Get and list, in any of the three forms, with selectors and paging.

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, BytesMut};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::select::{FieldSelector, LabelSelector};
use crate::server::kinds::{Resource, Rules};
use crate::server::query::{Form, Query};
use crate::server::status::{ApiError, Result, bytes_response, json_response};
use crate::server::{Call, Server, object, options, rules, write};
use crate::store::{self, Entry, List};
use crate::table::{self, Columns, IncludeObject};

/// How many entries are read at once where a selector may leave most of them out.
const STRIDE: usize = 500;

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
fn go_type(resource: &Resource, kind: &str) -> String {
    match resource.rules {
        Rules::Custom if kind == resource.list_kind => "*unstructured.UnstructuredList".to_owned(),
        Rules::Custom => "*unstructured.Unstructured".to_owned(),
        _ => format!("*{}.{kind}", resource.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core")),
    }
}

/// The columns of a resource's Tables.
fn columns(resource: &Resource) -> Columns {
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
    fn only(&self, call: &Call) -> Option<String> {
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

/// Where a list that was cut goes on.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: u64,
    start: String,
}

/// The entries of a list and what its metadata says.
pub struct Listed {
    /// The objects, as stored.
    pub entries: Vec<Entry>,
    /// The revision that all of them are seen at.
    pub revision: u64,
    /// Where the next page starts.
    pub next: Option<String>,
    /// How many come after this page.
    pub remaining: Option<u64>,
}

/// Finds what a list asks for.
pub fn select(server: &Server, call: &Call, selection: &Selection) -> Result<Listed> {
    let query = &call.query;
    let limit = query.number("limit")?.filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok());
    let version_asked = query.get("resourceVersion");
    let mut at = if query.get("continue").is_empty() { revision_asked(server, query)? } else { None };
    let prefix = call.resource.prefix(call.target.namespace.as_deref());
    let mut after: Option<String> = None;
    let token = query.get("continue");
    if !token.is_empty() {
        if !version_asked.is_empty() && version_asked != "0" {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let place = place(token, &prefix).map_err(|why| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        })?;
        at = Some(place.rv);
        after = Some(place.start);
    }
    if let Some(key) = selection.only(call).filter(|_| token.is_empty() && at.is_none()) {
        let revision = server.store.revision();
        let found = server.store.get(&key).map_err(ApiError::internal)?;
        let entries = found.into_iter().filter(|e| selection.matches(&e.value)).collect();
        return Ok(Listed { entries, revision, next: None, remaining: None });
    }
    let everything = selection.everything();
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let room = limit.map(|limit| limit - entries.len());
        let stride = if everything { room } else { Some(STRIDE) };
        let list = List { prefix: &prefix, after: after.as_deref(), limit: stride, at };
        let page = server.store.list(list).map_err(|error| list_error(error, !token.is_empty()))?;
        at = Some(page.revision);
        let (revision, more, remaining) = (page.revision, page.more, page.remaining);
        let mut full = None;
        for entry in page.entries {
            after = Some(entry.key.clone());
            if everything || selection.matches(&entry.value) {
                entries.push(entry);
                if !everything && room.is_some_and(|_| limit == Some(entries.len())) {
                    full = after.clone();
                    break;
                }
            }
        }
        let done = limit.is_some_and(|limit| entries.len() >= limit);
        if !more && full.is_none() {
            return Ok(Listed { entries, revision, next: None, remaining: None });
        }
        if done {
            let start = full.or(after).unwrap_or_default();
            let place = Continue { v: "meta.k8s.io/v1".into(), rv: revision, start };
            let next = serde_json::to_vec(&place).map_err(ApiError::internal)?;
            let remaining = remaining.filter(|_| everything);
            return Ok(Listed { entries, revision, next: Some(URL_SAFE_NO_PAD.encode(next)), remaining });
        }
    }
}

/// The revision that a list must be read at: `resourceVersionMatch=Exact`, else the newest.
fn revision_asked(server: &Server, query: &Query) -> Result<Option<u64>> {
    let text = query.get("resourceVersion");
    let matching = query.get("resourceVersionMatch");
    if text.is_empty() {
        return Ok(None);
    }
    let revision: u64 = text.parse().map_err(|_| invalid_version(text))?;
    if revision > server.store.revision() {
        return Err(too_new(revision, server.store.revision()));
    }
    // A page that names a version without saying how it is meant is of that very version.
    let exact =
        matching == "Exact" || (matching.is_empty() && !query.get("limit").is_empty() && query.get("limit") != "0");
    Ok((exact && revision > 0).then_some(revision))
}

/// Where a list that was cut goes on.
fn place(token: &str, prefix: &str) -> std::result::Result<Continue, String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| {
        crate::schema::builtin::go_types::base64_error(&token.replace('-', "+").replace('_', "/")).unwrap_or_default()
    })?;
    let value = crate::server::decode::json(&bytes)?.value;
    let place: Continue = serde_json::from_value(value).map_err(|e| e.to_string())?;
    if place.start.starts_with(prefix) { Ok(place) } else { Err("it does not belong to this list".to_owned()) }
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

fn list_error(error: store::Error, continued: bool) -> ApiError {
    match error {
        store::Error::Compacted { .. } if continued => ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        ),
        store::Error::Compacted { .. } => ApiError::expired("The resourceVersion for the provided list is too old."),
        store::Error::Future { asked, newest } => too_new(asked, newest),
        error => write::store_error(error),
    }
}

/// An item of a list: those of built-in kinds do not say what they are, since the list does.
pub fn untyped(resource: &Resource, object: &mut Value) {
    if resource.rules != Rules::Custom {
        rules::drop_field(object, "apiVersion");
        rules::drop_field(object, "kind");
    }
}

/// The same for a stored object, which ends with what it is.
fn item<'a>(resource: &Resource, stored: &'a [u8], buffer: &'a mut Vec<u8>) -> &'a [u8] {
    if resource.rules == Rules::Custom {
        return stored;
    }
    match stored.strip_suffix(object::tail(&resource.storage_version, &resource.kind).as_bytes()) {
        Some(rest) => {
            buffer.clear();
            buffer.extend_from_slice(rest);
            buffer.push(b'}');
            buffer
        }
        None => stored,
    }
}

/// `GET` of a resource: a list of its objects.
pub fn list(server: &Server, call: &Call) -> Result<Response> {
    options::check_list(&call.query, false)?;
    let selection = Selection::parse(call)?;
    let listed = select(server, call, &selection)?;
    let mut meta = json!({"resourceVersion": listed.revision.to_string()});
    if let Some(next) = &listed.next {
        meta["continue"] = next.as_str().into();
    }
    if let Some(remaining) = listed.remaining {
        meta["remainingItemCount"] = remaining.into();
    }
    let resource = &call.resource;
    if resource.rules == Rules::Custom && call.form == Form::Object && listed.next.is_none() {
        // Lists of custom resources always say that they do not go on.
        meta["continue"] = "".into();
    }
    if call.form == Form::Object && !converts(resource) {
        let size: usize = listed.entries.iter().map(|e| e.value.len() + 48).sum();
        let mut out = BytesMut::with_capacity(size + 256);
        let head = json!({"kind": resource.list_kind, "apiVersion": call.api_version, "metadata": meta}).to_string();
        out.put_slice(head.trim_end_matches('}').as_bytes());
        out.put_slice(b"},\"items\":[");
        let mut buffer = Vec::new();
        for (at, entry) in listed.entries.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            object::splice(&mut out, item(resource, &entry.value, &mut buffer), entry.revision);
        }
        out.put_slice(b"]}");
        return Ok(bytes_response(StatusCode::OK, out.freeze()));
    }
    let mut objects: Vec<Value> = listed.entries.iter().map(|e| load(resource, e)).collect::<Result<_>>()?;
    if call.form == Form::Object {
        objects.iter_mut().for_each(|object| untyped(resource, object));
    }
    Ok(json_response(
        StatusCode::OK,
        &match call.form {
            Form::Object => {
                json!({"kind": resource.list_kind, "apiVersion": call.api_version, "metadata": meta, "items": objects})
            }
            Form::Metadata => {
                let message = format!(
                    "you requested PartialObjectMetadata, but the requested object is a list ({})",
                    go_type(resource, &resource.list_kind)
                );
                return Err(ApiError::not_acceptable(message));
            }
            Form::MetadataList => {
                let items: Vec<Value> = objects.iter().map(table::partial_object_metadata).collect();
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items})
            }
            Form::Table => {
                let include = IncludeObject::parse(call.query.get("includeObject")).map_err(ApiError::bad_request)?;
                table::table(&columns(resource), &objects, include, server.now(), &meta)
            }
        },
    ))
}
