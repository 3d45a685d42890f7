//! Request bodies: bounded in size and depth, in JSON, YAML or, for what `kubectl create` sends, protobuf.

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use crate::server::status::{ApiError, Result};
use crate::server::{Call, protobuf};

/// The largest body that is taken, as in Kubernetes.
const LIMIT: usize = 3 * 1024 * 1024;

/// The whole body.
pub async fn bytes(body: Body) -> Result<Bytes> {
    match Limited::new(body, LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ApiError::too_large(format!("Request entity too large: limit is {LIMIT}")))
        }
        Err(error) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// The body as a JSON value.
pub async fn read(call: &Call, body: Body) -> Result<Value> {
    let bytes = bytes(body).await?;
    parse(call, &bytes)
}

/// The body as a JSON value, or null when there is none.
pub async fn read_optional(call: &Call, body: Body) -> Result<Value> {
    let bytes = bytes(body).await?;
    if bytes.is_empty() { Ok(Value::Null) } else { parse(call, &bytes) }
}

fn parse(call: &Call, bytes: &[u8]) -> Result<Value> {
    match call.content_type() {
        "application/json" | "" | "*/*" => parse_json(bytes),
        "application/yaml" => parse_yaml(bytes),
        "application/vnd.kubernetes.protobuf" => {
            protobuf::decode(bytes).map_err(|e| ApiError::bad_request(e.to_string()))
        }
        other => Err(ApiError::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf (got `{other}`)"
        ))),
    }
}

fn parse_json(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|e| ApiError::bad_request(format!("the body is not valid JSON: {e}")))
}

/// The body of a patch: JSON, whatever the form of the patch.
pub fn parse_patch(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))
}

/// A body in YAML, of which JSON is a part.
pub fn parse_yaml(bytes: &[u8]) -> Result<Value> {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("the body is not valid UTF-8"))?;
    serde_saphyr::from_str(text).map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))
}
