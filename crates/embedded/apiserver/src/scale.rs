//! The `scale` subresource of custom resources: their replicas as an `autoscaling/v1` Scale.

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::status::{ApiError, Result};
use crate::{Call, Server, body, object, options, patching, read, write};
use knoll_kube_model::patch;
use knoll_kube_model::schema::FieldError;

/// Where a custom resource keeps what a Scale shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The replicas that are wanted.
    pub spec: String,
    /// The replicas that are there.
    pub status: String,
    /// The selector of the pods, as text.
    pub selector: Option<String>,
}

impl Paths {
    /// Reads `subresources.scale` of a definition's version.
    pub fn parse(scale: &Value) -> Option<Self> {
        let text = |key: &str| scale[key].as_str().map(str::to_owned);
        Some(Self {
            spec: text("specReplicasPath")?,
            status: text("statusReplicasPath")?,
            selector: text("labelSelectorPath"),
        })
    }

    /// What is wrong with the replicas of a custom resource.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        [&self.spec, &self.status].into_iter().filter_map(|path| replicas_error(object, path)).collect()
    }
}

fn replicas_error(object: &Value, path: &str) -> Option<FieldError> {
    match number(object, path) {
        Err(why) => Some(FieldError::invalid(path, 0, why)),
        Ok(Some(count)) if count < 0 => Some(FieldError::invalid(path, count, "should be a non-negative integer")),
        Ok(Some(count)) if count > i64::from(i32::MAX) => {
            Some(FieldError::invalid(path, count, "should be less than or equal to 2147483647"))
        }
        Ok(_) => None,
    }
}

/// The number at a path, where there is one.
fn number(object: &Value, path: &str) -> std::result::Result<Option<i64>, String> {
    let mut at = object;
    let refuse = |found: &Value, expected: &str| {
        let (shown, kind) = match found {
            Value::Bool(b) => (b.to_string(), "bool"),
            Value::String(text) => (text.clone(), "string"),
            Value::Array(_) => (patch::go_text(found), "[]interface {}"),
            Value::Object(_) => (patch::go_text(found), "map[string]interface {}"),
            Value::Number(n) => (n.to_string(), if n.is_f64() { "float64" } else { "int64" }),
            Value::Null => ("<nil>".to_owned(), "<nil>"),
        };
        Err(format!("{path} accessor error: {shown} is of the type {kind}, expected {expected}"))
    };
    for key in path.trim_start_matches('.').split('.') {
        match at {
            Value::Object(map) => match map.get(key) {
                Some(inner) => at = inner,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => return refuse(other, "map[string]interface{}"),
        }
    }
    match at.as_i64() {
        Some(count) => Ok(Some(count)),
        None => refuse(at, "int64"),
    }
}

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

fn scale_of(object: &Value, paths: &Paths) -> Value {
    let mut meta = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(key) {
            meta[key] = value.clone();
        }
    }
    let count = |path: &str| number(object, path).ok().flatten();
    let mut spec = json!({});
    if let Some(replicas) = count(&paths.spec).filter(|n| *n != 0) {
        spec["replicas"] = replicas.into();
    }
    let mut status = json!({"replicas": count(&paths.status).unwrap_or(0)});
    let selector = paths.selector.as_deref().and_then(|path| object.pointer(&pointer(path))?.as_str());
    if let Some(selector) = selector.filter(|s| !s.is_empty()) {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status})
}

/// A request to `RESOURCE/NAME/scale`.
pub async fn serve(server: &Server, call: &Call, verb: &str, request: Request) -> Result<Response> {
    let paths = call.resource.scale.clone().ok_or_else(ApiError::no_such_resource)?;
    let name = call.name()?;
    let current = || -> Result<Value> {
        let found = server.read(&call.resource, call.target.namespace.as_deref(), name)?;
        found.ok_or_else(|| ApiError::not_found(call.resource.subject(name)))
    };
    let object = match verb {
        "get" => current()?,
        "update" => {
            options::check(options::Kind::Update, &call.query)?;
            let sent = body::read_as(call, request.into_body(), "Scale").await?.value;
            let version = object::meta(&sent, "resourceVersion").to_owned();
            write::change(server, call, |old| {
                if !version.is_empty() && version != object::meta(old, "resourceVersion") {
                    return Err(ApiError::modified(call.resource.subject(name)));
                }
                Ok(scaled(old, &sent, &paths))
            })
            .await?
        }
        "patch" => {
            let bytes = body::bytes(request.into_body()).await?;
            let form = call.content_type().to_owned();
            options::check(options::Kind::Patch, &call.query)?;
            let change = body::parse_patch(&bytes)?.value;
            write::change(server, call, |old| {
                let before = scale_of(old, &paths);
                let after = match form.as_str() {
                    "application/json-patch+json" => patch::json_patch(&before, &change),
                    "application/merge-patch+json" => patch::merge_patch(&before, &change),
                    _ => return Err(patching::unknown(&call.resource)),
                };
                let after = after.map_err(|error| patching::failed(&error))?;
                Ok(scaled(old, &after, &paths))
            })
            .await?
        }
        other => return Err(ApiError::method_not_supported(call.resource.subject(""), other)),
    };
    read::answer(server, call, StatusCode::OK, &scale_of(&object, &paths))
}

/// The object with the replicas of a Scale.
fn scaled(object: &Value, scale: &Value, paths: &Paths) -> Value {
    let mut object = object.clone();
    let mut at = &mut object;
    for key in paths.spec.trim_start_matches('.').split('.') {
        at = &mut at[key];
    }
    *at = scale["spec"]["replicas"].as_i64().unwrap_or(0).into();
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_numbers_that_are_not_negative() {
        let paths = Paths { spec: ".spec.replicas".into(), status: ".status.replicas".into(), selector: None };
        let check = |object: Value| paths.validate(&object).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(check(json!({"spec": {"replicas": 1}})).is_empty());
        assert_eq!(
            check(json!({"spec": {"replicas": -1}})),
            [".spec.replicas: Invalid value: -1: should be a non-negative integer"]
        );
        assert_eq!(
            check(json!({"spec": [], "status": {"replicas": "x"}})),
            [
                ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: [] is of the type []interface {}, expected map[string]interface{}",
                ".status.replicas: Invalid value: 0: .status.replicas accessor error: x is of the type string, expected int64"
            ]
        );
    }
}
