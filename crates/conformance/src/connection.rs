//! A connection to one API server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use futures::{Stream, StreamExt};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use kube::client::{Body, ClientBuilder};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

/// The response headers that clients act on.
const HEADERS: &[&str] = &["content-type", "warning", "retry-after", "allow"];
/// The timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Connection {
    pub host: String,
    admin: Client,
    nobody: Client,
}

#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub code: u16,
    /// The headers that are compared.
    pub headers: BTreeMap<String, Vec<String>>,
    /// The body, as JSON if it is valid JSON, otherwise as text.
    pub body: Value,
}

impl Answer {
    /// The response as one value, for comparison.
    pub fn to_value(&self) -> Value {
        serde_json::json!({"code": self.code, "headers": self.headers, "body": self.body})
    }
}

/// A request with its variables filled in.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Send it without the administrator's credentials.
    pub bare: bool,
}

impl Connection {
    /// Connects with the current context of a kubeconfig.
    pub async fn open(kubeconfig: &str) -> anyhow::Result<Self> {
        let parsed = Kubeconfig::from_yaml(kubeconfig).context("the kubeconfig cannot be read")?;
        let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
            .await
            .context("the kubeconfig's current context cannot be used")?;
        // A response with `Retry-After` is compared like any other.
        config.default_retry = false;
        let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        let build = |config| -> anyhow::Result<Client> { Ok(ClientBuilder::try_from(config)?.build()) };
        Ok(Self { host, admin: build(config)?, nobody: build(bare)? })
    }

    async fn start(&self, outgoing: &Outgoing) -> anyhow::Result<http::Response<Body>> {
        let mut request = Request::builder().method(outgoing.method.as_str()).uri(&outgoing.path);
        for (name, value) in &outgoing.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(outgoing.body.clone())).context("the request cannot be built")?;
        let client = if outgoing.bare { &self.nobody } else { &self.admin };
        let answer = tokio::time::timeout(RESPONSE_TIMEOUT, client.send(request));
        Ok(answer.await.context("no answer came in time")??)
    }

    /// Sends a request, and reads the whole response.
    pub async fn send(&self, outgoing: &Outgoing) -> anyhow::Result<Answer> {
        let response = self.start(outgoing).await?;
        let code = response.status().as_u16();
        let headers = selected(response.headers());
        let body = tokio::time::timeout(RESPONSE_TIMEOUT, response.into_body().collect());
        let bytes = body.await.context("the answer did not end in time")??.to_bytes();
        Ok(Answer { code, headers, body: parse(&bytes) })
    }

    /// Sends a request whose response is a stream of JSON lines.
    pub async fn watch(
        &self,
        outgoing: &Outgoing,
    ) -> anyhow::Result<(Answer, impl Stream<Item = Value> + Send + use<>)> {
        let response = self.start(outgoing).await?;
        let answer =
            Answer { code: response.status().as_u16(), headers: selected(response.headers()), body: Value::Null };
        let chunks = response.into_body().into_data_stream();
        let lines = futures::stream::unfold((chunks, Vec::new()), |(mut chunks, mut buffer)| async move {
            loop {
                if let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    return Some((parse(&line), (chunks, buffer)));
                }
                match chunks.next().await {
                    Some(Ok(chunk)) => buffer.extend_from_slice(&chunk),
                    _ if !buffer.is_empty() => {
                        let line = std::mem::take(&mut buffer);
                        return Some((parse(&line), (chunks, buffer)));
                    }
                    _ => return None,
                }
            }
        });
        Ok((answer, lines))
    }
}

fn selected(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut out = BTreeMap::new();
    for name in HEADERS {
        let values: Vec<String> =
            headers.get_all(*name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect();
        if !values.is_empty() {
            out.insert((*name).to_owned(), values);
        }
    }
    out
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}
