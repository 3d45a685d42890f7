//! The one way to the Kubernetes API: every request of Knoll's passes the same layers.
//!
//! A request is tried again only when the server has not carried it out, a few times, and briefly: a controller
//! that gets an error decides again from fresh facts, which is better than insisting on an old one.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use knoll_api::names::is_path_segment;
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use tower::{BoxError, buffer::Buffer, filter::FilterLayer, retry::Policy, retry::RetryLayer};

use crate::metrics::{Counted, Metrics};

/// How many requests may wait for a connection.
const WAITING: usize = 1024;

/// Connects to the cluster.
///
/// # Errors
/// When the configuration cannot be used, such as a certificate that cannot be read.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    connect_counted(config, &Metrics::default())
}

/// Connects to the cluster, and counts the requests.
///
/// # Errors
/// When the configuration cannot be used.
pub fn connect_counted(mut config: Config, metrics: &Metrics) -> Result<Client, kube::Error> {
    // The default insists up to fifteen times, with waits that outlast any lease.
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config)?;
    // Counted below the retries: what the server has to do is what counts.
    let stack = builder.with_layer(&FilterLayer::new(has_plain_path));
    let stack = stack.with_layer(&tower::layer::layer_fn(|service| Counted::new(service, metrics)));
    let stack = stack.with_layer(&tower::layer::layer_fn(|service| Buffer::new(service, WAITING)));
    Ok(stack.with_layer(&RetryLayer::new(BoundedRetry::default())).build())
}

/// Refuses a request whose path is not made of plain segments. Names are pasted into paths as they are, and one that
/// somebody made up, such as `../x`, must not lead elsewhere.
fn has_plain_path(request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let mut segments = request.uri().path().split('/');
    match segments.next() == Some("") && segments.all(is_path_segment) {
        true => Ok(request),
        false => Err("a name in the path of a request to the API is not one segment of it; nothing was sent".into()),
    }
}

/// Tries a request again when the server was too busy to look at it.
#[derive(Clone, Debug, Default)]
pub struct BoundedRetry {
    attempts: u32,
}

impl BoundedRetry {
    const MOST: u32 = 4;
    const FIRST_WAIT: Duration = Duration::from_millis(50);
    const LONGEST_WAIT: Duration = Duration::from_secs(2);

    /// How long to wait before the next attempt, when there is to be one.
    fn wait(&self, method: &Method, status: StatusCode, asked_for: Option<Duration>) -> Option<Duration> {
        let again = match status {
            // The server refused before it did anything.
            StatusCode::TOO_MANY_REQUESTS => true,
            // It may have done it; only what can be done twice is done twice.
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => *method == Method::GET,
            _ => false,
        };
        if !again || self.attempts >= Self::MOST {
            return None;
        }
        let own = Self::FIRST_WAIT * 2_u32.pow(self.attempts);
        Some(asked_for.unwrap_or(own).clamp(own, Self::LONGEST_WAIT))
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for BoundedRetry {
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let response = result.as_ref().ok()?;
        let asked_for = response.headers().get(http::header::RETRY_AFTER);
        let asked_for = asked_for.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
        let wait = self.wait(request.method(), response.status(), asked_for.map(Duration::from_secs))?;
        self.attempts += 1;
        Some(tokio::time::sleep(wait))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // A body that streams cannot be sent twice.
        let mut again = Request::new(request.body().try_clone()?);
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.version_mut() = request.version();
        *again.headers_mut() = request.headers().clone();
        *again.extensions_mut() = request.extensions().clone();
        Some(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_anything_but_plain_segments_is_not_sent() {
        let rows = [
            ("/version", true),
            ("/api/v1/namespaces/default/secrets/a?limit=1", true),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", true),
            ("/api/v1/namespaces/default/configmaps/../secrets/a", false),
            ("/api/v1/namespaces//secrets/a", false),
            ("/api/v1/namespaces/default/secrets/a%2f..", false),
            ("/api/v1/namespaces/default/secrets/.", false),
            ("/api/v1/namespaces/default/secrets/", false),
        ];
        for (path, expect) in rows {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = http::Uri::from_static(path);
            assert_eq!(has_plain_path(request).is_ok(), expect, "{path}");
        }
    }

    #[test]
    fn only_what_the_server_did_not_do_is_tried_again() {
        let first = BoundedRetry::default();
        let last = BoundedRetry { attempts: BoundedRetry::MOST };
        let rows = [
            (&first, Method::POST, 429, None, Some(50)),
            (&first, Method::POST, 429, Some(1), Some(1000)),
            (&first, Method::POST, 429, Some(60), Some(2000)),
            (&first, Method::GET, 503, None, Some(50)),
            (&first, Method::POST, 503, None, None),
            (&first, Method::PATCH, 504, None, None),
            (&first, Method::GET, 500, None, None),
            (&first, Method::GET, 200, None, None),
            (&last, Method::GET, 429, None, None),
        ];
        for (policy, method, status, asked_for, expect) in rows {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            let wait = policy.wait(&method, status, asked_for.map(Duration::from_secs));
            assert_eq!(wait, expect.map(Duration::from_millis), "{method} {status} {asked_for:?}");
        }
    }
}
