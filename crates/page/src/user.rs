//! Who asks: a session's cookie for pages and the API, or a bearer token for the API.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use knoll_core::approval::Decider;
use knoll_serve::{Connection, Held};
use kube::Client;
use ring::digest::{SHA256, digest};

use crate::app::App;
use crate::clients::{BearerToken, ShownBy};
use crate::error::PageError;

/// The header of the JSON API with the token of the session.
pub const CSRF_HEADER: &str = "x-csrf-token";

/// A user who is signed in.
pub struct User {
    /// The user's name and groups, as the API server has them.
    pub decider: Decider,
    /// A client with the user's rights.
    pub client: Client,
    pub token: BearerToken,
    /// What forms of the session have to send. A request with a bearer token needs none: no browser adds one by itself.
    pub csrf: Option<String>,
    sent: Option<String>,
    /// Held until the request is answered.
    _turn: Option<Held>,
}

impl User {
    /// Refuses a request that changes something and was not made on this page. `form` is the token in the form.
    pub fn check_origin(&self, form: Option<&str>) -> Result<(), PageError> {
        let Some(csrf) = &self.csrf else { return Ok(()) };
        let same = |sent: &str| digest(&SHA256, sent.as_bytes()).as_ref() == digest(&SHA256, csrf.as_bytes()).as_ref();
        let sent = form.or(self.sent.as_deref());
        if sent.is_some_and(same) {
            return Ok(());
        }
        let text = "The request has no token of this session, so it may not come from this page. Reload the page, and try again.";
        Err(PageError::Forbidden(text.to_owned()))
    }

    /// The token for forms; empty where none is needed.
    pub fn csrf(&self) -> &str {
        self.csrf.as_deref().unwrap_or_default()
    }
}

impl FromRequestParts<Arc<App>> for User {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, PageError> {
        let is_api = parts.uri.path().starts_with("/api/");
        let connection = connection(parts)?;
        let (token, csrf, shown_by) = match parts.headers.get(AUTHORIZATION).filter(|_| is_api) {
            Some(header) => (bearer(header).ok_or(PageError::SignIn)?, None, ShownBy::Stranger(connection.address())),
            None => {
                let session = app.sessions.read(&parts.headers).ok_or(PageError::SignIn)?;
                (session.token, Some(session.csrf), ShownBy::Session)
            }
        };
        let (client, decider) = app.clients.of(&token, shown_by).await?;
        if !connection.identify(&decider.name, None) {
            let text = "You have too many connections to the page. Close some windows, and try again.";
            return Err(PageError::Busy(text.to_owned()));
        }
        // A stream has a permit of its own, as it lives long.
        let turn = if is_stream(parts.uri.path()) { None } else { Some(app.turn(&decider.name).await?) };
        let sent = parts.headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Self { decider, client, token, csrf, sent, _turn: turn })
    }
}

/// The connection of a request.
pub fn connection(parts: &Parts) -> Result<Connection, PageError> {
    let found = parts.extensions.get::<Connection>().cloned();
    found.ok_or_else(|| PageError::Busy("The address of the client is not known.".to_owned()))
}

/// Whether a path is that of live events or of the download of a log.
fn is_stream(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    matches!(parts.as_slice(), ["runs", _, _, "events" | "log"] | ["api", "runs", _, _, "events"])
}

fn bearer(header: &http::HeaderValue) -> Option<BearerToken> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    BearerToken::new(token).filter(|_| scheme.eq_ignore_ascii_case("bearer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_streams_and_downloads_have_no_turn() {
        for path in ["/runs/n/r/events", "/runs/n/r/log", "/api/runs/n/r/events"] {
            assert!(is_stream(path), "{path}");
        }
        for path in ["/", "/runs/n/log", "/runs/n/events", "/api/runs/n/r/log", "/runs/n/r/plan", "/api/runs/n/events"]
        {
            assert!(!is_stream(path), "{path}");
        }
    }
}
