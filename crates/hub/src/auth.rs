//! Who is calling: a runner shows its pod's token, and the API says whose it is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use knoll_api::wire::HUB_AUDIENCE;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::{OnceCell, Semaphore};

use crate::error::Error;

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// A token that was taken back is believed at most that long.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a refusal is remembered, so that a broken client does not become a load on the API.
const REFUSAL: Duration = Duration::from_secs(1);

/// How many tokens are reviewed at the same time. The API server answers in milliseconds.
const REVIEWS_AT_ONCE: usize = 16;
/// The longest token that is reviewed. One of Kubernetes has about 1 KiB.
const LONGEST_TOKEN: usize = 16 * 1024;
/// How many tokens that no review has accepted one address may show within [`WINDOW`]. A runner whose token was just
/// replaced shows one or two.
const MOST_REFUSED: u32 = 30;
const WINDOW: Duration = Duration::from_secs(10);

/// The address of a client.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// A pod, as its token shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub namespace: String,
    pub pod: String,
    /// Its UID; a pod of the same name that comes later has another one.
    pub uid: String,
}

/// What a token was found to be.
type Verdict = Result<Caller, String>;

struct Entry {
    until: Timestamp,
    /// Filled once, also when several requests come with a new token at the same time.
    verdict: OnceCell<Verdict>,
}

/// Knows the tokens that were shown lately, by their hash.
pub struct Tokens {
    client: Client,
    known: Mutex<HashMap<[u8; 32], Arc<Entry>>>,
    reviews: Semaphore,
    attempts: Mutex<Attempts>,
}

/// Reviews by address since the beginning of its window, without those that accepted the token.
#[derive(Default)]
struct Attempts(HashMap<IpAddr, (Timestamp, u32)>);

impl Attempts {
    /// Counts a review; false if the address has had too many.
    fn begin(&mut self, peer: IpAddr, now: Timestamp) -> bool {
        let window = SignedDuration::try_from(WINDOW).unwrap_or(SignedDuration::MAX);
        self.0.retain(|_, (since, _)| now.duration_since(*since) < window);
        let (_, count) = self.0.entry(peer).or_insert((now, 0));
        *count += 1;
        *count <= MOST_REFUSED
    }

    /// Forgets a review that accepted the token.
    fn accepted(&mut self, peer: IpAddr) {
        if let Some((_, count)) = self.0.get_mut(&peer) {
            *count = count.saturating_sub(1);
        }
    }
}

impl Tokens {
    /// Nothing is known yet.
    pub fn new(client: Client) -> Self {
        let reviews = Semaphore::new(REVIEWS_AT_ONCE);
        Tokens { client, known: Mutex::default(), reviews, attempts: Mutex::default() }
    }

    /// Whose token it is.
    ///
    /// # Errors
    /// When it is not a pod's, or not for the hub.
    pub async fn caller(&self, token: &str, peer: IpAddr) -> Result<Caller, Error> {
        if token.len() > LONGEST_TOKEN || !may_be_for_the_hub(token) {
            return Err(Error::Unauthorized(format!("the token is not for the audience `{HUB_AUDIENCE}`")));
        }
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let now = Timestamp::now();
        let entry = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, entry| entry.until > now);
            let fresh = || Arc::new(Entry { until: now + lifetime(token, now), verdict: OnceCell::new() });
            Arc::clone(known.entry(key).or_insert_with(fresh))
        };
        let verdict = entry.verdict.get_or_try_init(|| self.review(token, peer)).await?;
        if verdict.is_err() && now + REFUSAL < entry.until {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(key, Arc::new(Entry { until: now + REFUSAL, verdict: OnceCell::from(verdict.clone()) }));
        }
        verdict.clone().map_err(Error::Unauthorized)
    }

    async fn review(&self, token: &str, peer: IpAddr) -> Result<Verdict, Error> {
        let attempts = || self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if !attempts().begin(peer, Timestamp::now()) {
            return Err(Error::Flooded);
        }
        let verdict = self.ask(token).await?;
        if verdict.is_ok() {
            attempts().accepted(peer);
        }
        Ok(verdict)
    }

    async fn ask(&self, token: &str) -> Result<Verdict, Error> {
        let _one = self.reviews.acquire().await;
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![HUB_AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let review = api.create(&PostParams::default(), &review).await?;
        Ok(read(review.status.unwrap_or_default()))
    }
}

