//! Sessions: a cookie that only this page can read and write. Nothing is stored on the server, so all replicas know it.
//!
//! *Guarantee.* The content is sealed (AES-256-GCM) with a key that no user reads: a cookie that was changed, or that
//! is of another key, is no session.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{COOKIE, HeaderValue};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::names::label;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::clients::BearerToken;

/// How long a session lasts: a day of work. A token that ends earlier ends it.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// The Secret with the key, in the namespace of the operator.
const SECRET: &str = "knoll-page";
const KEY: &str = "session.key";
const KEY_LENGTH: usize = 32;

/// There is no key for sessions.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot store the key of the page's sessions in the Secret `{SECRET}`: {}", knoll_storage::message_of(.0))]
    Api(#[from] kube::Error),
    #[error("the Secret `{SECRET}` has no key for the page's sessions; delete it to have a new one made")]
    Damaged,
    #[error("the system has no random numbers")]
    Random,
}

/// The key of all sessions.
pub struct SessionKey(LessSafeKey);

impl SessionKey {
    /// A key that ends with the process.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self, KeyError> {
        Self::of(&random::<KEY_LENGTH>()?)
    }

    /// The key that all replicas share: the one in the Secret in `namespace`, or a new one that is stored there.
    ///
    /// # Errors
    /// If the Secret can neither be read nor written.
    pub async fn shared(client: &Client, namespace: &str) -> Result<Self, KeyError> {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        loop {
            if let Some(known) = api.get_opt(SECRET).await? {
                let key = known.data.as_ref().and_then(|data| data.get(KEY));
                return Self::of(&key.ok_or(KeyError::Damaged)?.0);
            }
            let key = random::<KEY_LENGTH>()?;
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(SECRET.to_owned()),
                    labels: Some(BTreeMap::from([(label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned())])),
                    ..ObjectMeta::default()
                },
                data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(key.to_vec()))])),
                ..Secret::default()
            };
            match api.create(&PostParams::default(), &secret).await {
                Ok(_) => return Self::of(&key),
                // Another replica was faster; its key serves as well.
                Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn of(key: &[u8]) -> Result<Self, KeyError> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| KeyError::Damaged)?;
        Ok(Self(LessSafeKey::new(key)))
    }
}

/// A session, as its cookie has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub token: BearerToken,
    /// What a form has to send so that it is known to be one of this page.
    pub csrf: String,
}

#[derive(Serialize, Deserialize)]
struct Content {
    token: String,
    csrf: String,
    /// The second since the epoch at which the session ends.
    ends: u64,
}

/// Opens and reads sessions.
pub struct Sessions {
    key: SessionKey,
    cookie: String,
}

impl Sessions {
    /// `port` tells apart the pages of one host: cookies do not.
    pub fn new(key: SessionKey, port: u16) -> Self {
        Self { key, cookie: format!("knoll-session-{port}") }
    }

    /// The `Set-Cookie` header of a new session; `None` when the system has no random numbers.
    pub fn begin(&self, token: &BearerToken, secure: bool) -> Option<HeaderValue> {
        let csrf = URL_SAFE_NO_PAD.encode(random::<24>().ok()?);
        let ends = now().saturating_add(LIFETIME.as_secs());
        let content = Content { token: token.expose().to_owned(), csrf, ends };
        let value = self.seal(&serde_json::to_vec(&content).ok()?)?;
        self.header(&value, LIFETIME.as_secs(), secure)
    }

    /// The `Set-Cookie` header that ends a session.
    pub fn end(&self, secure: bool) -> Option<HeaderValue> {
        self.header("", 0, secure)
    }

    /// The session of a request.
    pub fn read(&self, headers: &HeaderMap) -> Option<Session> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(name, value)| if name == self.cookie { self.open(value) } else { None })
    }

    fn header(&self, value: &str, seconds: u64, secure: bool) -> Option<HeaderValue> {
        let secure = if secure { "; Secure" } else { "" };
        let name = &self.cookie;
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
        HeaderValue::from_str(&text).ok()
    }

    fn seal(&self, content: &[u8]) -> Option<String> {
        let nonce = random::<NONCE_LEN>().ok()?;
        let mut sealed = content.to_vec();
        let aad = Aad::from(self.cookie.as_bytes());
        self.key.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_slice(), &sealed].concat()))
    }

    fn open(&self, value: &str) -> Option<Session> {
        let bytes = URL_SAFE_NO_PAD.decode(value).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        let (nonce, mut sealed) = (Nonce::try_assume_unique_for_key(nonce).ok()?, sealed.to_vec());
        let content = self.key.0.open_in_place(nonce, Aad::from(self.cookie.as_bytes()), &mut sealed).ok()?;
        let content: Content = serde_json::from_slice(content).ok()?;
        let token = BearerToken::new(&content.token).filter(|_| now() < content.ends)?;
        Some(Session { token, csrf: content.csrf })
    }
}

/// Random bytes from the system.
pub fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::Random)?;
    Ok(bytes)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn cookie(header: &HeaderValue) -> HeaderMap {
        let text = header.to_str().unwrap();
        let pair = text.split(';').next().unwrap();
        HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&format!("a=b; {pair}; c=d")).unwrap())])
    }

    #[test]
    fn a_session_is_read_only_as_it_was_written() {
        let sessions = Sessions::new(SessionKey::generate().unwrap(), 1);
        let token = BearerToken::new("hunter2").unwrap();
        let begun = sessions.begin(&token, true).unwrap();
        let text = begun.to_str().unwrap();
        assert!(!text.contains("hunter2"));
        assert!(text.contains("HttpOnly") && text.contains("SameSite=Lax") && text.ends_with("; Secure"), "{text}");
        let headers = cookie(&begun);
        let session = sessions.read(&headers).unwrap();
        assert_eq!(session.token, token);
        assert!(session.csrf.len() >= 32);

        let other_key = Sessions::new(SessionKey::generate().unwrap(), 1);
        assert_eq!(other_key.read(&headers), None);
        let value = headers[COOKIE].to_str().unwrap();
        let (at, old) = value.char_indices().nth(60).unwrap();
        let mut changed = value.to_owned();
        changed.replace_range(at..=at, if old == 'A' { "B" } else { "A" });
        let changed = HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(&changed).unwrap())]);
        assert_eq!(sessions.read(&changed), None);
        assert_eq!(sessions.read(&cookie(&sessions.end(false).unwrap())), None);
        assert_eq!(sessions.read(&HeaderMap::new()), None);
    }

    #[test]
    fn a_session_ends() {
        let sessions = Sessions::new(SessionKey::generate().unwrap(), 1);
        let content = |ends| serde_json::to_vec(&Content { token: "t".into(), csrf: "c".into(), ends }).unwrap();
        assert!(sessions.open(&sessions.seal(&content(now() + 60)).unwrap()).is_some());
        assert!(sessions.open(&sessions.seal(&content(now())).unwrap()).is_none());
    }
}
