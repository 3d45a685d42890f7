//! Codes in links: whoever has one signs in with it once, as the user whose token it stands for.
//!
//! *Guarantee.* A code is good for one sign-in within [`LIFETIME`]; afterwards the link in a history or a log is worth
//! nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

use crate::clients::BearerToken;
use crate::session::random;

/// Long enough to start a cluster and to open its link. `knoll ui` makes another one.
pub const LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Codes at the same time: whoever may have one may not fill the memory with them.
const MOST: usize = 256;

/// Codes of one user. Another one takes the place of the oldest.
const SHARE: usize = 8;

/// The codes that were not used yet, by their digests.
#[derive(Default)]
pub struct SignInCodes(Mutex<HashMap<Vec<u8>, Code>>);

struct Code {
    owner: String,
    token: BearerToken,
    since: Instant,
}

impl SignInCodes {
    /// A new code for this token of `owner`; `None` when there are too many.
    pub fn issue(&self, owner: &str, token: BearerToken) -> Option<String> {
        let code = URL_SAFE_NO_PAD.encode(random::<32>().ok()?);
        let mut codes = self.lock();
        codes.retain(|_, code| code.since.elapsed() < LIFETIME);
        let own: Vec<_> =
            codes.iter().filter(|(_, code)| code.owner == owner).map(|(key, code)| (code.since, key.clone())).collect();
        if own.len() >= SHARE {
            own.into_iter().min().and_then(|(_, oldest)| codes.remove(&oldest));
        }
        if codes.len() >= MOST {
            return None;
        }
        codes.insert(key(&code), Code { owner: owner.to_owned(), token, since: Instant::now() });
        Some(code)
    }

    /// The token of a code, which stays good.
    pub fn peek(&self, code: &str) -> Option<BearerToken> {
        self.lock().get(&key(code)).filter(|code| code.since.elapsed() < LIFETIME).map(|code| code.token.clone())
    }

    /// The token of a code, which is dead then.
    pub fn exchange(&self, code: &str) -> Option<BearerToken> {
        let found = self.lock().remove(&key(code));
        found.filter(|code| code.since.elapsed() < LIFETIME).map(|code| code.token)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Code>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looked up by digest, so that the time of a search tells nothing about a code.
fn key(code: &str) -> Vec<u8> {
    digest(&SHA256, code.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_code_is_good_once() {
        let codes = SignInCodes::default();
        let token = BearerToken::new("t").unwrap();
        let code = codes.issue("a", token.clone()).unwrap();
        assert_eq!(codes.exchange("other"), None);
        assert_eq!(codes.peek(&code), Some(token.clone()));
        assert_eq!(codes.exchange(&code), Some(token.clone()));
        assert_eq!((codes.peek(&code), codes.exchange(&code)), (None, None));
    }

    #[test]
    fn one_user_took_all_codes() {
        let codes = SignInCodes::default();
        let token = BearerToken::new("t").unwrap();
        let first = codes.issue("a", token.clone()).unwrap();
        let other = codes.issue("b", token.clone()).unwrap();
        for _ in 0..MOST {
            codes.issue("a", token.clone()).unwrap();
        }
        assert_eq!(codes.lock().len(), SHARE + 1);
        assert!(codes.exchange(&first).is_none() && codes.exchange(&other).is_some());
        for number in 0..MOST - SHARE {
            codes.issue(&format!("user {number}"), token.clone()).unwrap();
        }
        assert_eq!(codes.issue("one more", token), None);
    }
}
