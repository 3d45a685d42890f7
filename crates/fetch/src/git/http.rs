//! Git's smart protocol over Knoll's HTTP client, with its certificates, limits and credentials.

use std::{
    io::{self, BufRead, Read, Write},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Buf, Bytes};
use gix_transport::client::blocking_io::http::{self, GetResponse, PostBodyDataKind, PostResponse};
use reqwest::{Method, Response, StatusCode, header};
use tokio::runtime::Handle;

use super::remote::Remote;
use crate::{
    Credentials, Error,
    limits::{LONGEST, Limits},
};

/// An HTTP client that trusts the certificate authority of the credentials.
pub(crate) fn client(url: &str, credentials: &Credentials) -> Result<reqwest::Client, Error> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("git/knoll-", env!("CARGO_PKG_VERSION")))
        .connect_timeout(std::time::Duration::from_secs(15))
        .timeout(LONGEST);
    if let Some(ca) = &credentials.ca {
        let wrong = |error: reqwest::Error| Error::Credentials {
            url: url.to_owned(),
            why: format!("`ca.crt` in the Secret is not a valid certificate: {error}"),
        };
        for certificate in reqwest::Certificate::from_pem_bundle(ca.as_bytes()).map_err(wrong)? {
            builder = builder.add_root_certificate(certificate);
        }
    }
    builder.build().map_err(|error| Error::Reach { url: url.to_owned(), why: causes(&error) })
}

/// The message of an error with those of its causes.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut all = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !all.iter().any(|known| known.contains(&text)) {
            all.push(text);
        }
        next = cause.source();
    }
    all.join(": ")
}

/// The error for an unsuccessful response.
pub(crate) fn refusal(url: &str, status: StatusCode, with_credentials: bool) -> Error {
    let why = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if with_credentials => {
            format!("it rejected the credentials of the Secret ({status})")
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            format!(
                "it requires credentials ({status}); store `username` and `password`, or `token`, in a Secret, and set `secretRef` to it"
            )
        }
        StatusCode::NOT_FOUND => {
            format!("nothing found at this URL ({status}), or the credentials do not allow to read it")
        }
        status => format!("it responded with {status}"),
    };
    Error::Refused { url: url.to_owned(), why }
}

/// Whether two URLs belong to the same server. Credentials are only sent to that server.
fn same_server(one: &str, other: &str) -> bool {
    let origin = |url: &str| reqwest::Url::parse(url).ok().map(|url| url.origin());
    origin(one).is_some_and(|one| origin(other) == Some(one))
}

/// The HTTP transport for the git library.
pub(super) struct Http {
    client: reqwest::Client,
    handle: Handle,
    limits: Arc<Limits>,
    url: String,
    shown: String,
    authorization: Option<String>,
    moved: Option<String>,
}

impl Http {
    pub fn new(remote: &Remote) -> Result<Self, Error> {
        Ok(Self {
            client: client(&remote.shown, &remote.credentials)?,
            handle: Handle::current(),
            limits: remote.limits.clone(),
            url: remote.url.to_bstring().to_string(),
            shown: remote.shown.clone(),
            authorization: remote.credentials.authorization(),
            moved: None,
        })
    }

    fn exchange(
        &self,
        method: Method,
        url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Arc<Mutex<Exchange>> {
        let mut request = self.client.request(method, url).timeout(self.limits.time());
        for line in headers {
            if let Some((name, value)) = line.as_ref().split_once(':')
                && !name.eq_ignore_ascii_case("user-agent")
            {
                request = request.header(name.trim(), value.trim());
            }
        }
        let authorization = self.authorization.as_ref().filter(|_| same_server(url, &self.url));
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        Arc::new(Mutex::new(Exchange {
            handle: self.handle.clone(),
            limits: self.limits.clone(),
            shown: self.shown.clone(),
            with_credentials: authorization.is_some(),
            body: Vec::new(),
            stage: Stage::Open(request),
            headers: Bytes::new(),
        }))
    }
}

impl http::Http for Http {
    type Headers = Headers;
    type ResponseBody = Body;
    type PostBody = PostBody;

