//! Errors as Kubernetes answers them: a `Status` object with a code, a reason and a sentence.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Value, json};

use knoll_kube_model::schema::FieldError;

/// An error that a client sees as a `Status`.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub code: StatusCode,
    /// The machine-readable reason; empty where Kubernetes gives none.
    pub reason: &'static str,
    /// The sentence for people.
    pub message: String,
    /// `details` of the Status, where there are any.
    pub details: Option<Value>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// The answer of everything that can go wrong in a way that the client is told of.
pub type Result<T> = std::result::Result<T, ApiError>;

/// What an error is about: the resource's group and plural name, and the object's name.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name of the resource.
    pub resource: &'a str,
    pub name: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.to_owned() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn details(&self) -> Value {
        let mut details = json!({});
        if !self.name.is_empty() {
            details["name"] = self.name.into();
        }
        if !self.group.is_empty() {
            details["group"] = self.group.into();
        }
        details["kind"] = self.resource.into();
        details
    }
}

impl ApiError {
    /// An error with a code, a reason and a sentence, and no details.
    pub fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The request makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// No valid credentials came with the request.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// The user may not do that.
    pub(crate) fn forbidden(subject: Subject<'_>, why: &str) -> Self {
        let message = if subject.name.is_empty() {
            format!("{} is forbidden: {why}", subject.qualified())
        } else {
            format!("{} \"{}\" is forbidden: {why}", subject.qualified(), subject.name)
        };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with(subject.details())
    }

    /// There is no such object.
    pub(crate) fn not_found(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" not found", subject.qualified(), subject.name);
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).with(subject.details())
    }

    /// There is no such API.
    pub(crate) fn no_such_resource() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    /// There is no such method at that path.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(json!({}))
    }

    /// The resource is there, but not that verb.
    pub(crate) fn method_not_supported(subject: Subject<'_>, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{}\"", subject.qualified());
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(subject.details())
    }

    /// An object of that name is there already.
    pub(crate) fn already_exists(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" already exists", subject.qualified(), subject.name);
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with(subject.details())
    }

    /// The object is not the one that the client saw.
    pub fn conflict(subject: Subject<'_>, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{}\": {why}", subject.qualified(), subject.name);
        Self::new(StatusCode::CONFLICT, "Conflict", message).with(subject.details())
    }

    /// The client's `resourceVersion` is not the object's.
    pub(crate) fn modified(subject: Subject<'_>) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// The object is not valid. `kind` is the Kind, not the plural.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let joined = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let causes: Vec<Value> =
            errors.iter().map(|e| json!({"reason": e.reason(), "message": e.body(), "field": e.field})).collect();
        let mut details = json!({"causes": causes});
        if !kind.is_empty() {
            details["kind"] = kind.into();
        }
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !group.is_empty() {
            details["group"] = group.into();
        }
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", format!("{qualified} \"{name}\" is invalid: {joined}"))
            .with(details)
    }

    /// The revision that was asked for is gone.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The body's form is not one that is understood here.
    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The answer has no form that the client takes.
    pub(crate) fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The request is larger than the server takes.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The server failed; its log says more.
    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "request failed inside the server");
        let message = format!("Internal error occurred: {error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
            .with(json!({"causes": [{"message": error.to_string()}]}))
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        json_response(self.code, &self.status())
    }
}

/// There is nothing at that path, not even an API.
pub fn page_not_found() -> Response {
    let mut response = bytes_response(StatusCode::NOT_FOUND, "404 page not found\n");
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// A response whose body is that JSON value.
pub fn json_response(code: StatusCode, value: &Value) -> Response {
    bytes_response(code, value.to_string())
}

/// A response whose body is JSON already.
pub fn bytes_response(code: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
