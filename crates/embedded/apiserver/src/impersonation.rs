//! Acting as somebody else: the `Impersonate-*` headers, of which each is authorized.
//!
//! # Guarantees
//! A header that cannot be read, or is empty, refuses the request. None is ever ignored.

use std::collections::BTreeMap;

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::Server;
use crate::identity::Identity;
use crate::meta::{bad_label, bad_subdomain};
use crate::path;
use crate::rbac::{self, Wish};
use crate::status::{ApiError, Result, bytes_response};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
/// The API group of what only authentication knows.
const AUTHENTICATION: &str = "authentication.k8s.io";

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Whom a request wants to be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Impersonated {
    user: Option<String>,
    groups: Vec<String>,
    /// Key and value, in the order of the keys.
    extra: Vec<(String, String)>,
    uid: Option<String>,
}

impl Impersonated {
    pub fn read(headers: &HeaderMap) -> Result<Self> {
        let mut extra = Vec::new();
        for (name, value) in headers {
            if let Some(encoded) = name.as_str().strip_prefix(EXTRA) {
                let key = path::decode(encoded).filter(|key| readable(key)).ok_or_else(|| unreadable(name.as_str()))?;
                extra.push((key, text(name.as_str(), value)?));
            }
        }
        extra.sort_by(|one, other| one.0.cmp(&other.0));
        let all = |name: &str| headers.get_all(name).iter().map(|value| text(name, value)).collect::<Result<Vec<_>>>();
        let first = |values: Vec<String>| values.into_iter().next();
        Ok(Self { user: first(all(USER)?), groups: all(GROUP)?, extra, uid: first(all(UID)?) })
    }

    /// The answer to a request that wants to be somebody and does not say who.
    pub fn nobody(&self, uri: &Uri) -> Option<Response> {
        if self.user.is_some() || *self == Self::default() {
            return None;
        }
        // What Kubernetes prints are the fields of object references.
        let groups = self.groups.iter().map(|group| format!("{{Group  {group}    }}"));
        let extra = self.extra.iter().map(|(key, value)| format!("{{UserExtra  {value}  {AUTHENTICATION}/v1  {key}}}"));
        let uid = self.uid.iter().map(|uid| format!("{{UID  {uid}  {AUTHENTICATION}/v1  }}"));
        let wanted: Vec<String> = groups.chain(extra).chain(uid).collect();
        let why = format!("requested [{}] without impersonating a user", wanted.join(" "));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let message = format!("Internal Server Error: {path:?}: {why}\n");
        let message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let mut response = bytes_response(StatusCode::INTERNAL_SERVER_ERROR, message);
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
        Some(response)
    }

    /// The user that the request is made as: this one, when the requester may be all of it.
    pub fn authorize(self, server: &Server, requester: Identity) -> Result<Identity> {
        let Some(user) = self.user else { return Ok(requester) };
        let demand = |group: &str, resource: &str, subresource: Option<&str>, name: &str, namespace: Option<&str>| {
            let name = Some(name);
            let wish = Wish::Resource { verb: "impersonate", group, resource, subresource, name, namespace };
            rbac::demand(server, &requester, &wish)
        };
        let account = account(&user);
        match account {
            Some((namespace, name)) => demand("", "serviceaccounts", None, name, Some(namespace))?,
            None => demand("", "users", None, &user, None)?,
        }
        for group in &self.groups {
            demand("", "groups", None, group, None)?;
        }
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, value) in self.extra {
            demand(AUTHENTICATION, "userextras", Some(&key), &value, None)?;
            extra.entry(key).or_default().push(value);
        }
        if let Some(uid) = &self.uid {
            demand(AUTHENTICATION, "uids", None, uid, None)?;
        }
        let mut groups = self.groups;
        if let (Some((namespace, _)), true) = (account, groups.is_empty()) {
            groups.extend(["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]);
        }
        let has = |wanted: &str| groups.iter().any(|group| group == wanted);
        if user == "system:anonymous" {
            if !has(UNAUTHENTICATED) {
                groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Ok(Identity { name: user, uid: self.uid.unwrap_or_default(), groups, extra })
    }
}

/// The namespace and the name of the service account that a user is.
fn account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (bad_label(namespace).is_none() && bad_subdomain(name).is_none()).then_some((namespace, name))
}

fn text(name: &str, value: &HeaderValue) -> Result<String> {
    let text = str::from_utf8(value.as_bytes()).ok().filter(|text| readable(text));
    text.map(str::to_owned).ok_or_else(|| unreadable(name))
}

fn readable(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_control)
}

fn unreadable(name: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the header \"{name}\" cannot be read; write UTF-8 text of at least one character without control characters"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use http::HeaderName;

    use super::*;

    fn read(headers: &[(&str, &[u8])]) -> Result<Impersonated> {
        let name = |name: &str| HeaderName::from_bytes(name.as_bytes()).unwrap();
        Impersonated::read(&headers.iter().map(|(n, v)| (name(n), HeaderValue::from_bytes(v).unwrap())).collect())
    }

    #[test]
    fn unreadable_headers_are_refused() {
        for name in [USER, GROUP, UID, "impersonate-extra-scopes"] {
            for value in [&b""[..], b"\xff", b"a\tb", "a\u{85}b".as_bytes()] {
                let error = read(&[(USER, b"me"), (name, value)]).unwrap_err();
                assert_eq!(error.code, StatusCode::BAD_REQUEST, "{name}: {value:?}");
                assert!(error.message.contains(name), "{error}");
            }
            assert!(read(&[(name, "zoë".as_bytes())]).is_ok(), "{name}");
        }
        for key in ["impersonate-extra-", "impersonate-extra-%ff", "impersonate-extra-%0a"] {
            assert!(read(&[(USER, b"me"), (key, b"x")]).is_err(), "{key}");
        }
        let extra = read(&[("impersonate-extra-acme.com%2fproject", b"x")]).unwrap().extra;
        assert_eq!(extra, [("acme.com/project".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn a_service_account_has_a_namespace_and_a_name() {
        for (user, expect) in [
            ("system:serviceaccount:a:b", Some(("a", "b"))),
            ("system:serviceaccount:a:b.c", Some(("a", "b.c"))),
            ("system:serviceaccount:a:b:c", None),
            ("system:serviceaccount:a", None),
            ("system:serviceaccount::b", None),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccount:A:b", None),
            ("me", None),
        ] {
            assert_eq!(account(user), expect, "{user}");
        }
    }

    #[test]
    fn nobody_is_impersonated_without_a_user() {
        let uri = Uri::from_static("/api/v1/pods?a=1&b=2");
        for (headers, expect) in [
            (&[][..], None),
            (&[(USER, &b"me"[..]), (GROUP, b"us")], None),
            (&[(GROUP, b"us")], Some(())),
            (&[(UID, b"1")], Some(())),
            (&[("impersonate-extra-scopes", b"all")], Some(())),
        ] {
            let found = read(headers).unwrap().nobody(&uri);
            assert_eq!(found.map(|response| assert_eq!(response.status(), 500)), expect, "{headers:?}");
        }
    }
}