fn read(status: TokenReviewStatus) -> Verdict {
    if status.authenticated != Some(true) {
        return Err("the token is not valid; a runner shows the projected token of its pod".to_owned());
    }
    if !status.audiences.unwrap_or_default().iter().any(|audience| audience == HUB_AUDIENCE) {
        return Err(format!("the token is not for the audience `{HUB_AUDIENCE}`"));
    }
    let user = status.user.unwrap_or_default();
    let extra = |key: &str| user.extra.as_ref().and_then(|extra| extra.get(key)?.first().cloned());
    let namespace = user.username.as_deref().and_then(|name| name.strip_prefix("system:serviceaccount:"));
    let namespace = namespace.and_then(|rest| rest.split_once(':')).map(|(namespace, _)| namespace.to_owned());
    match (namespace, extra(POD_NAME), extra(POD_UID)) {
        (Some(namespace), Some(pod), Some(uid)) => Ok(Caller { namespace, pod, uid }),
        _ => Err("the token is not bound to a pod; a runner shows the projected token of its pod".to_owned()),
    }
}

/// Whether a token says that it is for the hub. The API has to confirm it; one that does not say so is not worth asking.
fn may_be_for_the_hub(token: &str) -> bool {
    let audiences = claims(token).map(|claims| claims["aud"].clone()).unwrap_or_default();
    match audiences {
        Value::String(audience) => audience == HUB_AUDIENCE,
        Value::Array(audiences) => audiences.iter().any(|audience| audience == HUB_AUDIENCE),
        _ => false,
    }
}

/// The claims of a token, which nobody has checked.
fn claims(token: &str) -> Option<Value> {
    let part = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&part).ok()
}

/// How long a token is remembered: as long as it says it is valid, which the API has confirmed by then.
fn lifetime(token: &str, now: Timestamp) -> Duration {
    let expiry = claims(token).and_then(|claims| claims["exp"].as_i64());
    let left = expiry.map_or(60, |expiry| expiry.saturating_sub(now.as_second()));
    Duration::from_secs(u64::try_from(left).unwrap_or(0)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    fn status(username: &str, audience: &str, extra: &[(&str, &str)]) -> TokenReviewStatus {
        let extra = extra.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect();
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec![audience.to_owned()]),
            user: Some(UserInfo { username: Some(username.to_owned()), extra: Some(extra), ..UserInfo::default() }),
            ..TokenReviewStatus::default()
        }
    }

    #[test]
    fn a_pods_token_names_its_pod() {
        let got = read(status("system:serviceaccount:ns:default", HUB_AUDIENCE, &[(POD_NAME, "p"), (POD_UID, "u")]));
        assert_eq!(got, Ok(Caller { namespace: "ns".into(), pod: "p".into(), uid: "u".into() }));
    }

    #[test]
    fn other_tokens_are_refused() {
        let pod = [(POD_NAME, "p"), (POD_UID, "u")];
        assert!(read(TokenReviewStatus::default()).is_err());
        assert!(read(status("system:serviceaccount:ns:default", "kubernetes", &pod)).is_err());
        assert!(read(status("system:serviceaccount:ns:default", HUB_AUDIENCE, &pod[..1])).is_err());
        assert!(read(status("alice", HUB_AUDIENCE, &pod)).is_err());
    }

    #[test]
    fn an_address_that_shows_bad_tokens_is_not_reviewed_for_a_while() {
        let (bad, good) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut attempts = Attempts::default();
        let at = |second: i64| Timestamp::from_second(second).unwrap_or_default();
        for _ in 0..MOST_REFUSED {
            assert!(attempts.begin(bad, at(0)));
        }
        assert!(!attempts.begin(bad, at(9)));
        // Another address is not concerned, and one that is accepted is never too much.
        for _ in 0..MOST_REFUSED * 2 {
            assert!(attempts.begin(good, at(1)));
            attempts.accepted(good);
        }
        assert!(attempts.begin(bad, at(10)));
        assert_eq!(attempts.0.len(), 2);
        assert!(attempts.begin(bad, at(100)));
        assert_eq!(attempts.0.len(), 1, "old addresses are forgotten");
    }

    #[test]
    fn only_a_token_that_says_it_is_for_the_hub_is_reviewed() {
        let token = |claims: &str| format!("x.{}.y", BASE64_URL_SAFE_NO_PAD.encode(claims));
        let rows = [
            (token(r#"{"aud":["knoll-hub"]}"#), true),
            (token(r#"{"aud":"knoll-hub"}"#), true),
            (token(r#"{"aud":["kubernetes"]}"#), false),
            (token("{}"), false),
            (token("7"), false),
            ("opaque".to_owned(), false),
            (String::new(), false),
        ];
        for (token, expect) in rows {
            assert_eq!(may_be_for_the_hub(&token), expect, "{token}");
        }
    }

    #[test]
    fn a_token_is_remembered_as_long_as_it_says() {
        let now = Timestamp::UNIX_EPOCH;
        let token = |exp: i64| format!("x.{}.y", BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{exp}}}"#)));
        assert_eq!(lifetime(&token(90), now), Duration::from_secs(90));
        assert_eq!(lifetime(&token(90_000), now), LONGEST);
        assert_eq!(lifetime(&token(-5), now), Duration::ZERO);
        assert_eq!(lifetime("opaque", now), Duration::from_secs(60));
    }
}
