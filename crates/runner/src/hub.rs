//! The runner's side of the hub's HTTP API.
//!
//! A run does not fail because the hub is away for a while: everything but a refusal (4xx) is tried again, with growing
//! pauses, for as long as the runner lives. The token is read from its file for each attempt, because the kubelet replaces it.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::state::{Snapshot, Store};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A token that has just been replaced can be refused once or twice; one that is wrong is refused each time.
const UNAUTHORIZED_ATTEMPTS: u32 = 3;
/// Long enough for a large state over a slow network; an answer that takes longer does not come.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the hub could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client cannot be made from the runner's configuration.
    #[error("cannot talk to the hub at `{url}`: {source}")]
    Client {
        /// The hub's address.
        url: String,
        /// What is wrong with it or with the certificate.
        source: reqwest::Error,
    },
    /// The token is not there.
    #[error("cannot read the hub token `{}`: {source}; the pod needs its projected token volume", path.display())]
    Token {
        /// Where it should be.
        path: PathBuf,
        /// What the disk said.
        source: std::io::Error,
    },
    /// The hub answered, and the answer is no.
    #[error("the hub refused {what} ({status}): {message}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// The HTTP status.
        status: u16,
        /// The hub's sentence.
        message: String,
        /// The offset that the hub has, in a refusal of a log's piece.
        offset: Option<u64>,
    },
    /// The hub's answer makes no sense, so it and the runner are not of the same version.
    #[error("the hub's answer to {what} cannot be read: {source}; is the operator of another version?")]
    Answer {
        /// What was asked.
        what: &'static str,
        /// What the parser said.
        source: serde_json::Error,
    },
}

impl Error {
    /// What to tell the user: the hub's own sentence where it is about what the user wrote.
    pub fn sentence(&self) -> String {
        match self {
            Error::Refused { status: 422, message, .. } => message.clone(),
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

/// A connection to the hub, kept alive. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    client: reqwest::Client,
    url: String,
    token_file: PathBuf,
}

impl Hub {
    /// Prepares the connection; nothing is sent yet. With `ca` (PEM), only certificates of that authority are trusted.
    ///
    /// # Errors
    /// When the certificate cannot be read.
    pub fn new(url: &str, ca: Option<&str>, token_file: PathBuf) -> Result<Self, Error> {
        let failed = |source| Error::Client { url: url.to_owned(), source };
        // Another part of the process may have chosen already; both choose the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Proxies of the user's environment are for providers; the hub is inside of the cluster.
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_secs(5))
            .tcp_nodelay(true)
            .user_agent(concat!("knoll-runner/", env!("CARGO_PKG_VERSION")));
        if let Some(ca) = ca {
            let certificates = reqwest::Certificate::from_pem_bundle(ca.as_bytes()).map_err(failed)?;
            builder = builder.tls_certs_only(certificates).https_only(true);
        }
        let client = builder.build().map_err(failed)?;
        Ok(Hub { client, url: url.trim_end_matches('/').to_owned(), token_file })
    }

    /// `GET path`; nothing when the hub has nothing there.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn get(&self, what: &'static str, path: &str) -> Result<Option<Bytes>, Error> {
        let (status, body) = self.exchange(what, Method::GET, path, |request| request).await?;
        Ok((status != StatusCode::NO_CONTENT).then_some(body))
    }

    /// `GET path`, parsed.
    ///
    /// # Errors
    /// When the hub refuses or its answer cannot be read.
    pub async fn get_json<T: DeserializeOwned>(&self, what: &'static str, path: &str) -> Result<T, Error> {
        let (_, body) = self.exchange(what, Method::GET, path, |request| request).await?;
        serde_json::from_slice(&body).map_err(|source| Error::Answer { what, source })
    }

    /// Sends `content` to `path` and returns the answer.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn send(&self, what: &'static str, method: Method, path: &str, content: Bytes) -> Result<Bytes, Error> {
        let (_, body) = self.exchange(what, method, path, |request| request.body(content.clone())).await?;
        Ok(body)
    }

    async fn exchange(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        fill: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<(StatusCode, Bytes), Error> {
        let url = format!("{}{path}", self.url);
        let mut pause = FIRST_PAUSE;
        let mut unauthorized = 0;
        loop {
            let token = self.token()?;
            let request = self.client.request(method.clone(), &url).timeout(REQUEST_TIMEOUT).bearer_auth(token);
            let problem = match complete(fill(request).send().await).await {
                Ok((status, body)) if status.is_success() => return Ok((status, body)),
                Ok((status, body)) => {
                    unauthorized += u32::from(status == StatusCode::UNAUTHORIZED);
                    if is_final(status, unauthorized) {
                        return Err(refusal(what, status, &body));
                    }
                    refusal(what, status, &body).to_string()
                }
                Err(error) => error.to_string(),
            };
            tracing::warn!(what, problem, "the hub is away; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn token(&self) -> Result<String, Error> {
        std::fs::read_to_string(&self.token_file)
            .map(|token| token.trim().to_owned())
            .map_err(|source| Error::Token { path: self.token_file.clone(), source })
    }
}

impl Store for Hub {
    async fn put(&self, snapshot: Snapshot) -> Result<(), Error> {
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

fn refusal(what: &'static str, status: StatusCode, body: &[u8]) -> Error {
    let Refusal { error, offset } = serde_json::from_slice(body).unwrap_or_default();
    let message = if error.is_empty() { String::from_utf8_lossy(body).into_owned() } else { error };
    Error::Refused { what, status: status.as_u16(), message, offset }
}
