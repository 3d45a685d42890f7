//! What the hub answers when it cannot do what it was asked for.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use knoll_api::wire::{ErrorBody, LogOffset};
use knoll_storage::{Error as StorageError, VariablesError, is_invalid, is_namespace_terminating, message_of};
use serde_json::json;

use crate::bundle;

/// A request that failed. The message is a sentence for a person and never holds a secret value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no token, or the API does not know it.
    #[error("{0}")]
    Unauthorized(String),
    /// The pod is not the one that may do this.
    #[error("{0}")]
    Fenced(String),
    /// There is nothing to give.
    #[error("{0}")]
    Missing(String),
    /// What the user wrote cannot be carried out.
    #[error("{0}")]
    Invalid(String),
    /// What the run was planned with is not what is there now.
    #[error("{0}")]
    Changed(String),
    /// Something is not there yet.
    #[error("{0}")]
    NotYet(String),
    /// The Kubernetes API failed.
    #[error("the Kubernetes API failed: {}", message_of(.0))]
    Api(#[from] kube::Error),
    /// What is stored cannot be read or written.
    #[error(transparent)]
    Storage(StorageError),
    #[error("the request is larger than {} KiB, which is the most that the hub takes here", .0 >> 10)]
    TooLarge(u64),
    #[error("the request does not declare its length")]
    NoLength,
    /// The body did not arrive in time.
    #[error("the request took more than {} seconds", .0.as_secs())]
    Slow(Duration),
    /// The budget of the hub or of the namespace has no room.
    #[error("the hub is busy with other requests; this one is made again")]
    Crowded,
    /// The client has shown too many bad tokens.
    #[error("too many requests with an invalid token")]
    Flooded,
    /// The hub itself failed.
    #[error("the hub failed: {0}")]
    Internal(String),
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Error::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Error::Fenced(_) => StatusCode::FORBIDDEN,
            Error::Missing(_) => StatusCode::NOT_FOUND,
            Error::Invalid(_) | Error::Changed(_) => StatusCode::UNPROCESSABLE_ENTITY,
            // A request that is made again cannot succeed either.
            Error::Api(error) if is_namespace_terminating(error) => StatusCode::GONE,
            Error::Api(error) if is_invalid(error) => StatusCode::UNPROCESSABLE_ENTITY,
            // A runner tries these again.
            Error::NotYet(_) | Error::Api(_) | Error::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Error::NoLength => StatusCode::LENGTH_REQUIRED,
            Error::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Error::Flooded => StatusCode::TOO_MANY_REQUESTS,
            Error::Storage(error) => match error {
                StorageError::Superseded | StorageError::Busy | StorageError::Api(_) => StatusCode::SERVICE_UNAVAILABLE,
                StorageError::Refused(_)
                | StorageError::Offset { .. }
                | StorageError::Blob(_)
                | StorageError::Damaged(_)
                | StorageError::Head(_) => StatusCode::CONFLICT,
                StorageError::NoState(_) | StorageError::NotKept { .. } => StatusCode::UNPROCESSABLE_ENTITY,
                StorageError::Unidentified(_) | StorageError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            },
            Error::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = self.status();
        let error = self.to_string();
        if status.is_server_error() {
            tracing::warn!(%status, error, "a request of a runner failed");
        }
        let body = match &self {
            Error::Storage(StorageError::Offset { has }) => {
                let LogOffset { offset } = LogOffset { offset: *has };
                json!({ "error": error, "offset": offset })
            }
            _ => json!(ErrorBody { error }),
        };
        (status, Json(body)).into_response()
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Api(error) => Error::Api(error),
            error => Error::Storage(error),
        }
    }
}

impl From<bundle::Error> for Error {
    fn from(error: bundle::Error) -> Self {
        match error {
            bundle::Error::Api(error) => Error::Api(error),
            error => Error::Invalid(error.to_string()),
        }
    }
}

impl From<VariablesError> for Error {
    fn from(error: VariablesError) -> Self {
        match error {
            VariablesError::Api(error) => Error::Api(error),
            error => Error::Invalid(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use kube::core::Status;

    use super::*;

    fn answer(code: u16, reason: &str) -> StatusCode {
        let details = json!({"causes": [{"reason": reason}]});
        let status: Status = serde_json::from_value(json!({"code": code, "details": details})).unwrap();
        Error::from(StorageError::Api(kube::Error::Api(Box::new(status)))).status()
    }

    /// Once, a runner in a namespace that was being deleted sent its log again until its pod was killed, and one whose
    /// state had a Secret of another type in its place asked for its job for ever.
    #[test]
    fn a_failure_of_the_api_is_tried_again_unless_it_comes_each_time() {
        let rows = [
            (403, "NamespaceTerminating", StatusCode::GONE),
            (403, "Other", StatusCode::SERVICE_UNAVAILABLE),
            (500, "NamespaceTerminating", StatusCode::SERVICE_UNAVAILABLE),
            (429, "", StatusCode::SERVICE_UNAVAILABLE),
            (409, "", StatusCode::SERVICE_UNAVAILABLE),
            (422, "FieldValueInvalid", StatusCode::UNPROCESSABLE_ENTITY),
        ];
        for (code, reason, expect) in rows {
            assert_eq!(answer(code, reason), expect, "{code} {reason}");
        }
    }
}
