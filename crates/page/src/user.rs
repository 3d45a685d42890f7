//! Who asks: a session's cookie for pages and the API, or a bearer token for the API.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use knoll_core::approval::Decider;
use kube::Client;
use ring::digest::{SHA256, digest};

use crate::app::App;
use crate::clients::BearerToken;
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
        let (token, csrf) = match parts.headers.get(AUTHORIZATION).filter(|_| is_api) {
            Some(header) => (bearer(header).ok_or(PageError::SignIn)?, None),
            None => {
                let session = app.sessions.read(&parts.headers).ok_or(PageError::SignIn)?;
                (session.token, Some(session.csrf))
            }
        };
        let (client, decider) = app.clients.of(&token).await?;
        let sent = parts.headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Self { decider, client, token, csrf, sent })
    }
}

fn bearer(header: &http::HeaderValue) -> Option<BearerToken> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    BearerToken::new(token).filter(|_| scheme.eq_ignore_ascii_case("bearer"))
}
