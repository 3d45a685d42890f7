//! ConfigMaps and Secrets: keys, sizes, immutability, `stringData`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::kinds::Rules;
use crate::rules::drop_field;
use knoll_kube_model::schema::FieldError;

/// The most that the values of a ConfigMap or a Secret may hold together.
const LIMIT: usize = 1024 * 1024;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// The type, and `stringData` moved into `data`.
pub fn secret_defaults(object: &mut Value) {
    if object["type"].as_str().unwrap_or_default().is_empty() {
        object["type"] = "Opaque".into();
    }
    let Value::Object(plain) = object["stringData"].take() else {
        drop_field(object, "stringData");
        return;
    };
    drop_field(object, "stringData");
    for (key, value) in plain {
        let text = value.as_str().unwrap_or_default();
        object["data"][key] = STANDARD.encode(text).into();
    }
}

/// Keys, encoding, size, and what an immutable one may not change.
pub fn validate(rules: Rules, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for field in ["data", "binaryData"] {
        let encoded = field == "binaryData" || rules == Rules::Secret;
        for (key, value) in object[field].as_object().into_iter().flatten() {
            let path = format!("{field}[{key}]");
            if let Some(why) = bad_key(key) {
                errors.push(FieldError::invalid(path.as_str(), key.as_str(), why));
            }
            if field == "binaryData" && object["data"].get(key).is_some() {
                errors.push(FieldError::invalid(
                    format!("data[{key}]"),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
            let text = value.as_str().unwrap_or_default();
            size += if encoded { text.len() / 4 * 3 } else { text.len() };
        }
    }
    if rules == Rules::Secret {
        errors.extend(secret_type(object));
    }
    if size > LIMIT {
        let field = if rules == Rules::Secret { "data" } else { "[]" };
        errors.push(FieldError::too_long(field, LIMIT as u64));
    }
    let Some(old) = old else { return errors };
    if rules == Rules::Secret && object["type"] != old["type"] {
        errors.push(FieldError::invalid("type", object["type"].clone(), "field is immutable"));
    }
    if old["immutable"] == Value::Bool(true) {
        let why = "field is immutable when `immutable` is set";
        for field in ["immutable", "data", "binaryData"] {
            if object[field] != old[field] {
                errors.push(FieldError::forbidden(field, why));
            }
        }
    }
    errors
}

/// What a Secret of a type that Kubernetes knows must hold.
fn secret_type(secret: &Value) -> Vec<FieldError> {
    let data = &secret["data"];
    let required = |key: &str| data.get(key).is_none().then(|| FieldError::required(format!("data[{key}]"), ""));
    match secret["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().filter_map(required).collect(),
        "kubernetes.io/ssh-auth" => required("ssh-privatekey").into_iter().collect(),
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            ["username", "password"].into_iter().filter_map(required).collect()
        }
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            let named = secret["metadata"]["annotations"][NAME].as_str().is_some_and(|n| !n.is_empty());
            let field = format!("metadata.annotations[{NAME}]");
            if named { Vec::new() } else { vec![FieldError::required(field, "")] }
        }
        kind @ ("kubernetes.io/dockerconfigjson" | "kubernetes.io/dockercfg") => {
            let key = if kind.ends_with("json") { ".dockerconfigjson" } else { ".dockercfg" };
            let Some(text) = data[key].as_str() else { return required(key).into_iter().collect() };
            let bytes = STANDARD.decode(text).unwrap_or_default();
            let why = crate::decode::json(&bytes).err();
            let shown = "<secret contents redacted>";
            why.map(|why| FieldError::invalid(format!("data[{key}]"), shown, why)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn bad_key(key: &str) -> Option<&'static str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match key {
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        _ if key.starts_with("..") => Some("must not start with '..'"),
        _ if key.len() > 253 => Some("must be no more than 253 characters"),
        _ if key.is_empty() || !key.chars().all(legal) => Some(KEY),
        _ => None,
    }
}
