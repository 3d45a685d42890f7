//! Serves git over HTTP with git's own `http-backend`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::{Engine, prelude::BASE64_STANDARD};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, rustls};

use super::{PASSWORD, Repositories, USER};

/// A password-protected server of a directory of repositories. It stops when dropped.
#[derive(Debug)]
pub struct HttpServer {
    pub port: u16,
    /// The certificate of its authority, if it uses TLS.
    pub ca: Option<String>,
    asked: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Served {
    root: PathBuf,
    asked: Arc<AtomicU32>,
}

impl HttpServer {
    /// Serves on all addresses of this machine, so that pods can reach it.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start(repositories: &Repositories) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let (port, asked, app) = prepare(&listener, repositories);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { port, ca: None, asked, task }
    }

    /// Serves on `localhost` with TLS and its own certificate authority.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start_tls(repositories: &Repositories) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (port, asked, app) = prepare(&listener, repositories);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(app.clone()));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { port, ca: Some(certificate.pem()), asked, task }
    }

    /// The number of requests so far.
    #[must_use]
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn url(&self, repository: &str) -> String {
        match self.ca {
            Some(_) => format!("https://localhost:{}/{repository}", self.port),
            None => format!("http://127.0.0.1:{}/{repository}", self.port),
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn prepare(listener: &TcpListener, repositories: &Repositories) -> (u16, Arc<AtomicU32>, Router) {
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!("it listens on IPv4") };
    let asked = Arc::new(AtomicU32::new(0));
    let served = Served { root: repositories.root(), asked: asked.clone() };
    (address.port(), asked, Router::new().fallback(answer).with_state(served))
}

/// Runs git's CGI program, as a web server would.
async fn answer(State(served): State<Served>, request: Request<Body>) -> Response {
    served.asked.fetch_add(1, Ordering::Relaxed);
    let (head, body) = request.into_parts();
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")));
    if text("authorization") != expected {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=\"git\"")]).into_response();
    }
    // Other files are served as they are, for archives.
    let plain = served.root.join(head.uri.path().trim_start_matches('/'));
    if plain.is_file() && !head.uri.path().contains(".git/") {
        return tokio::fs::read(plain).await.unwrap().into_response();
    }
    let body = to_bytes(body, 1 << 24).await.unwrap();
    let mut git = Command::new("git");
    git.arg("http-backend").env("GIT_PROJECT_ROOT", &served.root).env("GIT_HTTP_EXPORT_ALL", "1");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("REMOTE_USER", USER);
    git.env("REQUEST_METHOD", head.method.as_str()).env("PATH_INFO", head.uri.path());
    git.env("QUERY_STRING", head.uri.query().unwrap_or_default()).env("CONTENT_TYPE", text("content-type"));
    git.env("GIT_PROTOCOL", text("git-protocol")).env("CONTENT_LENGTH", body.len().to_string());
    git.env("HTTP_CONTENT_ENCODING", text("content-encoding"));
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sending = tokio::spawn(async move { stdin.write_all(&body).await });
    let output = child.wait_with_output().await.unwrap();
    let _ = sending.await;
    let end = output.stdout.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0);
    let mut headers = HeaderMap::new();
    let mut status = StatusCode::OK;
    for line in String::from_utf8_lossy(&output.stdout[..end]).lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name.eq_ignore_ascii_case("status") {
            status = value.get(..3).and_then(|code| code.parse().ok()).unwrap_or(StatusCode::BAD_GATEWAY);
        } else if let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), value.parse()) {
            headers.insert(name, value);
        }
    }
    (status, headers, output.stdout[(end + 4).min(output.stdout.len())..].to_vec()).into_response()
}
