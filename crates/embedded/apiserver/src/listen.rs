//! The server on a TLS port of the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Server;

/// The limits of every connection. That of the first head is kube-apiserver's. Clients keep an idle connection for 90
/// seconds; a server that closes it earlier would sometimes cut off their next request.
const LIMITS: Limits = Limits {
    handshake: Duration::from_secs(10),
    first_head: Duration::from_secs(32),
    next_head: Duration::from_secs(100),
    ping: Duration::from_secs(30),
};
/// How long requests that are under way may take once the server is told to stop.
const GRACE: Duration = Duration::from_secs(3);

/// The port could not be had, or the certificate not be made.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else listens there.
    #[error(
        "port {port} of 127.0.0.1 is taken by another program; choose another one with `--port`, or `--port 0` for any that is free"
    )]
    PortTaken {
        /// The port that was asked for.
        port: u16,
    },
    /// The port cannot be opened for another reason.
    #[error("cannot listen on 127.0.0.1:{port}: {source}")]
    Listen {
        /// The port that was asked for.
        port: u16,
        source: std::io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The certificate does not work.
    #[error("cannot use the server's certificate: {0}")]
    Tls(#[from] rustls::Error),
}

/// A certificate authority, in PEM.
#[derive(Clone)]
pub struct Authority {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn generate() -> Result<Self, ListenError> {
        let key = KeyPair::generate()?;
        let cert = Self::params().self_signed(&key)?;
        Ok(Self { cert: cert.pem(), key: key.serialize_pem() })
    }

    /// The same for every authority, so that a key alone is enough to sign again.
    fn params() -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "knoll embedded cluster");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params
    }

    /// A TLS configuration for a server of those names.
    fn serve(&self, names: &[&str]) -> Result<rustls::ServerConfig, ListenError> {
        let issuer = Issuer::new(Self::params(), KeyPair::from_pem(&self.key)?);
        let mut params = CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &issuer)?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], private)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// How long a client may take for its part of a connection.
#[derive(Clone, Copy)]
struct Limits {
    /// Its side of the TLS handshake.
    handshake: Duration,
    /// The whole head of its first request.
    first_head: Duration,
    /// The whole head of a later request, counted from the end of the request before.
    next_head: Duration,
    /// Without any word of a client of HTTP/2 for this time, the server sends a ping, and waits as long for the answer.
    ping: Duration,
}

/// A server that listens.
pub struct Listening {
    pub addr: SocketAddr,
    tasks: TaskTracker,
}

impl Listening {
    /// Resolves when every connection has ended after the server was told to stop, or has had its time.
    pub async fn finished(&self) {
        self.tasks.close();
        let _ = tokio::time::timeout(GRACE, self.tasks.wait()).await;
    }
}

/// Serves on that port of 127.0.0.1 (0: any that is free) until told to stop.
pub async fn listen(
    server: Server,
    authority: &Authority,
    port: u16,
    stop: CancellationToken,
) -> Result<Listening, ListenError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ListenError::PortTaken { port },
        _ => ListenError::Listen { port, source },
    })?;
    let addr = listener.local_addr().map_err(|source| ListenError::Listen { port, source })?;
    let config =
        authority.serve(&["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"])?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let tasks = TaskTracker::new();
    let connections = tasks.clone();
    tasks.spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(server.clone(), acceptor.clone(), stream, LIMITS, stop.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, most likely: let some connections end first.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(Listening { addr, tasks })
}

async fn connection(server: Server, acceptor: TlsAcceptor, stream: TcpStream, limits: Limits, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(limits.handshake, acceptor.accept(stream)).await else {
        return;
    };
    serve(server, stream, limits, stop).await;
}

