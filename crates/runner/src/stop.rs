//! Requests to stop a run.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Why a run has to stop before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A user cancelled the run.
    Cancelled,
    /// Nobody answered terraform's prompt for this time.
    Unanswered(Duration),
    /// The pod received SIGTERM.
    Terminated,
    /// The hub refuses this pod. Another one may be at work.
    Fenced(String),
    /// The hub was not heard for this time, so the run may have been given up.
    Silent(Duration),
}

/// Tells all tasks of the runner to stop. Cheap to clone.
#[derive(Clone, Default)]
pub struct Stop {
    reason: Arc<OnceLock<Reason>>,
    /// Stop gracefully: terraform finishes the operation in progress and writes its state.
    gently: CancellationToken,
    /// A second request: stop immediately.
    now: CancellationToken,
}

impl Stop {
    /// Requests a stop. The first reason is kept; a second request makes it urgent.
    pub fn request(&self, reason: Reason) {
        if self.reason.set(reason).is_err() {
            self.now.cancel();
        }
        self.gently.cancel();
    }

    /// Requests a stop that does not become urgent when it is repeated, because the hub repeats it in each response.
    pub fn request_once(&self, reason: Reason) {
        let _ = self.reason.set(reason);
        self.gently.cancel();
    }

    pub fn reason(&self) -> Option<Reason> {
        self.reason.get().cloned()
    }

    /// Resolves when a stop was requested because the hub is not heard.
    pub async fn silent(&self) {
        self.requested().await;
        if !matches!(self.reason(), Some(Reason::Silent(_))) {
            std::future::pending().await
        }
    }

    pub async fn requested(&self) {
        self.gently.cancelled().await;
    }

    /// Resolves when a stop was requested twice.
    pub async fn urgent(&self) {
        self.now.cancelled().await;
    }

    /// Requests a stop on SIGTERM and SIGINT, as long as the handle lives.
    ///
    /// # Errors
    /// If signal handlers cannot be installed.
    pub fn on_signals(&self) -> std::io::Result<AbortOnDropHandle<()>> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = self.clone();
        Ok(AbortOnDropHandle::new(tokio::spawn(async move {
            while either(&mut terminate, &mut interrupt).await.is_some() {
                stop.request(Reason::Terminated);
            }
        })))
    }
}

async fn either(one: &mut Signal, other: &mut Signal) -> Option<()> {
    tokio::select! {
        got = one.recv() => got,
        got = other.recv() => got,
    }
}
