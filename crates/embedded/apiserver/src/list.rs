//! Lists, with selectors and paging. What may be large is read and sent piece by piece, all of it at one revision.

use std::io;

use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{StreamExt, stream};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kinds::{Resource, Rules};
use crate::query::{Form, Query};
use crate::read::{self, Selection};
use crate::status::{ApiError, Result, bytes_response, json_response};
use crate::{Call, Server, object, options, rules, write};
use knoll_kube_model::table::{self, IncludeObject};
use knoll_kube_store::{self as store, Entry, Extent, List, Page};

/// Where a list that was cut goes on.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: u64,
    start: String,
}

/// How far a list was read.
pub struct Cursor {
    prefix: String,
    /// The last key that was read.
    after: Option<String>,
    /// The revision that everything is seen at; the first piece settles it.
    at: Option<u64>,
    /// A client goes on with a list.
    continued: bool,
    /// The key of the only object that can be wanted.
    only: Option<String>,
}

impl Cursor {
    /// Where a call wants its list to begin.
    pub fn new(server: &Server, call: &Call, selection: &Selection) -> Result<Self> {
        let prefix = call.resource.prefix(call.target.namespace.as_deref());
        let token = call.query.get("continue");
        if token.is_empty() {
            let at = revision_asked(server, &call.query)?;
            let only = selection.only(call).filter(|_| at.is_none());
            return Ok(Self { prefix, after: None, at, continued: false, only });
        }
        let version_asked = call.query.get("resourceVersion");
        if !version_asked.is_empty() && version_asked != "0" {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let place = place(token, &prefix).map_err(|why| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        })?;
        Ok(Self { prefix, after: Some(place.start), at: Some(place.rv), continued: true, only: None })
    }

    pub fn read(&mut self, server: &Server, extent: Extent) -> Result<Page> {
        if let Some(key) = &self.only {
            let revision = server.store.revision();
            let found = server.store.get(key).map_err(ApiError::internal)?;
            return Ok(Page { entries: found.into_iter().collect(), revision, more: false, remaining: None });
        }
        let list = List { prefix: &self.prefix, after: self.after.as_deref(), extent, at: self.at };
        let page = server.store.list(list).map_err(|error| list_error(error, self.continued))?;
        self.at = Some(page.revision);
        if let Some(last) = page.entries.last() {
            self.after = Some(last.key.clone());
        }
        Ok(page)
    }

    /// Goes back to this key.
    fn rewind(&mut self, key: &str) {
        self.after = Some(key.to_owned());
    }

    /// What a client sends to go on from here.
    fn token(&self, revision: u64) -> Result<String> {
        let start = self.after.clone().unwrap_or_default();
        let place = Continue { v: "meta.k8s.io/v1".into(), rv: revision, start };
        Ok(URL_SAFE_NO_PAD.encode(serde_json::to_vec(&place).map_err(ApiError::internal)?))
    }
}

/// The entries of a list and what its metadata says.
#[derive(Default)]
pub struct Listed {
    /// The objects, as stored.
    pub entries: Vec<Entry>,
    /// The revision that all of them are seen at.
    pub revision: u64,
    /// Where the next page starts.
    next: Option<String>,
    /// How many come after this page.
    remaining: Option<u64>,
}

/// Finds what a list asks for, all of it.
pub fn select(server: &Server, call: &Call, selection: &Selection) -> Result<Listed> {
    let limit = call.query.number("limit")?.filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok());
    let mut cursor = Cursor::new(server, call, selection)?;
    let everything = selection.everything();
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let extent = match limit {
            _ if !everything => Extent::Piece,
            Some(limit) => Extent::Page(limit),
            None => Extent::All,
        };
        let page = cursor.read(server, extent)?;
        let mut rest = page.entries.into_iter();
        let is_full = |entries: &[Entry]| limit.is_some_and(|limit| entries.len() >= limit);
        while !is_full(&entries)
            && let Some(entry) = rest.next()
        {
            if selection.matches(&entry.value) {
                entries.push(entry);
            }
        }
        // Whether any of what is left is wanted is for the next page to find out.
        let more = page.more || rest.len() > 0;
        match entries.last() {
            Some(last) if more && is_full(&entries) => {
                cursor.rewind(&last.key);
                let next = Some(cursor.token(page.revision)?);
                return Ok(Listed { entries, revision: page.revision, next, remaining: page.remaining });
            }
            _ if !more => return Ok(Listed { entries, revision: page.revision, ..Listed::default() }),
            _ => {}
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
    let revision: u64 = text.parse().map_err(|_| read::invalid_version(text))?;
    if revision > server.store.revision() {
        return Err(read::too_new(revision, server.store.revision()));
    }
    // A page that names a version without saying how it is meant is of that very version.
    let exact =
        matching == "Exact" || (matching.is_empty() && !query.get("limit").is_empty() && query.get("limit") != "0");
    Ok((exact && revision > 0).then_some(revision))
}

/// Where a list that was cut goes on.
fn place(token: &str, prefix: &str) -> std::result::Result<Continue, String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| {
        knoll_kube_model::schema::base64_error(&token.replace('-', "+").replace('_', "/")).unwrap_or_default()
    })?;
    let value = crate::decode::json(&bytes)?.value;
    let place: Continue = serde_json::from_value(value).map_err(|e| e.to_string())?;
    if place.start.starts_with(prefix) { Ok(place) } else { Err("it does not belong to this list".to_owned()) }
}

