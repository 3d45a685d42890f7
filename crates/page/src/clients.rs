//! The clients of users: one for each token, with that token and nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use knoll_core::approval::Decider;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::digest::{SHA256, digest};

use crate::error::PageError;

/// How long the page goes on without asking again whose token it is. The API server checks the token of each request.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Clients at the same time. A client has a pool of connections.
const MOST: usize = 256;

/// Makes a client of the cluster that sends this token.
pub type Connect = Box<dyn Fn(&BearerToken) -> Result<Client, kube::Error> + Send + Sync>;

/// A token by which the API server knows a user. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(String);

/// Longer ones do not fit into the cookie of a session.
const LONGEST_TOKEN: usize = 2800;

impl BearerToken {
    /// The token, if it can be one: it becomes part of a header.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = (1..=LONGEST_TOKEN).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(...)")
    }
}

#[derive(Clone)]
struct Known {
    client: Client,
    decider: Decider,
    since: Instant,
}

/// The clients of the users who looked last, by the digests of their tokens.
pub struct Clients {
    connect: Connect,
    known: Mutex<BTreeMap<Vec<u8>, Known>>,
}

impl Clients {
    pub fn new(connect: Connect) -> Self {
        Self { connect, known: Mutex::default() }
    }

    /// The client of a user, and the user's name as the API server has it.
    pub async fn of(&self, token: &BearerToken) -> Result<(Client, Decider), PageError> {
        let key = digest(&SHA256, token.expose().as_bytes()).as_ref().to_vec();
        if let Some(known) = self.recent(&key) {
            return Ok((known.client, known.decider));
        }
        let client = (self.connect)(token)?;
        let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
        let user = review.status.and_then(|status| status.user_info).and_then(Decider::of);
        let decider = user.filter(|user| user.name != ANONYMOUS).ok_or(PageError::SignIn)?;
        let known = Known { client: client.clone(), decider: decider.clone(), since: Instant::now() };
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, other| other.since.elapsed() < REMEMBERED);
        if all.len() < MOST {
            all.insert(key, known);
        }
        Ok((client, decider))
    }

    fn recent(&self, key: &[u8]) -> Option<Known> {
        let all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(key).filter(|known| known.since.elapsed() < REMEMBERED).cloned()
    }
}

/// The user of a request without credentials.
const ANONYMOUS: &str = "system:anonymous";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_token_fits_into_a_header_and_is_never_printed() {
        assert_eq!(BearerToken::new(" abc\n").unwrap().expose(), "abc");
        for bad in ["", "  ", "a b", "a\r\nImpersonate-User: x", "ä", &"x".repeat(LONGEST_TOKEN + 1)] {
            assert!(BearerToken::new(bad).is_none(), "{bad}");
        }
        assert_eq!(format!("{:?}", BearerToken::new("hunter2").unwrap()), "BearerToken(...)");
    }
}
