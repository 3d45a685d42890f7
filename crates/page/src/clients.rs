//! The clients of users: one for each token, with that token and nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use knoll_core::approval::Decider;
use knoll_serve::Refusals;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;

use crate::error::PageError;

/// How long the page goes on without asking again whose token it is. The API server checks the token of each request.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Clients at the same time. A client has a pool of connections.
const MOST: usize = 256;
/// How many tokens that the API server does not accept one address may show within [`WINDOW`].
const MOST_REFUSED: u32 = 30;
const WINDOW: Duration = Duration::from_secs(10);
/// Tokens that are checked at the same time. The API server answers in milliseconds.
const REVIEWS_AT_ONCE: usize = 4;
/// How long a request waits for the check of its token.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// How a token came to the page.
#[derive(Clone, Copy, Debug)]
pub enum ShownBy {
    /// By a cookie that the page has sealed: the API server has accepted the token before.
    Session,
    /// By anybody at this address.
    Stranger(IpAddr),
}

/// The clients of the users who looked last, by the digests of their tokens.
pub struct Clients {
    connect: Connect,
    known: Mutex<BTreeMap<Vec<u8>, Known>>,
    refusals: Mutex<Refusals>,
    /// Reviews of strangers' tokens and those of sessions do not wait for each other.
    strangers: Semaphore,
    sessions: Semaphore,
}

impl Clients {
    pub fn new(connect: Connect) -> Self {
        Self {
            connect,
            known: Mutex::default(),
            refusals: Mutex::new(Refusals::new(MOST_REFUSED, WINDOW)),
            strangers: Semaphore::new(REVIEWS_AT_ONCE),
            sessions: Semaphore::new(REVIEWS_AT_ONCE),
        }
    }

    /// The client of a user, and the user's name as the API server has it.
    pub async fn of(&self, token: &BearerToken, shown_by: ShownBy) -> Result<(Client, Decider), PageError> {
        let key = digest(&SHA256, token.expose().as_bytes()).as_ref().to_vec();
        if let Some(known) = self.recent(&key) {
            return Ok((known.client, known.decider));
        }
        let reviews = match shown_by {
            ShownBy::Session => &self.sessions,
            ShownBy::Stranger(peer) => {
                let has_room = self.refusals().begin(peer, Timestamp::now());
                let busy = "Too many tokens from your address were refused. Try again in some seconds.";
                has_room.then_some(&self.strangers).ok_or_else(|| PageError::Busy(busy.to_owned()))?
            }
        };
        let busy = || PageError::Busy("The cluster takes long to check tokens. Try again in a moment.".to_owned());
        let review = async {
            let _one = reviews.acquire().await;
            self.review(token).await
        };
        let (client, decider) = tokio::time::timeout(PATIENCE, review).await.map_err(|_| busy())??;
        if let ShownBy::Stranger(peer) = shown_by {
            self.refusals().accepted(peer);
        }
        let known = Known { client: client.clone(), decider: decider.clone(), since: Instant::now() };
        let mut all = self.known();
        all.retain(|_, other| other.since.elapsed() < REMEMBERED);
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, other)| other.since).map(|(key, _)| key.clone());
            oldest.and_then(|key| all.remove(&key));
        }
        all.insert(key, known);
        Ok((client, decider))
    }

    async fn review(&self, token: &BearerToken) -> Result<(Client, Decider), PageError> {
        let client = (self.connect)(token)?;
        let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
        let user = review.status.and_then(|status| status.user_info).and_then(Decider::of);
        let decider = user.filter(|user| user.name != ANONYMOUS).ok_or(PageError::SignIn)?;
        Ok((client, decider))
    }

    fn recent(&self, key: &[u8]) -> Option<Known> {
        self.known().get(key).filter(|known| known.since.elapsed() < REMEMBERED).cloned()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
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
