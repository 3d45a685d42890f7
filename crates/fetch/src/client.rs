//! The HTTP client of all fetches: it connects to open addresses only, and sends credentials to one server only.

use std::{error, time::Duration};

use reqwest::{
    Method, RequestBuilder, Response, StatusCode, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header,
    redirect::{Attempt, Policy},
};

use knoll_api::source::shown_address;

use crate::{
    Addresses, Credentials, Error, Refusal, Settings,
    address::literal,
    limits::{LONGEST, Limits},
};

/// A server that does not answer a connection by then is down, or behind a firewall.
const CONNECT: Duration = Duration::from_secs(15);
/// Forges redirect twice at most: to the new name of a repository, and to the host of its files.
const MOST_REDIRECTS: usize = 5;

/// A client for one server, and for the servers that it redirects to.
#[derive(Clone)]
pub(crate) struct Client {
    inner: reqwest::Client,
    addresses: Addresses,
    /// The server that the credentials are for.
    server: Option<Url>,
    /// The URL for messages.
    shown: String,
    authorization: Option<String>,
}

impl Client {
    /// A client that trusts the certificate authority of the credentials.
    pub fn new(
        url: &str,
        shown: &str,
        credentials: &Credentials,
        authorization: Option<String>,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let wrong = |why: String| Error::Credentials { url: shown.to_owned(), why };
        let addresses = settings.addresses.clone();
        // A proxy would connect on the operator's behalf to addresses that nobody has checked.
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("git/knoll-", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .dns_resolver(Resolver(addresses.clone()))
            .redirect(redirects(addresses.clone()))
            .connect_timeout(CONNECT)
            .timeout(LONGEST);
        if let Some(ca) = &credentials.ca {
            let invalid =
                |error: reqwest::Error| wrong(format!("`ca.crt` in the Secret is not a valid certificate: {error}"));
            for certificate in reqwest::Certificate::from_pem_bundle(ca.as_bytes()).map_err(invalid)? {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let server = Url::parse(url).ok();
        if authorization.is_some() && !settings.plain_http_credentials && server.as_ref().is_none_or(is_exposed) {
            return Err(wrong(
                "they would be sent over http://, where everybody on the way can read them; use https://, or start the operator with `--plain-http-credentials`".to_owned(),
            ));
        }
        let inner = builder.build().map_err(|error| Error::Reach { url: shown.to_owned(), why: causes(&error) })?;
        Ok(Self { inner, addresses, server, shown: shown.to_owned(), authorization })
    }

    /// A request to a URL, and whether it has the credentials: only if the URL is on their server.
    pub fn request(&self, method: Method, url: &str) -> Result<(RequestBuilder, bool), Error> {
        let address = |why: String| Error::Address { url: self.shown.clone(), why };
        let url = Url::parse(url).map_err(|error| address(error.to_string()))?;
        let host = url.host_str().ok_or_else(|| address("it has no host".to_owned()))?;
        self.addresses.check_host(host).map_err(|refusal| self.forbidden(refusal))?;
        let is_theirs = self.server.as_ref().is_some_and(|server| server.origin() == url.origin());
        let request = self.inner.request(method, url);
        Ok(match self.authorization.as_ref().filter(|_| is_theirs) {
            Some(authorization) => (request.header(header::AUTHORIZATION, authorization), true),
            None => (request, false),
        })
    }

    /// Checks a response before its body is read: where it came from, and its status.
    pub fn accept(&self, response: &Response, with_credentials: bool) -> Result<(), Error> {
        if let Some(address) = response.remote_addr() {
            self.addresses.check(address.ip()).map_err(|refusal| self.forbidden(refusal))?;
        }
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(unsuccessful(&self.shown, status, with_credentials)),
        }
    }

    fn forbidden(&self, refusal: Refusal) -> Error {
        Error::Forbidden { url: self.shown.clone(), refusal }
    }
}

/// Whether a URL sends its headers readably over a network. Loopback is none.
fn is_exposed(url: &Url) -> bool {
    let host = url.host_str().and_then(literal);
    url.scheme() != "https" && !host.is_some_and(|address| address.is_loopback())
}

/// Follows redirects to open addresses. The connection's resolver checks names.
fn redirects(addresses: Addresses) -> Policy {
    Policy::custom(move |attempt: Attempt<'_>| {
        if attempt.previous().len() > MOST_REDIRECTS {
            return attempt.error(format!("it redirects more than {MOST_REDIRECTS} times"));
        }
        if attempt.url().scheme() != "https" && attempt.previous().iter().any(|url| url.scheme() == "https") {
            return attempt.error("it redirects from https:// to http://");
        }
        match attempt.url().host_str().map(|host| addresses.check_host(host)) {
            Some(Ok(())) => attempt.follow(),
            Some(Err(refusal)) => attempt.error(refusal),
            None => attempt.error("it redirects to a URL without a host"),
        }
    })
}

/// Resolves names to the addresses that may be connected to. The connection uses these and asks nobody again, so a name
/// cannot change between the check and the connection.
struct Resolver(Addresses);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let open = addresses.open_among(found)?;
            Ok(Box::new(open.into_iter()) as Addrs)
        })
    }
}

/// The error of a request without a response.
pub(crate) fn failure(url: &str, error: &reqwest::Error, limits: &Limits) -> Error {
    let url = url.to_owned();
    match refusal_in(error) {
        Some(refusal) => Error::Forbidden { url, refusal },
        None if error.is_timeout() && limits.time().is_zero() => Error::TooSlow(url),
        None => Error::Reach { url, why: causes(error) },
    }
}

/// The refusal of an address among the causes of an error.
fn refusal_in(error: &(dyn error::Error + 'static)) -> Option<Refusal> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|cause| cause.downcast_ref()).copied().next()
}

/// The message of an error with those of its causes. Addresses in it are shown as elsewhere.
pub(crate) fn causes(error: &dyn error::Error) -> String {
    let mut all = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !all.iter().any(|known| known.contains(&text)) {
            all.push(text);
        }
        next = cause.source();
    }
    let is_end = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | '`' | '"' | '\'' | '<' | '>');
    let text = all.join(": ");
    let words = text.split_inclusive(is_end).map(|word| {
        let (address, end) = word.split_at(word.trim_end_matches(is_end).len());
        shown_address(address) + end
    });
    words.collect()
}

/// The error for an unsuccessful response. It has the status, and nothing of the body.
fn unsuccessful(url: &str, status: StatusCode, with_credentials: bool) -> Error {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn plain_http_is_exposed_unless_it_stays_on_the_machine() {
        let rows = [
            ("https://example.com/a", false),
            ("http://example.com/a", true),
            ("http://127.0.0.1:80/a", false),
            ("http://[::1]/a", false),
            // A name may resolve to anything.
            ("http://localhost/a", true),
            ("http://10.0.0.1/a", true),
        ];
        for (url, expect) in rows {
            assert_eq!(is_exposed(&Url::parse(url).unwrap()), expect, "{url}");
        }
    }
}
