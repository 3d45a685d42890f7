//! What the hub answers when it cannot do what it was asked for.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use knoll_api::wire::{ErrorBody, LogOffset};
use serde_json::json;

use crate::{bundle, chunks, state_file, variables, versions};

/// A request that failed. The message is a sentence for a person and never holds a secret value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no token, or the API does not know it.
    #[error("{0}")]
    Unauthorized(String),
    /// The pod is not the one that may do this.
    #[error("{0}")]
    Fenced(String),
    /// Another claim to write the state was made since.
    #[error("another pod has claimed the state")]
    Superseded,
    /// The content does not follow on what is stored.
    #[error("{0}")]
    Conflict(String),
    /// A part of the log does not follow on what is stored.
    #[error("the log has {has} bytes, so the next part begins there")]
    Offset {
        /// How many bytes the hub has.
        has: u64,
    },
    /// There is nothing to give.
    #[error("{0}")]
    Missing(String),
    /// What the user wrote cannot be carried out.
    #[error("{0}")]
    Invalid(String),
    /// Something is not there yet.
    #[error("{0}")]
    NotYet(String),
    /// The Kubernetes API failed.
    #[error("the Kubernetes API failed: {}", knoll_bundle::said(.0))]
    Api(#[from] kube::Error),
    /// Stored content is not what was stored.
    #[error(transparent)]
    Chunks(#[from] chunks::Error),
    /// The state of a Workspace is not what was stored.
    #[error(
        "the state is damaged: {0}; `knoll state history` lists the earlier ones, `knoll state rollback SERIAL` makes one of them the state"
    )]
    Damaged(Box<Error>),
    /// A head cannot be read.
    #[error(transparent)]
    Head(#[from] versions::HeadError),
    /// The hub itself failed.
    #[error("the hub failed: {0}")]
    Internal(String),
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Error::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Error::Fenced(_) => StatusCode::FORBIDDEN,
            Error::Conflict(_) | Error::Offset { .. } => StatusCode::CONFLICT,
            Error::Missing(_) => StatusCode::NOT_FOUND,
            Error::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            // A runner tries these again.
            Error::Superseded | Error::NotYet(_) | Error::Api(_) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Chunks(_) | Error::Damaged(_) | Error::Head(_) => StatusCode::CONFLICT,
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
            Error::Offset { has } => {
                let LogOffset { offset } = LogOffset { offset: *has };
                json!({ "error": error, "offset": offset })
            }
            _ => json!(ErrorBody { error }),
        };
        (status, Json(body)).into_response()
    }
}

impl From<state_file::Error> for Error {
    fn from(error: state_file::Error) -> Self {
        Error::Invalid(error.to_string())
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

impl From<variables::Error> for Error {
    fn from(error: variables::Error) -> Self {
        match error {
            variables::Error::Api(error) => Error::Api(error),
            error => Error::Invalid(error.to_string()),
        }
    }
}
