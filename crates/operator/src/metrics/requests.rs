//! Counts the requests to the Kubernetes API, as a layer under everything that makes them.

use std::task::{Context, Poll};

use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response};
use kube::{Client, client::Body};
use prometheus_client::{
    encoding::EncodeLabelSet, metrics::counter::Counter, metrics::family::Family, registry::Registry,
};
use tower::Service;

use super::Metrics;

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
#[derive(Clone, Debug, Default)]
pub struct Requests {
    requests: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: &'static str,
    resource: &'static str,
    code: String,
}

impl Requests {
    pub(super) fn register(self, registry: &mut Registry) {
        let help = "Requests to the Kubernetes API; the code is `none` when there was no answer";
        registry.register("knoll_api_requests", help, self.requests);
    }

    fn count(&self, verb: &'static str, resource: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&Labels { verb, resource, code }).inc();
    }
}

/// A service that counts what passes through it.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    requests: Requests,
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
        let (verb, resource) = meaning(request.method(), request.uri().path(), request.uri().query());
        let requests = self.requests.clone();
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            requests.count(verb, resource, answer.as_ref().ok().map(|answer| answer.status().as_u16()));
            answer
        }
        .boxed()
    }
}

/// What a request is about: its verb and its resource, as RBAC calls them.
fn meaning(method: &Method, path: &str, query: Option<&str>) -> (&'static str, &'static str) {
    let mut words = path.split('/').filter(|word| !word.is_empty()).peekable();
    match words.next() {
        Some("api") => drop(words.next()),
        Some("apis") => drop((words.next(), words.next())),
        _ => return (verb(method, true, false), "none"),
    }
    if words.peek() == Some(&"namespaces") {
        // Either a namespace itself, or what lies in it.
        let rest: Vec<&str> = words.clone().collect();
        if rest.len() > 2 {
            words.next();
            words.next();
        }
    }
    let resource = words.next();
    let named = words.next().is_some();
    let watched = query.unwrap_or_default().split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
    let known = resource.and_then(|resource| KNOWN.iter().find(|known| **known == resource));
    let resource = if resource.is_some() { known.copied().unwrap_or("other") } else { "none" };
    (verb(method, named, watched), resource)
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
            assert_eq!(meaning(&method, path, query), expect, "{method} {path}");
        }
    }
}
