//! Listens, bounds what a client may hold, and stops in good order.
//!
//! The page speaks HTTP: on loopback, and on a cluster behind a port-forward or an Ingress, which have the TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use knoll_serve::{Bounds, Connection, Connections};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::clients::{BearerToken, Clients, Connect};
use crate::routes;
use crate::session::{SessionKey, Sessions};

/// How long requests that are under way may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// How long a client may take for the head of a request. A browser sends it at once, and opens another connection
/// later.
const HEAD: Duration = Duration::from_secs(30);
/// How long a connection lives: longer than a live stream. It bounds how long a slow reader holds what is sent to it.
const LONGEST: Duration = Duration::from_secs(900);
/// A browser has up to six connections, and a stream each. Behind an Ingress all users have its address, until a request of
/// theirs shows who they are.
const CONNECTIONS: Bounds =
    Bounds { all: 1024, address: 256, client: 128, group: 1024, spared: Duration::from_secs(2) };

/// The names by which browsers may call the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Loopback only, so that no site that resolves its own name to this machine reads the page.
    Loopback,
    /// Any: an Ingress knows its own.
    Any,
}

/// What the page is started with.
pub struct PageSettings {
    pub connect: Connect,
    pub key: SessionKey,
    pub hosts: Hosts,
}

/// The web page. See [`Page::serve`].
pub struct Page;

/// A page that is being served.
pub struct RunningPage {
    pub addr: SocketAddr,
    /// Ends when it has stopped.
    pub done: JoinHandle<()>,
    app: Arc<App>,
}

impl Page {
    /// Serves the page on `listener` until `stop`.
    ///
    /// # Errors
    /// When the listener has no address.
    pub fn serve(
        listener: TcpListener,
        settings: PageSettings,
        stop: CancellationToken,
    ) -> std::io::Result<RunningPage> {
        let addr = listener.local_addr()?;
        let PageSettings { connect, key, hosts } = settings;
        let sessions = Sessions::new(key, addr.port());
        let app = Arc::new(App::new(Clients::new(connect), sessions, hosts, stop.clone()));
        let done = tokio::spawn(accept(listener, routes::router(Arc::clone(&app)), stop));
        Ok(RunningPage { addr, done, app })
    }
}

/// The owner of the codes that the program itself hands out.
const OWN: &str = "";

impl RunningPage {
    /// A link that signs in once, as the user of this token; `None` when there are too many of them.
    #[must_use]
    pub fn link(&self, token: BearerToken) -> Option<String> {
        let code = self.app.codes.issue(OWN, token)?;
        Some(format!("http://{}/sign-in/{code}", self.addr))
    }
}

async fn accept(listener: TcpListener, router: Router, stop: CancellationToken) {
    let end = stop.clone();
    let serve = move |stream, of| connection(stream, of, router.clone(), stop.clone());
    let connections = knoll_serve::accept("page", listener, Connections::new(CONNECTIONS), end, serve).await;
    let _ = tokio::time::timeout(GRACE, connections.wait()).await;
}

async fn connection(stream: TcpStream, of: Connection, router: Router, stop: CancellationToken) {
    // A line of a log must not wait for a full packet.
    let _ = stream.set_nodelay(true);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let service = TowerToHyperService::new(router.layer(Extension(of)));
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = tokio::time::sleep(LONGEST) => return,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the page broke");
    }
}
