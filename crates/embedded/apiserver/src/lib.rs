#![doc = include_str!("../README.md")]
//!
//! # Inside
//! One [`Server`] answers in process ([`Server::client`]) and over TLS ([`listen()`]) alike. `path` parses the request's
//! path, `registry` finds the resource, and `read`, `list`, `write`, `delete` and `watch` carry the request out on the
//! [`Store`].

mod admission;
mod body;
mod controllers;
mod decode;
mod delete;
mod discovery;
mod envelope;
mod escalation;
mod identity;
mod impersonation;
mod kinds;
mod list;
mod listen;
mod meta;
mod object;
mod openapi;
mod options;
mod patching;
mod path;
mod pods;
mod protobuf;
mod query;
mod rbac;
mod read;
mod registry;
mod reviews;
mod rules;
mod runtime;
mod scale;
mod status;
mod token;
mod watch;
mod websocket;
mod write;

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::impersonation::Impersonated;
use crate::kinds::{Resource, Rules};
use crate::path::{Path, Target};
use crate::query::{Form, Query};
use crate::registry::Registry;
use crate::status::Result;
use knoll_kube_store::Store;

pub use controllers::start as start_controllers;
pub use identity::{IN_PROCESS_USER, Identity, StaticTokens};
pub use listen::{Authority, ListenError, Listening, listen};
pub use runtime::{LogOptions, PodRuntime, RuntimeError, StreamOptions, Streams};
pub use status::ApiError;
pub use token::{KeyError, Tokens};

/// The API server. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

/// What clones of a [`Server`] share.
pub struct Inner {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) tokens: Tokens,
    pub(crate) static_tokens: StaticTokens,
    /// The certificate of the authority that signed the server's own, for `kube-root-ca.crt`.
    pub(crate) ca_pem: String,
    /// What admission policies say.
    pub(crate) policies: admission::Policies,
    node: Option<String>,
    runtime: OnceLock<Arc<dyn PodRuntime>>,
    stop: CancellationToken,
}

impl Deref for Server {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// What a server is made of.
pub struct Config {
    /// Where objects are kept.
    pub store: Store,
    /// The key that signs service-account tokens.
    pub tokens: Tokens,
    /// Tokens that are always good.
    pub static_tokens: StaticTokens,
    /// The certificate authority's certificate.
    pub ca_pem: String,
    /// The node that new pods are placed on.
    pub node: Option<String>,
    pub stop: CancellationToken,
}

/// One request to a resource, understood.
#[derive(Clone)]
pub struct Call {
    pub identity: Identity,
    pub resource: Arc<Resource>,
    /// `v1`, `apps/v1`: the version that the client speaks.
    pub api_version: String,
    /// What the path named.
    pub target: Target,
    pub query: Query,
    pub headers: HeaderMap,
    /// The form of the answer.
    pub form: Form,
    /// What the client must hear of, whatever becomes of the request.
    pub warnings: Arc<Mutex<Vec<String>>>,
}

impl Call {
    /// The name in the path.
    pub fn name(&self) -> Result<&str> {
        self.target.name.as_deref().ok_or_else(|| ApiError::bad_request("the request needs the name of an object"))
    }

    /// The store's key of an object of this resource in the path's namespace.
    pub fn key(&self, name: &str) -> String {
        self.resource.key(self.target.namespace.as_deref(), name)
    }

    /// Who is recorded as the owner of the fields that this request writes.
    pub fn manager(&self) -> String {
        let named = self.query.get("fieldManager");
        if !named.is_empty() {
            return named.to_owned();
        }
        let agent = self.headers.get(http::header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let short: String = agent.split('/').next().unwrap_or_default().chars().take(128).collect();
        if short.is_empty() { "unknown".to_owned() } else { short }
    }

    /// Tells the client something beside the answer.
    pub fn warn(&self, warning: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
    }

    /// The media type of the body, without parameters.
    pub fn content_type(&self) -> &str {
        let value = self.headers.get(http::header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }
}

impl Server {
    /// A server on that store. Call [`start_controllers`] to bring its upkeep to life.
    pub fn new(config: Config) -> Self {
        let Config { store, tokens, static_tokens, ca_pem, node, stop } = config;
        Self(Arc::new(Inner {
            store,
            registry: Registry::new(),
            tokens,
            static_tokens,
            ca_pem,
            policies: admission::Policies::default(),
            node,
            runtime: OnceLock::new(),
            stop,
        }))
    }

    /// A client that talks to this server in process, as an administrator.
    pub fn client(&self, namespace: &str) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let server = server.clone();
            async move {
                let (mut parts, body) = request.into_parts();
                parts.extensions.insert(Identity::admin(IN_PROCESS_USER));
                let request = http::Request::from_parts(parts, Body::new(body));
                Ok::<_, std::convert::Infallible>(server.handle(request).await)
            }
        });
        kube::Client::new(service, namespace)
    }

