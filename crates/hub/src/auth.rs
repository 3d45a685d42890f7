//! Who is calling: a runner shows its pod's token, and the API says whose it is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use knoll_api::wire::HUB_AUDIENCE;
use knoll_serve::Refusals;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::{OnceCell, Semaphore};

use crate::error::Error;

const NOT_BOUND: &str = "the token is not bound to a pod; a runner shows the projected token of its pod";
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
/// Tokens that are remembered at the same time. A pod has one, and another after most of its lifetime.
const MOST_KNOWN: usize = 32 * 1024;
/// How often tokens that are not believed any more are forgotten: it takes a look at all of them.
const SWEEP: SignedDuration = SignedDuration::from_secs(1);

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

type Key = [u8; 32];

struct Entry {
    until: Timestamp,
    /// Filled once, also when several requests come with a new token at the same time.
    verdict: Arc<OnceCell<Verdict>>,
}

/// The tokens that were shown lately, by their hash. Pure: time is an argument.
///
/// *Guarantee.* How long a token that no review has accepted is remembered does not depend on anything in it.
#[derive(Default)]
struct Known {
    entries: HashMap<Key, Entry>,
    swept: Timestamp,
}

impl Known {
    /// What is known of a token, or being found out.
    fn find(&self, key: &Key, now: Timestamp) -> Option<Arc<OnceCell<Verdict>>> {
        self.entries.get(key).filter(|entry| entry.until > now).map(|entry| Arc::clone(&entry.verdict))
    }

    /// A token's review begins. Requests with the same token wait for it.
    fn begin(&mut self, key: Key, now: Timestamp) -> Arc<OnceCell<Verdict>> {
        if now.duration_since(self.swept) >= SWEEP {
            self.entries.retain(|_, entry| entry.until > now);
            self.swept = now;
        }
        let verdict = Arc::new(OnceCell::new());
        self.keep(key, now + REFUSAL, Arc::clone(&verdict));
        verdict
    }

    /// A review has answered; `lifetime` is that of a token that it accepted.
    fn answered(&mut self, key: Key, verdict: &Arc<OnceCell<Verdict>>, lifetime: Duration, now: Timestamp) {
        match verdict.get() {
            Some(Ok(_)) => self.keep(key, now + lifetime, Arc::clone(verdict)),
            Some(Err(_)) => self.keep(key, now + REFUSAL, Arc::clone(verdict)),
            // Nobody has reviewed it.
            None => drop(self.entries.remove(&key)),
        }
    }

    fn keep(&mut self, key: Key, until: Timestamp, verdict: Arc<OnceCell<Verdict>>) {
        if self.entries.len() < MOST_KNOWN || self.entries.contains_key(&key) {
            self.entries.insert(key, Entry { until, verdict });
        }
    }
}

/// Finds out whose tokens are shown, and remembers it for a while.
pub struct Tokens {
    client: Client,
    known: Mutex<Known>,
    reviews: Semaphore,
    refusals: Mutex<Refusals>,
}

impl Tokens {
    /// Nothing is known yet.
    pub fn new(client: Client) -> Self {
        let refusals = Mutex::new(Refusals::new(MOST_REFUSED, WINDOW));
        Tokens { client, known: Mutex::default(), reviews: Semaphore::new(REVIEWS_AT_ONCE), refusals }
    }

    /// Whose token it is. The caller has asked before whether a Run waits for the pod that it [`claimed`] to be of.
    ///
    /// # Errors
    /// When it is not a pod's, or not for the hub.
    pub async fn caller(&self, token: &str, peer: IpAddr) -> Result<Caller, Error> {
        let key: Key = Sha256::digest(token.as_bytes()).into();
        let now = Timestamp::now();
        let found = self.known().find(&key, now);
        let verdict = match found {
            Some(verdict) => verdict,
            None if self.refusals().is_flooded(peer, now) => return Err(Error::Flooded),
            None => self.known().begin(key, now),
        };
        if verdict.get().is_none() {
            let answer = verdict.get_or_try_init(|| self.review(token, peer)).await;
            let failed = answer.err();
            self.known().answered(key, &verdict, lifetime(token, now), Timestamp::now());
            if let Some(error) = failed {
                return Err(error);
            }
        }
        let refused = || Err("the token was not reviewed".to_owned());
        verdict.get().cloned().unwrap_or_else(refused).map_err(Error::Unauthorized)
    }

