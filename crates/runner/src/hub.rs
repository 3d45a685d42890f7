//! The client of the hub's HTTP API.
//!
//! A run does not fail because the hub is unavailable for a while. Every error except a refusal (4xx) is retried with
//! backoff for as long as the runner lives. The token is read from its file for each attempt, because the kubelet
//! replaces it.
//!
//! *Guarantee.* A refusal of this pod, on any path, stops terraform at once.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use knoll_api::wire::LARGEST_CONTENT;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;

use crate::state::{StateFile, Store};
use crate::stop::{Reason, Stop};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A token that was just replaced can be refused once or twice. A wrong one is refused each time.
const UNAUTHORIZED_ATTEMPTS: u32 = 3;
/// Long enough for a large state over a slow network.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an idle connection is kept: less than the hub keeps it, so that no request meets its end.
const IDLE: Duration = Duration::from_secs(10);

/// Why a request to the hub failed.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The client cannot be created from the configuration.
    #[error("cannot talk to the hub at `{url}`: {source}")]
    Client { url: String, source: reqwest::Error },
    #[error("cannot read the hub token `{}`: {source}; the pod needs its projected token volume", path.display())]
    Token { path: PathBuf, source: std::io::Error },
    /// The hub refused the request.
    #[error("the hub refused {what} ({status}): {message}")]
    Refused {
        what: &'static str,
        status: u16,
        message: String,
        /// The offset that the hub has, if it refused a chunk of the log.
        offset: Option<u64>,
    },
    /// The hub speaks another version of the protocol.
    #[error(
        "the hub speaks protocol {0} and this runner speaks protocol {ours}; install the same version of Knoll for both",
        ours = knoll_api::wire::PROTOCOL
    )]
    Protocol(u32),
    /// The hub did not come back.
    #[error("the hub did not respond for {}s, so terraform was stopped; its last state may be missing", .0.as_secs())]
    Silent(Duration),
    /// The response cannot be parsed, so hub and runner have different versions.
    #[error("cannot parse the hub's response to {what}: {source}; do operator and runner have the same version?")]
    Answer { what: &'static str, source: serde_json::Error },
}

impl HubError {
    /// Whether the hub refuses this pod, and not only what the pod has sent.
    fn is_fence(&self) -> bool {
        matches!(self, HubError::Refused { status: 401 | 403 | 409, offset: None, .. })
    }

    /// The message for the user: the hub's own, if it is about the user's input.
    pub fn sentence(&self) -> String {
        match self {
            HubError::Refused { status: 422, message, .. } => message.clone(),
            error => error.to_string(),
        }
    }
}

#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    error: String,
    #[serde(default)]
    offset: Option<u64>,
}

/// A keep-alive connection to the hub. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    client: reqwest::Client,
    url: String,
    token_file: PathBuf,
    /// A refusal stops terraform.
    stop: Stop,
}

impl Hub {
    /// Creates the client; sends nothing. With `ca` (PEM), only certificates of that authority are trusted.
    ///
    /// # Errors
    /// If the certificate is invalid.
    pub fn new(url: &str, ca: Option<&str>, token_file: PathBuf, stop: Stop) -> Result<Self, HubError> {
        let failed = |source| HubError::Client { url: url.to_owned(), source };
        // Another part of the process may have installed the same provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The user's proxy settings are for providers. The hub is inside the cluster.
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_secs(5))
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .user_agent(concat!("knoll-runner/", env!("CARGO_PKG_VERSION")));
        if let Some(ca) = ca {
            let certificates = reqwest::Certificate::from_pem_bundle(ca.as_bytes()).map_err(failed)?;
            builder = builder.tls_certs_only(certificates).https_only(true);
        }
        let client = builder.build().map_err(failed)?;
        Ok(Hub { client, url: url.trim_end_matches('/').to_owned(), token_file, stop })
    }

    /// Sends `GET path`. Returns none on 404.
    ///
    /// # Errors
    /// If the hub refuses.
    pub async fn get(&self, what: &'static str, path: &str) -> Result<Option<Bytes>, HubError> {
        self.poll(what, path, REQUEST_TIMEOUT).await
    }

    /// The same, for an answer that takes `timeout` at most.
    ///
    /// # Errors
    /// If the hub refuses.
    pub async fn poll(&self, what: &'static str, path: &str, timeout: Duration) -> Result<Option<Bytes>, HubError> {
        let (status, body) = self.exchange(what, Method::GET, path, timeout, |request| request).await?;
        Ok((status != StatusCode::NO_CONTENT).then_some(body))
    }

    /// Sends `content` to `path`, and returns the response.
    ///
    /// # Errors
    /// If the hub refuses.
    pub async fn send(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        content: Bytes,
    ) -> Result<Bytes, HubError> {
        self.submit(what, method, path, content, REQUEST_TIMEOUT).await
    }

    /// The same, for an answer that takes `timeout` at most.
    ///
    /// # Errors
    /// If the hub refuses.
    pub async fn submit(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        content: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, HubError> {
        if content.len() as u64 > LARGEST_CONTENT {
            let message =
                format!("it has more than {} MiB, which is the most that Knoll stores", LARGEST_CONTENT >> 20);
            return Err(HubError::Refused { what, status: 413, message, offset: None });
        }
        let fill = |request: RequestBuilder| request.body(content.clone());
        let (_, body) = self.exchange(what, method, path, timeout, fill).await?;
        Ok(body)
    }

    async fn exchange(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        timeout: Duration,
        fill: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<(StatusCode, Bytes), HubError> {
        let url = format!("{}{path}", self.url);
        let mut pause = FIRST_PAUSE;
        let mut unauthorized = 0;
        loop {
            let token = self.token()?;
            let request = self.client.request(method.clone(), &url).timeout(timeout).bearer_auth(token);
            let problem = match complete(fill(request).send().await).await {
                Ok((status, body)) if status.is_success() => return Ok((status, body)),
                Ok((status, body)) => {
                    unauthorized += u32::from(status == StatusCode::UNAUTHORIZED);
                    if is_final(status, unauthorized) {
                        let refusal = refusal(what, status, &body);
                        if refusal.is_fence() {
                            self.stop.request_once(Reason::Fenced(refusal.to_string()));
                        }
                        return Err(refusal);
                    }
                    refusal(what, status, &body).to_string()
                }
                Err(error) => error.to_string(),
            };
            tracing::warn!(what, problem, "the hub is unavailable; retrying");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn token(&self) -> Result<String, HubError> {
        std::fs::read_to_string(&self.token_file)
            .map(|token| token.trim().to_owned())
            .map_err(|source| HubError::Token { path: self.token_file.clone(), source })
    }
}

impl Store for Hub {
    async fn put(&self, snapshot: StateFile) -> Result<(), HubError> {
        self.send("the state", Method::PUT, "/v1/state", snapshot.content).await.map(drop)
    }
}

async fn complete(answer: reqwest::Result<Response>) -> reqwest::Result<(StatusCode, Bytes)> {
    let answer = answer?;
    Ok((answer.status(), answer.bytes().await?))
}

fn is_final(status: StatusCode, unauthorized: u32) -> bool {
    match status {
        StatusCode::UNAUTHORIZED => unauthorized >= UNAUTHORIZED_ATTEMPTS,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => false,
        status => status.is_client_error(),
    }
}

fn refusal(what: &'static str, status: StatusCode, body: &[u8]) -> HubError {
    let Refusal { error, offset } = serde_json::from_slice(body).unwrap_or_default();
    let message = if error.is_empty() { String::from_utf8_lossy(body).into_owned() } else { error };
    HubError::Refused { what, status: status.as_u16(), message, offset }
}
