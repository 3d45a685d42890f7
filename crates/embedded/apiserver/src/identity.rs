//! Who makes a request, and how the server knows.

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::Server;
use crate::status::{ApiError, Result};

/// The members of this group may do everything.
pub const MASTERS: &str = "system:masters";
/// The username of every client that talks to the server in process.
pub const IN_PROCESS_USER: &str = "system:knoll";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    /// The user's UID, where there is one.
    pub uid: String,
    pub groups: Vec<String>,
    /// What else is known of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// A member of the all-powerful group.
    pub fn admin(name: &str) -> Self {
        let groups = vec![MASTERS.to_owned(), "system:authenticated".to_owned()];
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.groups.iter().any(|g| g == MASTERS)
    }

    /// `userInfo` of reviews.
    pub fn user_info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// The user whose bearer token the request has.
pub fn authenticate(server: &Server, headers: &HeaderMap) -> Result<Identity> {
    let Some(header) = headers.get(http::header::AUTHORIZATION) else {
        return Ok(Identity {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..Identity::default()
        });
    };
    let token = Some(header)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or_else(ApiError::unauthorized)?;
    by_token(server, token, &[]).map(|(identity, _)| identity).ok_or_else(ApiError::unauthorized)
}

/// The user of a token that is meant for one of these audiences (none: the API server itself), and the audiences
/// that matched.
pub fn by_token(server: &Server, token: &str, audiences: &[String]) -> Option<(Identity, Vec<String>)> {
    let own = server.tokens.api_audience();
    let wanted: Vec<String> = if audiences.is_empty() { vec![own.to_owned()] } else { audiences.to_vec() };
    if let Some(identity) = server.static_tokens.find(token) {
        let matched: Vec<String> = wanted.into_iter().filter(|a| a == own).collect();
        return (!matched.is_empty()).then_some((identity, matched));
    }
    server.verify_service_account(token, &wanted)
}

/// Tokens that are valid for as long as the server lives in its data folder, such as the administrator's.
#[derive(Default)]
pub struct StaticTokens(Vec<(String, Identity)>);

impl StaticTokens {
    /// Tokens and whose they are.
    pub fn new(tokens: Vec<(String, Identity)>) -> Self {
        Self(tokens)
    }

    fn find(&self, token: &str) -> Option<Identity> {
        // Comparing digests takes the same time wherever two tokens differ.
        let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let wanted = digest(token);
        self.0.iter().find(|(known, _)| digest(known).as_ref() == wanted.as_ref()).map(|(_, identity)| identity.clone())
    }
}
