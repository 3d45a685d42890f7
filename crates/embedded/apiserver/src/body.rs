//! Request bodies: bounded in size and depth, in JSON, YAML or, for what `kubectl create` sends, protobuf.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};

use crate::decode::{self, Decoded, YamlError, summary};
use crate::kinds::Rules;
use crate::query::FieldValidation;
use crate::status::{ApiError, Result};
use crate::{Call, protobuf};
use knoll_kube_model::schema::type_name;

/// The largest body that is taken, as in Kubernetes.
const LIMIT: usize = 3 * 1024 * 1024;

/// How long a client may take to send a body: the time that Kubernetes gives a whole request.
const TIME: Duration = Duration::from_secs(60);

/// What a body is first read into, to see what it is.
const TYPE_META: &str =
    "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";

pub async fn bytes(body: Body) -> Result<Bytes> {
    bytes_within(body, TIME).await
}

async fn bytes_within(body: Body, time: Duration) -> Result<Bytes> {
    let Ok(read) = tokio::time::timeout(time, Limited::new(body, LIMIT).collect()).await else {
        let why = "the body of the request did not come in time";
        return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "Timeout", why));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ApiError::too_large(format!("Request entity too large: limit is {LIMIT}")))
        }
        Err(error) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
    }
}

/// The object that a body holds, of the kind that the call is about.
pub async fn read(call: &Call, body: Body) -> Result<Decoded> {
    read_as(call, body, &call.resource.kind).await
}

/// The object that a body holds, of that kind.
pub async fn read_as(call: &Call, body: Body, kind: &str) -> Result<Decoded> {
    let form = Form::of(call)?;
    let bytes = bytes(body).await?;
    let unrecognized = |why: String| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({})",
            summary(&bytes)
        ))
    };
    let mut decoded = form.decode(call, &bytes, kind, &unrecognized)?;
    if decoded.value.is_null() {
        decoded.value = json!({});
    }
    type_meta(&decoded.value)
        .map_err(|why| unrecognized(format!("couldn't get version/kind; json parse error: {why}")))?;
    if call.resource.rules == Rules::Custom && kind == call.resource.kind && text(&decoded.value, "kind").is_empty() {
        return Err(unrecognized(format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&bytes))));
    }
    Ok(decoded)
}

/// The options of a deletion, or null when there are none.
pub async fn read_delete_options(call: &Call, body: Body) -> Result<Value> {
    let bytes = bytes(body).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let form = Form::of(call)?;
    let failed = |why: String| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why);
    let value = form.decode(call, &bytes, "DeleteOptions", &failed)?.value;
    type_meta(&value).map_err(|why| failed(format!("couldn't get version/kind; json parse error: {why}")))?;
    match text(&value, "kind") {
        "" | "DeleteOptions" => Ok(value),
        kind => {
            let version = text(&value, "apiVersion");
            Err(failed(format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:110\""
            )))
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn type_meta(value: &Value) -> std::result::Result<(), String> {
    if !value.is_object() {
        return Err(format!("json: cannot unmarshal {} into Go value of type {TYPE_META}", type_name(value)));
    }
    for key in ["apiVersion", "kind"] {
        if !matches!(value[key], Value::Null | Value::String(_)) {
            let found = type_name(&value[key]);
            return Err(format!("json: cannot unmarshal {found} into Go struct field .{key} of type string"));
        }
    }
    Ok(())
}

/// The form of a body.
enum Form {
    Json,
    Yaml,
    Protobuf,
}

impl Form {
    fn of(call: &Call) -> Result<Self> {
        match call.content_type() {
            "application/json" | "" | "*/*" => Ok(Self::Json),
            "application/yaml" => Ok(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(Self::Protobuf),
            _ => Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )),
        }
    }

    fn decode(&self, call: &Call, bytes: &[u8], kind: &str, refuse: &dyn Fn(String) -> ApiError) -> Result<Decoded> {
        match self {
            Self::Json => {
                decode::json(bytes).map_err(|why| refuse(format!("couldn't get version/kind; json parse error: {why}")))
            }
            Self::Yaml => {
                let strict = call.query.field_validation() == FieldValidation::Strict;
                decode::yaml(bytes, strict).map(Decoded::from).map_err(|error| match error {
                    YamlError::Syntax(why) => refuse(why),
                    YamlError::Duplicate(why) => {
                        let version = &call.resource.version;
                        ApiError::bad_request(format!(
                            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {why}"
                        ))
                    }
                })
            }
            Self::Protobuf => {
                protobuf::decode(bytes).map(Decoded::from).map_err(|e| ApiError::bad_request(e.to_string()))
            }
        }
    }
}

/// The body of a patch: JSON, whatever the form of the patch.
pub fn parse_patch(bytes: &[u8]) -> Result<Decoded> {
    decode::json(bytes).map_err(|why| ApiError::bad_request(format!("error decoding patch: {why}")))
}

/// The configuration of an apply, in YAML, of which JSON is a part.
pub fn parse_apply(bytes: &[u8], validation: FieldValidation) -> Result<Value> {
    let converting = "error converting YAML to JSON";
    let value = decode::yaml(bytes, validation == FieldValidation::Strict).map_err(|error| {
        ApiError::bad_request(match error {
            YamlError::Syntax(why) => format!("error decoding YAML: {converting}: {why}"),
            YamlError::Duplicate(why) => format!("error strict decoding YAML: {converting}: {why}"),
        })
    })?;
    match value {
        Value::Null => Ok(json!({})),
        Value::Object(_) => Ok(value),
        other => Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            type_name(&other)
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use futures::{StreamExt, stream};

    use super::*;

    /// The status with which a body is refused, or how long it is.
    async fn read(body: Body, time: Duration) -> std::result::Result<usize, StatusCode> {
        let read = tokio::time::timeout(Duration::from_secs(20), bytes_within(body, time)).await;
        read.expect("the read ends").map(|bytes| bytes.len()).map_err(|error| error.code)
    }

    #[tokio::test]
    async fn a_body_is_taken_up_to_its_limit_and_no_further() {
        assert_eq!(read(Body::from(vec![b' '; LIMIT]), TIME).await, Ok(LIMIT));
        assert_eq!(read(Body::from(vec![b' '; LIMIT + 1]), TIME).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
        // A body of unknown length that never ends is cut off at the limit.
        let endless = stream::repeat(Bytes::from_static(&[b' '; 4096])).map(Ok::<_, std::io::Error>);
        assert_eq!(read(Body::from_stream(endless), TIME).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_in_time_is_refused() {
        let begun = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]).chain(stream::pending());
        let time = Duration::from_millis(100);
        assert_eq!(read(Body::from_stream(begun), time).await, Err(StatusCode::REQUEST_TIMEOUT));
    }
}
