//! What can go wrong with a request, and the status that answers it.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use knoll_core::approval::NotWaiting;
use knoll_storage::{LogError, PlanTextError};

/// A request that is not answered with what it asked for.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Nobody is signed in, or the session has ended.
    #[error("Sign in to see this.")]
    SignIn,
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Invalid(String),
    /// What was to be changed is not as the user saw it.
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Busy(String),
    #[error("The cluster did not answer: {0}")]
    Cluster(String),
}

impl PageError {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::SignIn => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Cluster(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// There is no page under this address, or no object of that name.
    pub fn nothing_here() -> Self {
        Self::NotFound("There is nothing at this address.".to_owned())
    }
}

impl From<kube::Error> for PageError {
    fn from(error: kube::Error) -> Self {
        let message = knoll_storage::message_of(&error);
        match &error {
            kube::Error::Api(status) => match status.code {
                401 => Self::SignIn,
                403 => Self::Forbidden(message),
                404 => Self::NotFound(message),
                409 => Self::Conflict(message),
                400 | 422 => Self::Invalid(message),
                _ => Self::Cluster(message),
            },
            _ => Self::Cluster(message),
        }
    }
}

impl From<NotWaiting> for PageError {
    fn from(why: NotWaiting) -> Self {
        Self::Conflict(format!("{why}."))
    }
}

impl From<PlanTextError> for PageError {
    fn from(error: PlanTextError) -> Self {
        match error {
            PlanTextError::Api(error) => error.into(),
            error => Self::Conflict(format!("The plan cannot be shown: {error}.")),
        }
    }
}

impl From<LogError> for PageError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Api(error) => error.into(),
            error => Self::Cluster(error.to_string()),
        }
    }
}

/// The message of a failed request, for the layer that renders it as HTML or JSON.
#[derive(Clone, Debug)]
pub struct Failure {
    pub message: String,
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(Failure { message: self.to_string() });
        response
    }
}
