//! What the API server asks of the node for `pods/log`, `pods/attach` and `pods/exec`.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// A container's streams, as the API server sees them.
///
/// The server has read the pod and checked that `container` is one of its containers.
pub trait PodRuntime: Send + Sync + 'static {
    /// The container's log, as `pods/log` streams it.
    fn logs<'a>(
        &'a self,
        pod: &'a Pod,
        container: &'a str,
        options: LogOptions,
    ) -> BoxFuture<'a, Result<BoxStream<'static, std::io::Result<Bytes>>, RuntimeError>>;

    /// The streams of the container's main process.
    fn attach<'a>(
        &'a self,
        pod: &'a Pod,
        container: &'a str,
        options: StreamOptions,
    ) -> BoxFuture<'a, Result<Streams, RuntimeError>>;

    /// The streams of a new process beside the container's main one.
    fn exec<'a>(
        &'a self,
        pod: &'a Pod,
        container: &'a str,
        command: Vec<String>,
        options: StreamOptions,
    ) -> BoxFuture<'a, Result<Streams, RuntimeError>>;
}

/// The query of `pods/log`.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Stay until the container ends.
    pub follow: bool,
    /// The log of the container's previous instance.
    pub previous: bool,
    /// Only the last lines.
    pub tail_lines: Option<u64>,
    /// Only lines from then on.
    pub since: Option<jiff::Timestamp>,
    /// Each line starts with its time.
    pub timestamps: bool,
    /// End after that many bytes.
    pub limit_bytes: Option<u64>,
}

/// Which streams a client of `pods/attach` or `pods/exec` asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamOptions {
    pub stdin: bool,
    /// The client reads standard output.
    pub stdout: bool,
    /// The client reads standard error.
    pub stderr: bool,
    /// There is a terminal: one stream for both, with resizes.
    pub tty: bool,
}

/// The node's ends of a process's streams. Dropping them detaches from an attached process and ends an executed one.
pub struct Streams {
    /// What the client writes goes here.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// What the process wrote to standard output, or to its terminal.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// What the process wrote to standard error.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// New sizes of the client's terminal: columns, rows.
    pub resize: Option<mpsc::Sender<(u16, u16)>>,
    /// The process's exit code, once it has ended and its output is delivered. Of an attached process it is 0: as
    /// everywhere in Kubernetes, how a container ended is its pod's status's to tell.
    pub exit: BoxFuture<'static, Result<i32, RuntimeError>>,
}

/// Why a stream could not be had.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The container has not started, or has no such instance. Answered as a 400.
    #[error("{0}")]
    NotRunning(String),
    /// The node could not do it. Answered as a 500.
    #[error("{0}")]
    Failed(String),
}
