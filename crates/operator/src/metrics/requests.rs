//! Counts, measures and traces the requests to the Kubernetes API, as a layer under everything that makes them.

use std::{
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response};
use kube::{Client, client::Body};
use prometheus_client::{
    encoding::EncodeLabelSet, metrics::counter::Counter, metrics::family::Family, metrics::histogram::Histogram,
    registry::Registry,
};
use tower::Service;
use tracing::Instrument;

use super::{Metrics, ShortBuckets};

/// The resources that Knoll asks for by itself. Others are objects of a user's, whose kinds are the user's words.
const KNOWN: &[&str] = &[
    "approvals",
    "atoms",
    "atomversions",
    "clusterrolebindings",
    "clusterroles",
    "configmaps",
    "customresourcedefinitions",
    "events",
    "leases",
    "namespaces",
    "pods",
    "policies",
    "rolebindings",
    "roles",
    "runs",
    "secrets",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "serviceaccounts",
    "services",
    "stacks",
    "tokenreviews",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "workspaces",
];

/// How many requests there were, by what they asked for and what came of them.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    requests: Family<Labels, Counter>,
    duration: Family<DurationLabels, Histogram, ShortBuckets>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self { requests: Family::default(), duration: Family::new_with_constructor(ShortBuckets) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: &'static str,
    resource: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
    resource: &'static str,
    code: String,
}

impl RequestMetrics {
    pub(super) fn register(self, registry: &mut Registry) {
        let help = "Requests to the Kubernetes API; the code is `none` when there was no answer";
        registry.register("knoll_api_requests", help, self.requests);
        let help = "The time until the Kubernetes API answered, by verb, resource and outcome";
        registry.register("knoll_api_request_duration_seconds", help, self.duration);
    }

    fn count(&self, verb: &'static str, resource: &'static str, code: Option<u16>, took: Duration) {
        let labels = DurationLabels { verb, resource, outcome: outcome(code) };
        self.duration.get_or_create(&labels).observe(took.as_secs_f64());
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&Labels { verb, resource, code }).inc();
    }
}

/// A service that counts what passes through it.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    requests: RequestMetrics,
}

impl<S> Counted<S> {
    /// Counts what `inner` is asked for.
    pub fn new(inner: S, metrics: &Metrics) -> Self {
        Self { inner, requests: metrics.requests.clone() }
    }
}

/// The same client, with its requests counted.
#[must_use]
pub fn counted(client: Client, metrics: &Metrics) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(Counted::new(service, metrics), namespace)
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Meaning { verb, resource, namespace, name } =
            meaning(request.method(), request.uri().path(), request.uri().query());
        let span = tracing::info_span!("api_request", verb, kind = resource, namespace, name);
        let requests = self.requests.clone();
        let started = Instant::now();
        let answer = span.in_scope(|| self.inner.call(request));
        async move {
            let answer = answer.await;
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            requests.count(verb, resource, code, started.elapsed());
            answer
        }
        .instrument(span)
        .boxed()
    }
}

/// The outcome of a request, in one of a few words.
fn outcome(code: Option<u16>) -> &'static str {
    match code {
        Some(..400) => "ok",
        Some(404) => "not_found",
        Some(409) => "conflict",
        Some(400..500) => "refused",
        Some(_) => "failed",
        None => "no_answer",
    }
}

/// What a request is about, as RBAC calls it.
#[derive(Debug, PartialEq)]
struct Meaning<'a> {
    verb: &'static str,
    /// One of [`KNOWN`], `other` or `none`.
    resource: &'static str,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
}

fn meaning<'a>(method: &Method, path: &'a str, query: Option<&str>) -> Meaning<'a> {
    let mut words = path.split('/').filter(|word| !word.is_empty()).peekable();
    match words.next() {
        Some("api") => drop(words.next()),
        Some("apis") => drop((words.next(), words.next())),
        _ => return Meaning { verb: verb(method, true, false), resource: "none", namespace: None, name: None },
    }
    let mut namespace = None;
    if words.peek() == Some(&"namespaces") {
        // Either a namespace itself, or an object in it.
        let rest: Vec<&str> = words.clone().collect();
        if rest.len() > 2 {
            words.next();
            namespace = words.next();
        }
    }
    let resource = words.next();
    let name = words.next();
    let watched = query.unwrap_or_default().split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
    let known = resource.and_then(|resource| KNOWN.iter().find(|known| **known == resource));
    let resource = if resource.is_some() { known.copied().unwrap_or("other") } else { "none" };
    Meaning { verb: verb(method, name.is_some(), watched), resource, namespace, name }
}

fn verb(method: &Method, named: bool, watched: bool) -> &'static str {
    match *method {
        Method::GET if watched => "watch",
        Method::GET if named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_named_as_rbac_names_it() {
        let rows = [
            (Method::GET, "/api/v1/namespaces/a/pods/b", None, ("get", "pods")),
            (Method::GET, "/api/v1/namespaces/a/pods", Some("limit=500"), ("list", "pods")),
            (Method::GET, "/api/v1/pods", Some("labelSelector=a&watch=true"), ("watch", "pods")),
            (Method::GET, "/api/v1/namespaces/a", None, ("get", "namespaces")),
            (Method::GET, "/api/v1/namespaces", None, ("list", "namespaces")),
            (Method::PATCH, "/apis/knoll.dev/v1alpha1/namespaces/a/runs/b/status", None, ("patch", "runs")),
            (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", None, ("create", "tokenreviews")),
            (Method::DELETE, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", None, ("delete", "leases")),
            (Method::PUT, "/apis/example.com/v1/namespaces/a/secretsauces/b", None, ("update", "other")),
            (Method::GET, "/version", None, ("get", "none")),
        ];
        for (method, path, query, expect) in rows {
            let Meaning { verb, resource, .. } = meaning(&method, path, query);
            assert_eq!((verb, resource), expect, "{method} {path}");
        }
        let Meaning { namespace, name, .. } = meaning(&Method::GET, "/api/v1/namespaces/a/pods/b", None);
        assert_eq!((namespace, name), (Some("a"), Some("b")));
    }

    #[test]
    fn an_answer_has_one_of_a_few_outcomes() {
        let rows = [
            (Some(200), "ok"),
            (Some(404), "not_found"),
            (Some(409), "conflict"),
            (Some(422), "refused"),
            (Some(503), "failed"),
            (None, "no_answer"),
        ];
        for (code, expect) in rows {
            assert_eq!(outcome(code), expect, "{code:?}");
        }
    }
}
