//! `/healthz`, `/readyz` and `/metrics`: for the kubelet and for Prometheus.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, extract::State, routing::get};
use http::{StatusCode, header};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use knoll_serve::{Bounds, Connections};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::metrics::{self, Metrics};

/// Whether the parts can do what they are there for. A clone speaks of the same parts.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<Components>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Components {
    hub: bool,
    controllers: Controllers,
}

/// How far the controllers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controllers {
    /// They have not begun. Next: `StandingBy`, or `Filling` where no Lease is needed.
    #[default]
    Starting,
    /// Another operator leads. Next: `Filling`, when this one does.
    StandingBy,
    /// Their caches are being filled. Next: `Working`.
    Filling,
    /// They work. Next: `StandingBy` or `Stopping`.
    Working,
    /// They were told to stop. An end.
    Stopping,
}

impl Health {
    pub fn hub_is_ready(&self) {
        self.lock().hub = true;
    }

    /// How far the controllers are.
    pub fn controllers(&self, controllers: Controllers) {
        self.lock().controllers = controllers;
    }

    /// Whether all is ready, and the sentence for each part.
    #[must_use]
    pub fn report(&self) -> (bool, String) {
        let Components { hub, controllers } = *self.lock();
        let (working, word) = match controllers {
            Controllers::Starting => (false, "starting"),
            Controllers::StandingBy => (true, "standing by"),
            Controllers::Filling => (false, "caches are being filled"),
            Controllers::Working => (true, "ok"),
            Controllers::Stopping => (false, "stopping"),
        };
        let sign = |good| if good { '+' } else { '-' };
        let hub_word = if hub { "ok" } else { "not listening yet" };
        (hub && working, format!("[{}] hub: {hub_word}\n[{}] controllers: {word}\n", sign(hub), sign(working)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Components> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a client may take for the head of a request. The kubelet and Prometheus send it at once.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection lives: it has one request. A scraper that takes longer to read the answer tries again.
const LONGEST: Duration = Duration::from_secs(60);
/// The kubelet and Prometheus open a connection for each request, which takes milliseconds, so the oldest one is closed
/// for a new one at once: nobody who reaches the port keeps the probes of the kubelet out.
const CONNECTIONS: Bounds = Bounds { all: 128, address: 8, client: 8, group: 8, spared: Duration::ZERO };

/// Answers on `listener` until `shutdown`.
pub fn serve(
    listener: TcpListener,
    metrics: Metrics,
    health: Health,
    shutdown: CancellationToken,
) -> JoinHandle<io::Result<()>> {
    let router = Router::new()
        // Whoever answers at all is alive: a process that hangs does not.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz).with_state(health))
        .route("/metrics", get(scrape).with_state(metrics));
    let serve = move |stream, _| connection(stream, router.clone());
    let serving = knoll_serve::accept("health", listener, Connections::new(CONNECTIONS), shutdown, serve);
    tokio::spawn(async move {
        serving.await;
        Ok(())
    })
}

async fn connection(stream: TcpStream, router: Router) {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A client that breaks off is its own problem.
    let _ = tokio::time::timeout(LONGEST, serving).await;
}

async fn readyz(State(health): State<Health>) -> (StatusCode, String) {
    let (ready, text) = health.report();
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

async fn scrape(State(metrics): State<Metrics>) -> ([(header::HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn get(address: std::net::SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    /// Once, they were held for ever.
    #[tokio::test]
    async fn half_open_requests_are_closed_and_then_others_are_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let served = serve(listener, Metrics::default(), Health::default(), stop.clone());
        assert!(get(address).await.contains("200 OK"));
        let mut half = Vec::new();
        for _ in 0..300 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // One that is one too many is closed by now.
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await;
            half.push(stream);
        }
        let closed = futures::future::join_all(half.iter_mut().map(async |stream| {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }));
        tokio::time::timeout(HEAD * 3, closed).await.expect("every half-open request is closed");
        assert!(get(address).await.contains("200 OK"));
        stop.cancel();
        served.await.unwrap().unwrap();
    }

    async fn connect_from(last: u8, address: std::net::SocketAddr) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(std::net::SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
        socket.connect(address).await.unwrap()
    }

    /// Clients that asked again and again held all connections, so that the kubelet's probes failed and it killed the
    /// operator.
    #[tokio::test]
    async fn lively_connections_kept_the_probes_of_the_kubelet_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let served = serve(listener, Metrics::default(), Health::default(), stop.clone());
        let mut held = Vec::new();
        for last in 2..=40 {
            for _ in 0..8 {
                held.push(connect_from(last, address).await);
            }
            assert!(get(address).await.contains("200 OK"), "with {} connections of others", held.len());
        }
        // Nor does a neighbour at the kubelet's own address.
        for _ in 0..40 {
            held.push(connect_from(1, address).await);
            assert!(get(address).await.contains("200 OK"));
        }
        // Who asks on each of them is answered once.
        let mut lively = connect_from(50, address).await;
        lively.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(HEAD / 2, lively.read_to_string(&mut answer)).await.expect("it is closed").unwrap();
        assert!(answer.contains("200 OK"), "{answer}");
        stop.cancel();
        served.await.unwrap().unwrap();
    }

    #[test]
    fn it_is_ready_when_the_hub_is_and_the_controllers_work_or_stand_by() {
        let rows = [
            (false, Controllers::Working, false),
            (true, Controllers::Starting, false),
            (true, Controllers::StandingBy, true),
            (true, Controllers::Filling, false),
            (true, Controllers::Working, true),
            (true, Controllers::Stopping, false),
        ];
        for (hub, controllers, expect) in rows {
            let health = Health::default();
            if hub {
                health.hub_is_ready();
            }
            health.controllers(controllers);
            let (ready, text) = health.report();
            assert_eq!(ready, expect, "{hub} {controllers:?}: {text}");
        }
    }
}