fn list_error(error: store::Error, continued: bool) -> ApiError {
    match error {
        store::Error::Compacted { .. } if continued => ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        ),
        store::Error::Compacted { .. } => ApiError::expired("The resourceVersion for the provided list is too old."),
        store::Error::Future { asked, newest } => read::too_new(asked, newest),
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

/// `GET` of a resource: a list of its objects.
pub fn list(server: &Server, call: &Call) -> Result<Response> {
    options::check_list(&call.query, false)?;
    let selection = Selection::parse(call)?;
    let resource = &call.resource;
    let whole = call.query.number("limit")?.is_none_or(|limit| limit <= 0);
    if whole && as_stored(call) {
        return in_pieces(server, call, selection);
    }
    let listed = select(server, call, &selection)?;
    if as_stored(call) {
        let mut items = Items::new(resource);
        items.open(call, &listed);
        listed.entries.iter().for_each(|entry| items.add(entry));
        items.close();
        return Ok(bytes_response(StatusCode::OK, items.take()));
    }
    let meta = meta(call, &listed);
    let mut objects: Vec<Value> = listed.entries.iter().map(|e| read::load(resource, e)).collect::<Result<_>>()?;
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
                    read::go_type(resource, &resource.list_kind)
                );
                return Err(ApiError::not_acceptable(message));
            }
            Form::MetadataList => {
                let items: Vec<Value> = objects.iter().map(table::partial_object_metadata).collect();
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items})
            }
            Form::Table => {
                let include = IncludeObject::parse(call.query.get("includeObject")).map_err(ApiError::bad_request)?;
                table::table(&read::columns(resource), &objects, include, server.now(), &meta)
            }
        },
    ))
}

/// The client gets objects as they are stored.
fn as_stored(call: &Call) -> bool {
    call.form == Form::Object && !read::converts(&call.resource)
}

/// What a list says of itself.
fn meta(call: &Call, listed: &Listed) -> Value {
    let mut meta = json!({"resourceVersion": listed.revision.to_string()});
    if let Some(next) = &listed.next {
        meta["continue"] = next.as_str().into();
    } else if call.resource.rules == Rules::Custom && call.form == Form::Object {
        // Lists of custom resources always say that they do not go on.
        meta["continue"] = "".into();
    }
    if let Some(remaining) = listed.remaining {
        meta["remainingItemCount"] = remaining.into();
    }
    meta
}

/// A list without a limit: nobody holds more than a piece of it, however many ask and however slowly they read.
fn in_pieces(server: &Server, call: &Call, selection: Selection) -> Result<Response> {
    let (server, mut cursor, mut items) =
        (server.clone(), Cursor::new(server, call, &selection)?, Items::new(&call.resource));
    let mut page = cursor.read(&server, Extent::Piece)?;
    items.open(call, &Listed { revision: page.revision, ..Listed::default() });
    let mut write = move |page: &Page| {
        items.out.reserve(page.entries.iter().map(|entry| entry.value.len() + 48).sum());
        page.entries.iter().filter(|entry| selection.matches(&entry.value)).for_each(|entry| items.add(entry));
        if !page.more {
            items.close();
        }
        items.take()
    };
    let first = write(&page);
    if !page.more {
        return Ok(bytes_response(StatusCode::OK, first));
    }
    let next = move || match page.more.then(|| cursor.read(&server, Extent::Piece))? {
        Ok(read) => {
            page = read;
            Some(Ok(write(&page)))
        }
        // The answer has begun: all that is left to do is to break it off.
        Err(error) => {
            page.more = false;
            Some(Err(io::Error::other(error.to_string())))
        }
    };
    let rest = stream::iter(std::iter::from_fn(next));
    Ok(bytes_response(StatusCode::OK, Body::from_stream(stream::iter([Ok(first)]).chain(rest))))
}

/// The JSON of a list whose items are as they are stored.
struct Items {
    out: BytesMut,
    /// What ends a stored object and is left out: see [`untyped`].
    tail: Option<String>,
    /// There is an item already.
    begun: bool,
}

impl Items {
    fn new(resource: &Resource) -> Self {
        let typed = resource.rules == Rules::Custom;
        let tail = (!typed).then(|| object::tail(&resource.storage_version, &resource.kind));
        Self { out: BytesMut::new(), tail, begun: false }
    }

    /// The list itself, up to its first item.
    fn open(&mut self, call: &Call, listed: &Listed) {
        let (kind, meta) = (&call.resource.list_kind, meta(call, listed));
        let head = json!({"kind": kind, "apiVersion": call.api_version, "metadata": meta}).to_string();
        self.out.put_slice(head.trim_end_matches('}').as_bytes());
        self.out.put_slice(b"},\"items\":[");
    }

    fn add(&mut self, entry: &Entry) {
        if std::mem::replace(&mut self.begun, true) {
            self.out.put_u8(b',');
        }
        let without = self.tail.as_deref().and_then(|tail| entry.value.strip_suffix(tail.as_bytes()));
        object::splice(&mut self.out, without.unwrap_or(&entry.value), entry.revision);
        if without.is_some() {
            self.out.put_u8(b'}');
        }
    }

    fn close(&mut self) {
        self.out.put_slice(b"]}");
    }

    /// What was written since the last time.
    fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.out).freeze()
    }
}