async fn serve(
    server: Server,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    limits: Limits,
    stop: CancellationToken,
) {
    let asked = CancellationToken::new();
    let first = asked.clone();
    let service = tower::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        first.cancel();
        let server = server.clone();
        async move { Ok::<_, std::convert::Infallible>(server.handle(request.map(Body::new)).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.next_head);
    builder.http2().max_concurrent_streams(1000).initial_stream_window_size(1 << 20);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(limits.ping).keep_alive_timeout(limits.ping);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut serving = std::pin::pin!(serving);
    // The limits above do not count before it is known which version of HTTP the client speaks.
    let silence = async {
        if tokio::time::timeout(limits.first_head, asked.cancelled()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        result = serving.as_mut() => {
            if let Err(error) = result {
                tracing::trace!(%error, "connection ended");
            }
        }
        () = silence => tracing::trace!("connection without a request"),
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use knoll_kube_store::Store;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{Config, StaticTokens, Tokens};

    /// Longer than any test waits, for the limits that a test is not about.
    const NEVER: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(100);
    const NO_LIMITS: Limits = Limits { handshake: NEVER, first_head: NEVER, next_head: NEVER, ping: NEVER };

    fn server(stop: &CancellationToken) -> Server {
        Server::new(Config {
            store: Store::memory(),
            tokens: Tokens::new(&Tokens::generate().unwrap()).unwrap(),
            static_tokens: StaticTokens::default(),
            ca_pem: String::new(),
            node: None,
            stop: stop.clone(),
        })
    }

    /// A client sends these bytes and no more. The connection ends, and the answer is returned.
    async fn ends(sent: &[u8], limits: Limits) -> Vec<u8> {
        let stop = CancellationToken::new();
        let (mut client, stream) = tokio::io::duplex(4096);
        let serving = tokio::spawn(serve(server(&stop), stream, limits, stop));
        client.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        let ended = async { (client.read_to_end(&mut answer).await.unwrap(), serving.await.unwrap()) };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the connection ends");
        answer
    }

    /// As [`ends`], for HTTP/1: the first line of the answer is this.
    async fn check(sent: &str, limits: Limits, first: &str) {
        let answer = String::from_utf8(ends(sent.as_bytes(), limits).await).unwrap();
        assert_eq!(answer.lines().next().unwrap_or_default(), first, "{sent:?}");
    }

    #[tokio::test]
    async fn a_connection_without_a_whole_request_is_not_held_for_ever() {
        let first = Limits { first_head: SHORT, ..NO_LIMITS };
        check("", first, "").await;
        check("GET /livez HTTP/1.1\r\nhost: x\r\n", first, "").await;
        check("PRI * HTTP/2.0\r\n", first, "").await;
        let next = Limits { next_head: SHORT, ..NO_LIMITS };
        check("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n", next, "HTTP/1.1 200 OK").await;
        check("GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET /", next, "HTTP/1.1 200 OK").await;
    }

    #[tokio::test]
    async fn a_client_that_does_not_shake_hands_is_let_go() {
        let stop = CancellationToken::new();
        let config = Authority::generate().unwrap().serve(&["localhost"]).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let limits = Limits { handshake: SHORT, ..NO_LIMITS };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(connection(server(&stop), acceptor, stream, limits, stop.clone()));
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), client.read_to_end(&mut answer)).await;
        assert_eq!(ended.expect("the connection ends").unwrap(), 0);
    }

    /// A frame of HTTP/2: type, flags, stream and payload.
    fn frame(type_: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, type_, flags, 0, 0, 0, stream], payload].concat()
    }

    /// The machine of a client went away without a word: its requests are answered, its pings are not.
    #[tokio::test]
    async fn a_client_of_http_2_that_answers_no_ping_is_let_go() {
        // `GET https://x/livez` in the static table of HPACK.
        let head = [&[0x82, 0x87, 0x04, 6][..], b"/livez", &[0x01, 1], b"x"].concat();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let sent = [preface, frame(4, 0, 0, &[]), frame(1, 0x5, 1, &head)].concat();
        let answer = ends(&sent, Limits { ping: SHORT, ..NO_LIMITS }).await;
        assert!(answer.windows(2).any(|bytes| bytes == b"ok"), "the request is answered: {answer:?}");
        let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0];
        assert!(answer.windows(ping.len()).any(|bytes| bytes == ping), "a ping is sent: {answer:?}");
    }
}