    fn get(
        &mut self,
        url: &str,
        base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<GetResponse<Headers, Body>, gix::Error> {
        let exchange = self.exchange(Method::GET, url, headers);
        let answered = lock(&exchange).send().map_err(gix::Error::from_error)?;
        // After a redirect, the following requests go to the new base URL.
        if let Some(tail) = url.strip_prefix(base_url)
            && answered != url
        {
            self.moved = answered.strip_suffix(tail).map(str::to_owned);
        }
        let body = Body { exchange: exchange.clone(), chunk: Bytes::new() };
        Ok(GetResponse { headers: Headers { exchange, text: None }, body })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> Result<PostResponse<Headers, Body, PostBody>, gix::Error> {
        let exchange = self.exchange(Method::POST, url, headers);
        Ok(PostResponse {
            post_body: PostBody(exchange.clone()),
            headers: Headers { exchange: exchange.clone(), text: None },
            body: Body { exchange, chunk: Bytes::new() },
        })
    }

    fn configure(&mut self, _config: &dyn std::any::Any) -> Result<(), gix::Error> {
        Ok(())
    }

    fn redirected_base_url(&self) -> Option<String> {
        self.moved.clone()
    }
}

/// One request and its response. The request is sent when the response is first read, because then its body is
/// complete.
struct Exchange {
    handle: Handle,
    limits: Arc<Limits>,
    shown: String,
    with_credentials: bool,
    body: Vec<u8>,
    stage: Stage,
    headers: Bytes,
}

enum Stage {
    Open(reqwest::RequestBuilder),
    Answered(Response),
    Over,
}

fn lock(exchange: &Mutex<Exchange>) -> std::sync::MutexGuard<'_, Exchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exchange {
    /// Sends the request once, and returns the URL that responded.
    fn send(&mut self) -> io::Result<String> {
        let request = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open(request) => request,
            stage => {
                self.stage = stage;
                return Ok(String::new());
            }
        };
        let body = std::mem::take(&mut self.body);
        let response = self.handle.block_on(request.body(body).send()).map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(self.limits.fail(refusal(&self.shown, response.status(), self.with_credentials)));
        }
        let answered = response.url().to_string();
        let mut text = Vec::new();
        for (name, value) in response.headers() {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.push(b'\n');
        }
        self.headers = text.into();
        self.stage = Stage::Answered(response);
        Ok(answered)
    }

    fn next(&mut self) -> io::Result<Bytes> {
        self.send()?;
        let Stage::Answered(response) = &mut self.stage else { return Ok(Bytes::new()) };
        let chunk = self.handle.clone().block_on(response.chunk()).map_err(|error| self.unreachable(&error))?;
        let chunk = chunk.unwrap_or_default();
        self.limits.take(&self.shown, chunk.len())?;
        Ok(chunk)
    }

    fn unreachable(&self, error: &reqwest::Error) -> io::Error {
        let url = self.shown.clone();
        let late = error.is_timeout() && self.limits.time().is_zero();
        self.limits.fail(if late { Error::TooSlow(url) } else { Error::Reach { url, why: causes(error) } })
    }
}

/// The headers of a response, one per line.
pub(super) struct Headers {
    exchange: Arc<Mutex<Exchange>>,
    text: Option<Bytes>,
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        copy(self, buffer)
    }
}

impl BufRead for Headers {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.text.is_none() {
            let mut exchange = lock(&self.exchange);
            exchange.send()?;
            self.text = Some(exchange.headers.clone());
        }
        Ok(self.text.as_deref().unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        if let Some(text) = &mut self.text {
            text.advance(count);
        }
    }
}

/// The body of a response, as a stream.
pub(super) struct Body {
    exchange: Arc<Mutex<Exchange>>,
    chunk: Bytes,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        copy(self, buffer)
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() {
            self.chunk = lock(&self.exchange).next()?;
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, count: usize) {
        self.chunk.advance(count);
    }
}

/// The body of a request. It is small, so it is buffered until it is complete.
pub(super) struct PostBody(Arc<Mutex<Exchange>>);

impl Write for PostBody {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        lock(&self.0).body.extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn copy(from: &mut impl BufRead, buffer: &mut [u8]) -> io::Result<usize> {
    let there = from.fill_buf()?;
    let count = there.len().min(buffer.len());
    buffer[..count].copy_from_slice(&there[..count]);
    from.consume(count);
    Ok(count)
}
