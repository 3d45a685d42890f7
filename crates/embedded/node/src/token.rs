//! Tokens of a pod's service account, in files of its volumes.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};

use super::volumes::{Token, write_file};

/// A token and the volume that it belongs to.
#[derive(Clone, Debug)]
pub struct TokenVolume {
    pub root: PathBuf,
    pub token: Token,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The API server gave none.
    #[error("no token for the service account \"{account}\": {source}")]
    Request { account: String, source: Box<kube::Error> },
    /// It could not be written.
    #[error("the token cannot be written: {0}")]
    Write(#[from] std::io::Error),
}

impl TokenVolume {
    /// Gets a token that is good as long as the pod exists, writes it, and says when to get the next.
    pub async fn refresh(&self, client: &Client, pod: &Pod) -> Result<Duration, TokenError> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: self.token.audience.iter().cloned().collect(),
                expiration_seconds: Some(self.token.seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> =
            Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"));
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .map_err(|source| TokenError::Request { account: account.to_owned(), source: Box::new(source) })?;
        let (token, lifetime) = match answer.status {
            Some(status) => {
                let left = status.expiration_timestamp.0.duration_since(Timestamp::now()).as_secs();
                (status.token, u64::try_from(left).unwrap_or(0))
            }
            None => (String::new(), 0),
        };
        write_file(&self.root, &self.token.path, token.as_bytes(), self.token.mode)?;
        Ok(refresh_after(lifetime))
    }

    /// Keeps the token fresh for as long as it is polled.
    pub async fn keep(self, client: Client, pod: std::sync::Arc<Pod>, first: Duration) {
        let mut wait = first;
        loop {
            tokio::time::sleep(wait).await;
            wait = match self.refresh(&client, &pod).await {
                Ok(wait) => wait,
                Err(error) => {
                    tracing::warn!(pod = pod.metadata.name, %error, "a token could not be renewed, trying again");
                    Duration::from_secs(10)
                }
            };
        }
    }
}

/// A token is renewed when four fifths of its time are over.
fn refresh_after(lifetime: u64) -> Duration {
    Duration::from_secs((lifetime * 4 / 5).max(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_renewed_well_before_they_expire() {
        for (lifetime, seconds) in [(3600, 2880), (600, 480), (0, 10)] {
            assert_eq!(refresh_after(lifetime), Duration::from_secs(seconds));
        }
    }
}
