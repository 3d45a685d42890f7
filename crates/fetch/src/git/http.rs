//! Git's smart protocol over Knoll's HTTP client, with its certificates, limits and credentials.

use std::{
    io::{self, BufRead, Read, Write},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Buf, Bytes};
use gix_transport::client::blocking_io::http::{self, GetResponse, PostBodyDataKind, PostResponse};
use reqwest::{Method, Response};
use tokio::runtime::Handle;

use super::remote::Remote;
use crate::{
    Error,
    client::{self, Client},
    limits::Limits,
};

/// The HTTP transport for the git library.
pub(super) struct Http {
    client: Client,
    handle: Handle,
    limits: Arc<Limits>,
    shown: String,
    moved: Option<String>,
}

impl Http {
    pub fn new(remote: &Remote) -> Result<Self, Error> {
        Ok(Self {
            client: Client::new(
                &remote.url.to_bstring().to_string(),
                &remote.shown,
                &remote.credentials,
                remote.credentials.for_git(),
                &remote.settings,
            )?,
            handle: Handle::current(),
            limits: remote.limits.clone(),
            shown: remote.shown.clone(),
            moved: None,
        })
    }

    fn exchange(
        &self,
        method: Method,
        url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Arc<Mutex<Exchange>>, gix::Error> {
        let failed = |error: Error| gix::Error::from_error(self.limits.fail(error));
        let (request, with_credentials) = self.client.request(method, url).map_err(failed)?;
        let mut request = request.timeout(self.limits.time());
        for line in headers {
            if let Some((name, value)) = line.as_ref().split_once(':')
                && !name.eq_ignore_ascii_case("user-agent")
            {
                request = request.header(name.trim(), value.trim());
            }
        }
        Ok(Arc::new(Mutex::new(Exchange {
            client: self.client.clone(),
            handle: self.handle.clone(),
            limits: self.limits.clone(),
            shown: self.shown.clone(),
            with_credentials,
            body: Vec::new(),
            stage: Stage::Open(request),
            headers: Bytes::new(),
        })))
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
        let exchange = self.exchange(Method::GET, url, headers)?;
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
        let exchange = self.exchange(Method::POST, url, headers)?;
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
    client: Client,
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
        self.client.accept(&response, self.with_credentials).map_err(|error| self.limits.fail(error))?;
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
        self.limits.fail(client::failure(&self.shown, error, &self.limits))
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
