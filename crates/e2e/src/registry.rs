//! An OCI registry for tests: the reading half of the distribution protocol, with a password for its tokens.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::{Engine, prelude::BASE64_STANDARD};
use knoll_api::Digest;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::git::{PASSWORD, USER};

/// The token that the registry gives to whom it knows.
const TOKEN: &str = "a-token-of-this-registry";

/// A file of an artifact: its media type, its name and its content.
pub type File<'a> = (&'a str, &'a str, &'a [u8]);

/// A registry on this machine. It stops when dropped.
#[derive(Debug)]
pub struct Registry {
    pub port: u16,
    content: Content,
    task: JoinHandle<()>,
}

/// What is stored, by kind, repository and digest.
type Content = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

#[derive(Clone)]
struct Served {
    content: Content,
    port: u16,
}

impl Registry {
    /// Serves on all addresses of this machine.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let content = Content::default();
        let served = Served { content: content.clone(), port };
        let app = Router::new().route("/token", get(token)).route("/v2/{*path}", get(read)).with_state(served);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { port, content, task }
    }

    /// Stores an artifact as `conftest push` does, and returns the digest of its manifest.
    pub fn push(&self, repository: &str, files: &[File<'_>]) -> String {
        let layers: Vec<_> = files
            .iter()
            .map(|(media_type, title, content)| {
                let digest = self.store(repository, "blobs", content);
                json!({"mediaType": media_type, "digest": digest, "size": content.len(), "annotations": {"org.opencontainers.image.title": title}})
            })
            .collect();
        let config = self.store(repository, "blobs", b"{}");
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.cncf.openpolicyagent.config.v1+json", "digest": config, "size": 2},
            "layers": layers,
        });
        self.store(repository, "manifests", manifest.to_string().as_bytes())
    }

    /// Puts another content under a digest, as a broken or hostile registry does.
    pub fn replace(&self, repository: &str, kind: &str, digest: &str, content: &[u8]) {
        let mut stored = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        stored.insert(format!("{repository}/{kind}/{digest}"), content.to_owned());
    }

    fn store(&self, repository: &str, kind: &str, content: &[u8]) -> String {
        let digest = String::from(Digest::of(content));
        self.replace(repository, kind, &digest, content);
        digest
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn authorization(headers: &HeaderMap) -> &str {
    headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn token(headers: HeaderMap) -> Response {
    let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")));
    if authorization(&headers) != expected {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    json!({"token": TOKEN}).to_string().into_response()
}

async fn read(State(served): State<Served>, Path(path): Path<String>, headers: HeaderMap) -> Response {
    if authorization(&headers) != format!("Bearer {TOKEN}") {
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or("127.0.0.1");
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let demand = format!(
            "Bearer realm=\"http://{host}:{}/token\",service=\"test\",scope=\"repository:any:pull\"",
            served.port
        );
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, demand)]).into_response();
    }
    let found = served.content.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
    found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}
