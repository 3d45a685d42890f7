//! Listens, speaks TLS, and stops in good order.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use knoll_core::stop_times::Silence;
use knoll_rules::Evaluator;
use knoll_serve::{Bounds, Budget, Connection, Connections};
use knoll_storage::{FetchSettings, Storage};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::Tokens;
use crate::body::Budgets;
use crate::cache::Cache;
use crate::judge::Judge;
use crate::routes::{self, Shared};
use crate::session::Sessions;
use crate::tls::{self, Tls};
use crate::trace::Observer;

/// How long requests that are under way may take to end.
const GRACE: Duration = Duration::from_secs(10);
/// A client that does not speak TLS by then is not a runner.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take for the head of a request, from the end of the one before. Runners close sooner.
const HEAD: Duration = Duration::from_secs(15);
/// How long a connection lives: longer than any request of a runner. It bounds how long a client that reads slowly holds
/// what is sent to it.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a request that is under way then may still take: as long as a wait for a cancellation, and its answer.
const HANDOVER: Duration = Duration::from_secs(90);
/// A runner has a few connections, and shows its token with the first request of each. Addresses are those of pods; where
/// many share one, as on the embedded node, only those that have not shown a token yet share its part. The pods of one
/// namespace leave a quarter to those of others. A connection takes some 50 KiB.
const CONNECTIONS: Bounds = Bounds { all: 2048, address: 128, client: 64, group: 1536, spared: Duration::from_secs(5) };

/// Why the hub does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("the hub cannot listen on {address}: {source}; choose another address")]
    Listen {
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

/// The hub. See [`Hub::start`].
pub struct Hub;

/// The settings of an administrator.
#[derive(Clone, Debug, Default)]
pub struct HubSettings {
    pub fetch: FetchSettings,
    /// How long a runner goes on without an answer of the hub.
    pub silence: Silence,
    /// The namespace of the operator, whose Secrets have the credentials of packs of rules.
    pub home: String,
    /// Evaluates the rules of Policies.
    pub evaluator: Evaluator,
}

/// A hub that is running.
pub struct Running {
    pub addr: SocketAddr,
    /// The authority of its certificate, for runners.
    pub ca_pem: String,
    /// Becomes true when it answers; runners that come earlier wait.
    pub ready: watch::Receiver<bool>,
    /// Ends when it has stopped.
    pub done: JoinHandle<()>,
}

impl Hub {
    /// Starts the hub for the runs of one namespace, or of all; it stops with `shutdown`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(
        storage: Storage,
        namespace: Option<&str>,
        listen: SocketAddr,
        tls: Tls,
        settings: HubSettings,
        observer: Observer,
        shutdown: CancellationToken,
    ) -> Result<Running, StartError> {
        let config = tls.server_config()?;
        let refused = |source| StartError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        let client = storage.client().clone();
        let runs = Arc::new(Cache::start(&client, namespace, &shutdown));
        let shared = Arc::new(Shared {
            tokens: Tokens::new(client.clone()),
            sessions: Sessions::new(storage.clone(), Arc::clone(&runs)),
            states: storage.states(),
            workspaces: Cache::start(&client, namespace, &shutdown),
            runs,
            sources: storage.sources(settings.fetch.clone()),
            silence: settings.silence,
            judge: Judge {
                client: client.clone(),
                evaluator: settings.evaluator,
                packs: storage.packs(settings.fetch.clone(), &settings.home),
            },
            storage: storage.clone(),
            client,
            marked: Arc::default(),
            budgets: Budgets::default(),
            container_waits: Budget::new(routes::CONTAINER_WAITS.0, routes::CONTAINER_WAITS.1),
            observer,
            shutdown: shutdown.clone(),
        });
        let (answers, ready) = watch::channel(false);
        let done = tokio::spawn(serve(listener, TlsAcceptor::from(config), shared, answers, shutdown));
        Ok(Running { addr, ca_pem: tls.ca_pem().to_owned(), ready, done })
    }
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
    answers: watch::Sender<bool>,
    shutdown: CancellationToken,
) {
    // Without the first list, every pod would look like one of no run.
    tokio::select! {
        _ = async { tokio::join!(shared.runs.ready(), shared.workspaces.ready()) } => {}
        () = shutdown.cancelled() => return,
    }
    answers.send_replace(true);
    let router = routes::router(shared);
    let stop = shutdown.clone();
    let serve = move |stream, of| connection(stream, of, acceptor.clone(), router.clone(), shutdown.clone());
    let connections = knoll_serve::accept("hub", listener, Connections::new(CONNECTIONS), stop, serve).await;
    if tokio::time::timeout(GRACE, connections.wait()).await.is_err() {
        tracing::warn!("requests of runners were cut off by the hub's end; they will be made again");
    }
}

async fn connection(
    stream: TcpStream,
    of: Connection,
    acceptor: TlsAcceptor,
    router: Router,
    shutdown: CancellationToken,
) {
    // Small answers must not wait for a full packet.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection to the hub does not speak TLS");
            return;
        }
        Err(_) => return,
    };
    let service = TowerToHyperService::new(router.layer(Extension(of)));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = shutdown.cancelled() => {
            // The request that is under way is answered; no other follows.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = tokio::time::sleep(LONGEST) => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(HANDOVER, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the hub broke");
    }
}