    pub async fn handle(&self, request: Request) -> Response {
        match self.route(request).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        }
    }

    async fn route(&self, request: Request) -> Result<Response> {
        let Some(path) = path::parse(request.uri().path()) else {
            return Err(ApiError::no_such_resource());
        };
        let requester = match request.extensions().get::<Identity>() {
            Some(identity) => identity.clone(),
            None => identity::authenticate(self, request.headers())?,
        };
        let wanted = Impersonated::read(request.headers())?;
        if let Some(response) = wanted.nobody(request.uri()) {
            return Ok(response);
        }
        let identity = wanted.authorize(self, requester)?;
        if let Path::Other(segments) = &path
            && let Some(response) = discovery::open(segments, request.method())
        {
            return Ok(response);
        }
        if !matches!(path, Path::Object(_)) {
            rbac::authorize_path(self, &identity, request.method(), request.uri().path())?;
        }
        match path {
            Path::Object(target) => self.resource(identity, target, request).await,
            Path::Other(words) if words.first().is_some_and(|w| w == "version") => Err(ApiError::no_such_resource()),
            Path::Other(_) if request.method() != Method::GET => Ok(status::page_not_found()),
            _ if request.method() != Method::GET => Err(ApiError::method_not_allowed()),
            Path::CoreVersions => Ok(discovery::core(self, request.headers())),
            Path::Groups => Ok(discovery::groups(self, request.headers())),
            Path::Group(group) => Ok(discovery::group(self, &group)),
            Path::Resources(group, version) => Ok(discovery::resources(self, &group, &version)),
            Path::Other(segments) => Ok(openapi::serve(self, &segments, request.headers())),
        }
    }

    async fn resource(&self, identity: Identity, target: Target, request: Request) -> Result<Response> {
        let query = Query::parse(request.uri().query());
        let method = request.method().clone();
        let verb = verb(&method, &target, &query);
        rbac::authorize(self, &identity, verb.unwrap_or("*"), &target)?;
        let resources = self.registry.current();
        let Some(resource) = resources.find(&target) else {
            // What is served by definitions alone has a front door of its own.
            let built_in = target.group.is_empty() || resources.has_builtin(&target.group, &target.version);
            return if built_in { Err(ApiError::no_such_resource()) } else { Ok(status::page_not_found()) };
        };
        if resource.namespaced != target.namespace.is_some() && (target.name.is_some() || !resource.namespaced) {
            return Err(ApiError::no_such_resource());
        }
        let verb = match verb {
            Some(verb) if routed(&resource, &target, verb) => verb,
            _ if resource.rules == Rules::Custom => {
                return Err(ApiError::method_not_supported(resource.subject(""), verb.unwrap_or("unknown")));
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        let streaming = matches!(target.subresource.as_deref(), Some("attach" | "exec"));
        let form = if streaming || target.subresource.as_deref() == Some("log") {
            Form::Object
        } else {
            query::form(request.headers(), resource.rules == Rules::Custom, verb)?
        };
        let api_version = resource.api_version();
        let headers = request.headers().clone();
        let warnings = Arc::default();
        let call = Call { identity, resource, api_version, target, query, headers, form, warnings };
        let answer = self.subresource(call.clone(), verb, request).await;
        let mut response = answer.unwrap_or_else(IntoResponse::into_response);
        for warning in call.warnings.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
            if let Ok(value) = HeaderValue::from_str(&text) {
                response.headers_mut().append("warning", value);
            }
        }
        Ok(response)
    }

    async fn subresource(&self, call: Call, verb: &str, request: Request) -> Result<Response> {
        let method = request.method().clone();
        match call.target.subresource.as_deref() {
            None => self.verb(call, verb, request).await,
            Some("status") if call.resource.status => self.verb(call, verb, request).await,
            Some("scale") if call.resource.scale.is_some() => scale::serve(self, &call, verb, request).await,
            Some("finalize") if call.resource.rules == Rules::Namespace && method == Method::PUT => {
                self.verb(call, verb, request).await
            }
            Some("token") if call.resource.rules == Rules::ServiceAccount => {
                if method != Method::POST {
                    return Err(ApiError::method_not_allowed());
                }
                let body = body::read_as(&call, request.into_body(), "TokenRequest").await?;
                reviews::token_request(self, &call, body.value)
            }
            Some(name) if call.resource.rules == Rules::Pod => {
                let name = name.to_owned();
                pods::subresource(self, call, &name, request).await
            }
            Some(_) if call.resource.rules == Rules::Custom => {
                Err(ApiError::not_found(call.resource.subject(call.name()?)))
            }
            Some(_) => Err(ApiError::no_such_resource()),
        }
    }

    async fn verb(&self, call: Call, verb: &str, request: Request) -> Result<Response> {
        if call.resource.rules == Rules::Review {
            let body = body::read(&call, request.into_body()).await?;
            return reviews::create(self, &call, body);
        }
        let written = match verb {
            "get" => return read::get(self, &call),
            "list" => return list::list(self, &call),
            "watch" => return watch::watch(self, call),
            "create" => {
                options::check(options::Kind::Create, &call.query)?;
                let body = body::read(&call, request.into_body()).await?;
                write::create(self, &call, body).await?
            }
            "update" => {
                options::check(options::Kind::Update, &call.query)?;
                let body = body::read(&call, request.into_body()).await?;
                write::update(self, &call, body).await?
            }
            "patch" => {
                let body = body::bytes(request.into_body()).await?;
                patching::patch(self, &call, body).await?
            }
            _ => {
                let body = body::read_delete_options(&call, request.into_body()).await?;
                return if verb == "delete" {
                    delete::one(self, &call, &body).await
                } else {
                    delete::collection(self, &call, &body).await
                };
            }
        };
        read::answer(self, &call, written.code, &written.object)
    }

    #[allow(clippy::unused_self, reason = "time is the server's to tell")]
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// The time now, as objects carry it.
    pub(crate) fn now_text(&self) -> String {
        self.text_of(self.now())
    }

    /// A time as objects carry it: in whole seconds.
    #[allow(clippy::unused_self, reason = "see `now`")]
    pub(crate) fn text_of(&self, time: Timestamp) -> String {
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// The node that new pods are placed on.
    pub fn node_name(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Gives the server the node's ends of pods' streams. Only the first call counts.
    pub fn set_runtime(&self, runtime: Arc<dyn PodRuntime>) {
        let _ = self.runtime.set(runtime);
    }

    fn runtime(&self) -> Option<&Arc<dyn PodRuntime>> {
        self.runtime.get()
    }

    /// Where the objects are.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Resolves when the server is told to stop.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        self.stop.clone().cancelled_owned()
    }

    /// An object in the form of that resource's version.
    pub fn read(&self, resource: &Resource, namespace: Option<&str>, name: &str) -> Result<Option<Value>> {
        let entry = self.store.get(&resource.key(namespace, name)).map_err(ApiError::internal)?;
        entry.map(|entry| read::load(resource, &entry)).transpose()
    }

    pub(crate) fn read_key(&self, key: &str) -> Result<Option<Value>> {
        let entry = self.store.get(key).map_err(ApiError::internal)?;
        entry.map(|e| object::decode_entry(&e).map_err(ApiError::internal)).transpose()
    }

    pub(crate) fn read_namespace(&self, name: &str) -> Result<Option<Value>> {
        self.read_key(&format!("core/namespaces//{name}"))
    }

    pub(crate) fn read_account(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        self.read_key(&format!("core/serviceaccounts/{namespace}/{name}"))
    }

    pub(crate) fn read_pod(&self, namespace: &str, name: &str) -> Result<Option<Value>> {
        self.read_key(&format!("core/pods/{namespace}/{name}"))
    }
}

fn verb(method: &Method, target: &Target, query: &Query) -> Option<&'static str> {
    let named = target.name.is_some();
    Some(match *method {
        Method::GET if named => "get",
        Method::GET if query.flag("watch") => "watch",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT if named => "update",
        Method::PATCH if named => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => return None,
    })
}

/// Whether the resource has that verb at that path.
fn routed(resource: &Resource, target: &Target, verb: &str) -> bool {
    if target.subresource.is_some() {
        return !matches!(verb, "delete" | "deletecollection" | "list" | "watch");
    }
    if resource.rules == Rules::Review {
        return verb == "create" && target.name.is_none();
    }
    match verb {
        "create" => {
            let placed = target.namespace.is_some() || !resource.namespaced || resource.rules == Rules::Custom;
            target.name.is_none() && placed
        }
        "deletecollection" => {
            resource.rules != Rules::Namespace && (target.namespace.is_some() || !resource.namespaced)
        }
        _ => true,
    }
}

/// The code of an answer that went well.
pub(crate) const OK: StatusCode = StatusCode::OK;