    async fn review(&self, token: &str, peer: IpAddr) -> Result<Verdict, Error> {
        if !self.refusals().begin(peer, Timestamp::now()) {
            return Err(Error::Flooded);
        }
        let verdict = self.ask(token).await?;
        if verdict.is_ok() {
            self.refusals().accepted(peer);
        }
        Ok(verdict)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Whose token it says it is, which nobody has checked. Kubernetes writes the pod into every token that it binds to one.
///
/// # Errors
/// When it does not say that it is a pod's and for the hub.
pub fn claimed(token: &str) -> Result<Caller, Error> {
    let refused = |why: String| Err(Error::Unauthorized(why));
    let claims = (token.len() <= LONGEST_TOKEN).then(|| claims(token)).flatten().unwrap_or_default();
    if !may_be_for_the_hub(&claims) {
        return refused(format!("the token is not for the audience `{HUB_AUDIENCE}`"));
    }
    let text = |pointer: &str| claims.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let bound = ["/kubernetes.io/namespace", "/kubernetes.io/pod/name", "/kubernetes.io/pod/uid"].map(text);
    match bound {
        [Some(namespace), Some(pod), Some(uid)] => Ok(Caller { namespace, pod, uid }),
        _ => refused(NOT_BOUND.to_owned()),
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
        _ => Err(NOT_BOUND.to_owned()),
    }
}

/// Whether a token says that it is for the hub. The API has to confirm it; one that does not say so is not worth asking.
fn may_be_for_the_hub(claims: &Value) -> bool {
    match &claims["aud"] {
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
    #![allow(clippy::unwrap_used, reason = "tests")]

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

    fn answer(verdict: Verdict) -> Arc<OnceCell<Verdict>> {
        Arc::new(OnceCell::from(verdict))
    }

    /// A token that nobody had accepted was remembered for as long as it said itself.
    #[test]
    fn tokens_that_no_review_has_accepted_were_remembered_for_ten_minutes() {
        let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap_or_default();
        let mut known = Known::default();
        let pending = known.begin([1; 32], at(10_000));
        assert!(known.find(&[1; 32], at(10_500)).is_some_and(|found| Arc::ptr_eq(&found, &pending)), "others wait");
        assert!(known.find(&[1; 32], at(11_000)).is_none(), "a request that was broken off is not waited for");
        known.answered([1; 32], &pending, LONGEST, at(10_500));
        assert!(known.entries.is_empty(), "nobody has reviewed it");
        known.answered([2; 32], &answer(Err("no".to_owned())), LONGEST, at(10_500));
        known.answered(
            [3; 32],
            &answer(Ok(Caller { namespace: "n".into(), pod: "p".into(), uid: "u".into() })),
            LONGEST,
            at(10_500),
        );
        assert!(known.find(&[2; 32], at(11_499)).is_some() && known.find(&[2; 32], at(11_500)).is_none());
        assert!(known.find(&[3; 32], at(600_000)).is_some());
        known.begin([4; 32], at(12_000));
        assert_eq!(known.entries.len(), 2, "the refused one is swept");
    }

    #[test]
    fn tokens_without_end_are_not_remembered() {
        let mut known = Known::default();
        let now = Timestamp::UNIX_EPOCH + Duration::from_secs(60);
        for number in 0..MOST_KNOWN + 100 {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            known.begin(key, now);
        }
        assert_eq!(known.entries.len(), MOST_KNOWN);
    }

    /// The API server is away, so no token is reviewed; an address at its limit is not even remembered.
    #[tokio::test]
    async fn made_up_tokens_left_an_entry_each() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap_or_default());
        let tokens = Tokens::new(Client::try_from(nowhere).unwrap());
        let peer = IpAddr::from([10, 0, 0, 1]);
        let mut flooded = 0;
        for number in 0..MOST_REFUSED + 20 {
            let claims = format!(r#"{{"aud":["knoll-hub"],"exp":9999999999,"jti":"{number}"}}"#);
            let token = format!("x.{}.y", BASE64_URL_SAFE_NO_PAD.encode(claims));
            let error = tokens.caller(&token, peer).await.unwrap_err();
            flooded += u32::from(matches!(error, Error::Flooded));
        }
        assert_eq!(flooded, 20);
        assert!(tokens.known().entries.is_empty());
    }

    #[test]
    fn only_a_token_that_says_it_is_a_pods_and_for_the_hub_is_reviewed() {
        let of = |audience: &str, pod: &str| {
            let claims = format!(r#"{{"aud":{audience},"kubernetes.io":{{"namespace":"ns"{pod}}}}}"#);
            format!("x.{}.y", BASE64_URL_SAFE_NO_PAD.encode(claims))
        };
        let pod = r#","pod":{"name":"p","uid":"u"}"#;
        let padding = format!(r#"{pod},"more":"{}""#, "x".repeat(LONGEST_TOKEN));
        let rows = [
            (of(r#"["knoll-hub"]"#, pod), true),
            (of(r#""knoll-hub""#, pod), true),
            (of(r#"["kubernetes"]"#, pod), false),
            (of("7", pod), false),
            (of(r#"["knoll-hub"]"#, ""), false),
            (of(r#"["knoll-hub"]"#, r#","pod":{"name":"p"}"#), false),
            (of(r#"["knoll-hub"]"#, &padding), false),
            (format!("x.{}.y", BASE64_URL_SAFE_NO_PAD.encode("7")), false),
            ("opaque".to_owned(), false),
            (String::new(), false),
        ];
        for (token, expect) in rows {
            let caller = Caller { namespace: "ns".into(), pod: "p".into(), uid: "u".into() };
            assert_eq!(claimed(&token).ok(), expect.then_some(caller), "{token}");
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
