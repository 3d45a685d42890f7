//! Reads the credentials of a source from a Secret.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::ByteString;

/// The user name of a token without one. GitHub documents it; GitLab, Gitea and Azure DevOps take any name that is not
/// empty. Bitbucket needs `x-token-auth`, which the Secret can set.
const TOKEN_USER: &str = "x-access-token";

/// Credentials and trust anchors of a source. Their values are never printed.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The user name, for passwords and for ssh.
    pub username: Option<String>,
    /// The password, or the passphrase of `identity`.
    pub password: Option<String>,
    /// An access token: the password for git servers, and a bearer token for servers of archives.
    pub token: Option<String>,
    /// A private ssh key.
    pub identity: Option<String>,
    /// The trusted host keys.
    pub known_hosts: Option<String>,
    /// An additional trusted certificate authority.
    pub ca: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Reads the keys of a Secret: `username`, `password`, `token`, `identity`, `known_hosts`, `ca.crt`; and
    /// `ssh-privatekey` of the type `kubernetes.io/ssh-auth`.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let text = |key: &str| data.get(key).and_then(|value| String::from_utf8(value.0.clone()).ok());
        // A trailing newline comes from an editor, and is never part of a user name, password or token.
        let word = |key: &str| text(key).map(|value| value.trim_end_matches(['\r', '\n']).to_owned());
        Self {
            username: word("username"),
            password: word("password"),
            token: word("token"),
            identity: text("identity").or_else(|| text("ssh-privatekey")),
            known_hosts: text("known_hosts"),
            ca: text("ca.crt"),
        }
    }

    /// The `Authorization` header for a git server: a password or a token, both as git itself sends them.
    pub(crate) fn for_git(&self) -> Option<String> {
        let secret = self.token.as_deref().or(self.password.as_deref())?;
        let anybody = if self.token.is_some() { TOKEN_USER } else { "" };
        Some(basic(self.username.as_deref().unwrap_or(anybody), secret))
    }

    /// The `Authorization` header for a server of archives.
    pub(crate) fn for_archives(&self) -> Option<String> {
        if let Some(token) = &self.token {
            return Some(format!("Bearer {token}"));
        }
        Some(basic(self.username.as_deref().unwrap_or_default(), self.password.as_deref()?))
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_before_a_password() {
        let of = |pairs: &[(&str, &str)]| {
            let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
            let credentials = Credentials::read(&data.collect());
            (credentials.for_git(), credentials.for_archives())
        };
        let both = |header: &str| (Some(header.to_owned()), Some(header.to_owned()));
        assert_eq!(of(&[]), (None, None));
        assert_eq!(of(&[("username", "me")]), (None, None));
        assert_eq!(of(&[("username", "me"), ("password", "pw\n")]), both("Basic bWU6cHc="));
        let bearer = Some("Bearer t".to_owned());
        let of_git = |user: &str| Some(basic(user, "t"));
        assert_eq!(of(&[("token", "t"), ("password", "pw")]), (of_git("x-access-token"), bearer.clone()));
        assert_eq!(of(&[("token", "t"), ("username", "oauth2")]), (of_git("oauth2"), bearer));
        let all = Credentials { password: Some("hunter2".to_owned()), ..Credentials::default() };
        assert!(!format!("{all:?}").contains("hunter2"));
    }
}
