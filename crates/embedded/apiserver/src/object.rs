//! Objects between the store and the wire.
//!
//! A stored value is the object's JSON without its `resourceVersion`, begins with its metadata and ends with its kind, so that the
//! revision that the store gave it is put in by copying bytes: reads, lists and watches need no parsing.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{Map, Value};

use knoll_kube_store::Entry;

const HEAD: &[u8] = b"{\"metadata\":{";

/// The stored form of an object.
pub fn encode(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(HEAD);
    let mut first = true;
    let pair = |out: &mut Vec<u8>, first: &mut bool, key: &str, value: &Value| {
        if !std::mem::take(first) {
            out.push(b',');
        }
        // Writing JSON into a Vec cannot fail.
        let _ = serde_json::to_writer(&mut *out, key);
        out.push(b':');
        let _ = serde_json::to_writer(&mut *out, value);
    };
    if let Some(metadata) = object["metadata"].as_object() {
        for (key, value) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
            pair(&mut out, &mut first, key, value);
        }
    }
    out.push(b'}');
    first = false;
    let others = |key: &str| !matches!(key, "metadata" | "apiVersion" | "kind");
    for (key, value) in object.as_object().into_iter().flatten().filter(|(key, _)| others(key)) {
        pair(&mut out, &mut first, key, value);
    }
    match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some(version), Some(kind)) => out.extend_from_slice(tail(version, kind).as_bytes()),
        _ => out.push(b'}'),
    }
    out.into()
}

/// What the stored form of an object of that version and kind ends with, so that a list can leave it out.
pub fn tail(api_version: &str, kind: &str) -> String {
    format!(",\"apiVersion\":{},\"kind\":{}}}", Value::from(api_version), Value::from(kind))
}

/// Appends the object's JSON, with that revision as its `resourceVersion`.
pub fn splice(out: &mut BytesMut, stored: &[u8], revision: u64) {
    let rest = stored.strip_prefix(HEAD).unwrap_or_default();
    let mut number = itoa(revision);
    out.reserve(stored.len() + 48);
    out.put_slice(HEAD);
    out.put_slice(b"\"resourceVersion\":\"");
    out.put_slice(number.make_contiguous());
    out.put_slice(if rest.first() == Some(&b'}') { b"\"" } else { b"\"," });
    out.put_slice(rest);
}

fn itoa(mut number: u64) -> std::collections::VecDeque<u8> {
    let mut digits = std::collections::VecDeque::with_capacity(20);
    loop {
        digits.push_front(b'0' + u8::try_from(number % 10).unwrap_or_default());
        number /= 10;
        if number == 0 {
            return digits;
        }
    }
}

/// The object that was stored, with that revision as its `resourceVersion`.
pub fn decode(stored: &[u8], revision: u64) -> Result<Value, serde_json::Error> {
    let mut object: Value = serde_json::from_slice(stored)?;
    metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
    Ok(object)
}

/// The object of an entry.
pub fn decode_entry(entry: &Entry) -> Result<Value, serde_json::Error> {
    decode(&entry.value, entry.revision)
}

/// The object's `metadata`, made if it is not there.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    match &mut object["metadata"] {
        Value::Object(metadata) => metadata,
        // It was made an object just above.
        _ => unreachable!("metadata is an object"),
    }
}

/// `metadata.KEY` as text; empty where there is none.
pub fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The object is on its way out.
pub fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Sets or, with `None`, removes a field of the metadata.
pub fn set_meta(object: &mut Value, key: &str, value: Option<Value>) {
    let metadata = metadata_mut(object);
    match value {
        Some(value) => metadata.insert(key.to_owned(), value),
        None => metadata.remove(key),
    };
}

/// The parts of the metadata that selectors and the garbage collector need, read without the rest of the object.
#[derive(Debug, Deserialize)]
pub struct Light {
    pub metadata: LightMeta,
}

/// See [`Light`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LightMeta {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub uid: String,
    #[serde(default)]
    pub labels: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    pub owner_references: Vec<Owner>,
    /// What must happen before it may go.
    #[serde(default)]
    pub finalizers: Vec<String>,
    /// Set when it is on its way out.
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
    /// When it was made.
    #[serde(default)]
    pub creation_timestamp: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The owner's API version.
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// A foreground deletion of the owner waits for this object.
    #[serde(default)]
    pub block_owner_deletion: bool,
}

/// Reads the light part of a stored object.
pub fn light(stored: &[u8]) -> Result<Light, serde_json::Error> {
    serde_json::from_slice(stored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn splicing_equals_decoding() {
        for object in [
            json!({"kind": "A", "metadata": {"name": "x", "resourceVersion": "7"}, "data": {"a": "b\"\n"}}),
            json!({"metadata": {"resourceVersion": "7"}}),
            json!({"metadata": {}, "z": [1, 2.5, null, true]}),
        ] {
            for revision in [0, 9, 10, u64::MAX] {
                let stored = encode(&object);
                let mut out = BytesMut::new();
                splice(&mut out, &stored, revision);
                let spliced: Value = serde_json::from_slice(&out).unwrap();
                assert_eq!(spliced, decode(&stored, revision).unwrap());
                assert_eq!(spliced["metadata"]["resourceVersion"], revision.to_string());
            }
        }
    }
}
