//! Prints a run's output without a terminal: follows the log of its pod, and reconnects when the connection is lost.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::names::pod as names;
use kube::Api;
use kube::api::LogParams;

use super::position;
use super::printer::Printer;
use super::stop::{Presses, Request, Signals};
use super::watch::Watched;
use crate::style;
use crate::workspace::Session;

const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait for the end of a finished run's log.
const LOG_END_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One pod of a run, while it is followed.
pub struct Stage<'a> {
    pub session: &'a Session,
    pub run: &'a str,
    pub pod: String,
    /// Whether the pod already existed when this command started to follow it.
    pub late: bool,
    /// How much of its output was printed, in [`position`]'s count.
    pub printed: usize,
    pub watched: &'a mut Watched,
    pub signals: &'a mut Signals,
    /// How often Ctrl-C was pressed.
    pub presses: &'a mut Presses,
    pub printer: &'a mut Printer,
}

/// Standard output does not take what the run prints. Another connection would not help.
#[derive(Debug, thiserror::Error)]
#[error("cannot print the output of the run, which continues: {0}")]
struct Unprinted(#[source] std::io::Error);

impl Stage<'_> {
    fn print(&mut self, bytes: &[u8]) -> Result<(), Unprinted> {
        self.printed += position::count(bytes);
        self.printer.print(bytes).map_err(Unprinted)
    }
}

/// Why a stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The pod has nothing more to do.
    Over,
    /// The user left the run, with this signal.
    Left(i32),
}

/// Prints the log of the stage's pod until the pod is done.
pub async fn show(stage: &mut Stage<'_>) -> Result<End> {
    let pods: Api<Pod> = stage.session.api();
    let mut pause = FIRST_PAUSE;
    let mut deadline = None;
    loop {
        let read = match connection(stage, &pods).await {
            Ok(Some(end)) => return Ok(end),
            Ok(None) => {
                pause = FIRST_PAUSE;
                true
            }
            Err(error) if error.is::<Unprinted>() => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "cannot follow the log");
                is_gone(&error)
            }
        };
        let pod = stage.pod.clone();
        let over = stage.watched.until(|seen| seen.is_past(&pod));
        let over = tokio::time::timeout(PATIENCE, over).await.is_ok();
        // A run is finished when its runner has reported so. The end of its output may reach the log a little later.
        if over && (read || Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + LOG_END_TIMEOUT)) {
            let log = complete(&pods, &stage.pod).await;
            stage.print(position::behind(&log, stage.printed))?;
            return Ok(End::Over);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Prints the output of one connection, without what was printed before.
async fn connection(stage: &mut Stage<'_>, pods: &Api<Pod>) -> Result<Option<End>> {
    let params = LogParams { container: Some(names::CONTAINER.to_owned()), follow: true, ..LogParams::default() };
    let mut log = pin!(pods.log_stream(&stage.pod, &params).await?);
    let mut skip = stage.printed;
    let mut buffer = vec![0; 64 << 10];
    loop {
        tokio::select! {
            read = log.read(&mut buffer) => {
                let count = read?;
                if count == 0 {
                    return Ok(None);
                }
                let rest = position::behind(&buffer[..count], skip);
                skip = skip.saturating_sub(position::count(&buffer[..count]));
                stage.print(rest)?;
            }
            request = stage.signals.next() => match request {
                Request::Leave(signal) => return Ok(Some(End::Left(signal))),
                Request::Stop => {
                    let (text, leave) = stage.presses.another(stage.session, stage.run).await;
                    style::note(&text);
                    if leave {
                        return Ok(Some(End::Left(2)));
                    }
                }
            },
        }
    }
}

/// Whether the pod and its log were deleted.
fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.is_not_found())
}

/// The pod's output so far, or nothing if the user may not read it. It is an error until the node knows the container.
pub async fn until_now(pods: &Api<Pod>, pod: &str) -> Result<Vec<u8>, kube::Error> {
    let mut bytes = Vec::new();
    match read(pods, pod, false, &mut bytes).await {
        Err(kube::Error::Api(status)) if status.code != 400 => {
            tracing::debug!(%status, "what was printed before cannot be read");
        }
        result => result?,
    }
    Ok(bytes)
}

/// The complete output of a pod whose run has finished. Waits for the container to end, at most [`LOG_END_TIMEOUT`].
pub async fn complete(pods: &Api<Pod>, pod: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match tokio::time::timeout(LOG_END_TIMEOUT, read(pods, pod, true, &mut bytes)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the end of the log cannot be read"),
        Err(_) => tracing::debug!("the log has no end yet"),
    }
    bytes
}

async fn read(pods: &Api<Pod>, pod: &str, follow: bool, bytes: &mut Vec<u8>) -> Result<(), kube::Error> {
    let params = LogParams { container: Some(names::CONTAINER.to_owned()), follow, ..LogParams::default() };
    let mut log = pin!(pods.log_stream(pod, &params).await?);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match log.read(&mut buffer).await.map_err(kube::Error::ReadEvents)? {
            0 => return Ok(()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}
