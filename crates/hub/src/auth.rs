//! Who is calling: a runner shows its pod's token, and the API says whose it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use knoll_api::wire::HUB_AUDIENCE;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::error::Error;

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
/// A token that was taken back is believed at most that long.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a refusal is remembered, so that a broken client does not become a load on the API.
const REFUSAL: Duration = Duration::from_secs(1);

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
}

impl Tokens {
    /// Nothing is known yet.
    pub fn new(client: Client) -> Self {
        Tokens { client, known: Mutex::default() }
    }

    /// Whose token it is.
    ///
    /// # Errors
    /// When it is not a pod's, or not for the hub.
    pub async fn caller(&self, token: &str) -> Result<Caller, Error> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let now = Timestamp::now();
        let entry = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, entry| entry.until > now);
            let fresh = || Arc::new(Entry { until: now + lifetime(token, now), verdict: OnceCell::new() });
            Arc::clone(known.entry(key).or_insert_with(fresh))
        };
        let verdict = entry.verdict.get_or_try_init(|| self.review(token)).await?;
        if verdict.is_err() && now + REFUSAL < entry.until {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(key, Arc::new(Entry { until: now + REFUSAL, verdict: OnceCell::from(verdict.clone()) }));
        }
        verdict.clone().map_err(Error::Unauthorized)
    }

    async fn review(&self, token: &str) -> Result<Verdict, Error> {
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

/// How long a token is remembered: as long as it says it is valid, which the API has confirmed by then.
fn lifetime(token: &str, now: Timestamp) -> Duration {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let claims = token.split('.').nth(1).and_then(|part| BASE64_URL_SAFE_NO_PAD.decode(part).ok());
    let claims = claims.and_then(|json| serde_json::from_slice::<Claims>(&json).ok());
    let left = claims.map_or(60, |claims| claims.exp.saturating_sub(now.as_second()));
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
    fn a_token_is_remembered_as_long_as_it_says() {
        let now = Timestamp::UNIX_EPOCH;
        let token = |exp: i64| format!("x.{}.y", BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{exp}}}"#)));
        assert_eq!(lifetime(&token(90), now), Duration::from_secs(90));
        assert_eq!(lifetime(&token(90_000), now), LONGEST);
        assert_eq!(lifetime(&token(-5), now), Duration::ZERO);
        assert_eq!(lifetime("opaque", now), Duration::from_secs(60));
    }
}
