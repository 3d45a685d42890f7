//! The query of a request and the form of the answer that its `Accept` header asks for.

use std::collections::HashMap;

use http::HeaderMap;

use crate::status::{ApiError, Result};

/// The decoded query, by key. Keys that come more than once (`command`) keep every value.
#[derive(Clone, Debug, Default)]
pub struct Query(HashMap<String, Vec<String>>);

impl Query {
    /// Reads a query string; bytes that are no UTF-8 are replaced.
    pub fn parse(raw: Option<&str>) -> Self {
        let mut map: HashMap<String, Vec<String>> = HashMap::new();
        for pair in raw.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            map.entry(decode(key)).or_default().push(decode(value));
        }
        Self(map)
    }

    /// The first value of a key; empty where there is none.
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).and_then(|v| v.first()).map_or("", String::as_str)
    }

    /// Every value of a key.
    pub fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// The key is there and neither `0` nor `false`, as Kubernetes reads booleans.
    pub fn flag(&self, key: &str) -> bool {
        match self.0.get(key).and_then(|v| v.first()) {
            Some(value) => !matches!(value.to_ascii_lowercase().as_str(), "0" | "false"),
            None => false,
        }
    }

    /// The key's value as a number.
    pub fn number(&self, key: &str) -> Result<Option<i64>> {
        let text = self.get(key);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse()
            .map(Some)
            .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax")))
    }

    /// `dryRun=All`.
    pub fn dry_run(&self) -> bool {
        self.all("dryRun").iter().any(|v| v == "All")
    }

    /// `fieldValidation`, which is `Warn` unless said otherwise.
    pub fn field_validation(&self) -> FieldValidation {
        match self.get("fieldValidation") {
            "Strict" => FieldValidation::Strict,
            "Ignore" => FieldValidation::Ignore,
            _ => FieldValidation::Warn,
        }
    }
}

/// What happens to fields that the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    /// They are dropped, and a `Warning` header says so.
    Warn,
    /// The request is refused.
    Strict,
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'+', _) => out.push(b' '),
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Object,
    /// `meta.k8s.io/v1` Table, for `kubectl get`.
    Table,
    /// `PartialObjectMetadata`
    Metadata,
    /// `PartialObjectMetadataList`
    MetadataList,
}

const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The first form in the `Accept` header that the server has. JSON is the only encoding.
pub fn form(headers: &HeaderMap, custom: bool, verb: &str) -> Result<Form> {
    let accept = headers.get(http::header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("*/*");
    let mut known = custom;
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "*/*" | "application/*" | "") {
            continue;
        }
        known = true;
        let parameters: HashMap<&str, &str> = parts.filter_map(|p| p.split_once('=')).collect();
        let group = parameters.get("g").copied().unwrap_or_default();
        match (parameters.get("as").copied(), group) {
            (None, _) => return Ok(Form::Object),
            (Some("Table"), "meta.k8s.io") => return Ok(Form::Table),
            (Some("PartialObjectMetadata"), "meta.k8s.io") => return Ok(Form::Metadata),
            (Some("PartialObjectMetadataList"), "meta.k8s.io") => return Ok(Form::MetadataList),
            _ => {}
        }
    }
    let streams = if matches!(verb, "list" | "watch") {
        ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    } else {
        ""
    };
    let message = if known {
        format!("only the following media types are accepted: {MEDIA_TYPES}")
    } else {
        format!("406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}{streams}")
    };
    let mut error = ApiError::not_acceptable(message);
    error.details = (!known).then(|| serde_json::json!({}));
    Err(error)
}
