//! Who makes a request, and how the server knows.

use std::collections::BTreeMap;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::Server;
use crate::rbac::Wish;
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

/// The user behind a request's headers: the bearer token's, or the one that it impersonates.
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
    let identity = by_token(server, token, &[]).map(|(identity, _)| identity).ok_or_else(ApiError::unauthorized)?;
    impersonate(server, identity, headers)
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

/// Whoever a request says to act as, when this user may; else the user.
pub fn impersonate(server: &Server, identity: Identity, headers: &HeaderMap) -> Result<Identity> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let Some(user) = text("impersonate-user") else {
        return Ok(identity);
    };
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    let (resource, name, namespace) = match account {
        Some((namespace, name)) => ("serviceaccounts", name, Some(namespace)),
        None => ("users", user, None),
    };
    let name_of = Some(name);
    let wish = Wish::Resource { verb: "impersonate", group: "", resource, subresource: None, name: name_of, namespace };
    if server.grants(&identity, &wish).is_none() {
        let place =
            namespace.map_or("at the cluster scope".to_owned(), |place| format!("in the namespace \"{place}\""));
        return Err(ApiError::new(
            http::StatusCode::FORBIDDEN,
            "Forbidden",
            format!(
                "{resource} \"{name}\" is forbidden: User \"{}\" cannot impersonate resource \"{resource}\" in API group \"\" {place}",
                identity.name
            ),
        ));
    }
    let mut groups: Vec<String> =
        headers.get_all("impersonate-group").iter().filter_map(|v| v.to_str().ok()).map(str::to_owned).collect();
    if let (Some((namespace, _)), true) = (account, groups.is_empty()) {
        groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
    }
    groups.push("system:authenticated".to_owned());
    Ok(Identity { name: user.to_owned(), groups, ..Identity::default() })
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
