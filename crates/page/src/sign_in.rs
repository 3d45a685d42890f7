//! Codes in links: whoever has one signs in with it once, as the user whose token it stands for.
//!
//! *Guarantee.* A code is good for one sign-in within [`LIFETIME`]; afterwards the link in a history or a log is worth
//! nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
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

/// The codes that were not used yet, by their digests.
#[derive(Default)]
pub struct SignInCodes(Mutex<HashMap<Vec<u8>, (BearerToken, Instant)>>);

impl SignInCodes {
    /// A new code for this token; `None` when there are too many.
    pub fn issue(&self, token: BearerToken) -> Option<String> {
        let code = URL_SAFE_NO_PAD.encode(random::<32>().ok()?);
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, (_, since)| since.elapsed() < LIFETIME);
        if codes.len() >= MOST {
            return None;
        }
        codes.insert(key(&code), (token, Instant::now()));
        Some(code)
    }

    /// The token of a code, which is dead then.
    pub fn exchange(&self, code: &str) -> Option<BearerToken> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(code));
        found.filter(|(_, since)| since.elapsed() < LIFETIME).map(|(token, _)| token)
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
        let code = codes.issue(token.clone()).unwrap();
        assert_eq!(codes.exchange("other"), None);
        assert_eq!(codes.exchange(&code), Some(token.clone()));
        assert_eq!(codes.exchange(&code), None);
        for _ in 0..MOST {
            codes.issue(token.clone()).unwrap();
        }
        assert_eq!(codes.issue(token), None);
    }
}
