//! Why and how fast a run has to stop.

use std::sync::{Arc, OnceLock};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Why a run has to stop before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A person asked for it.
    Cancelled,
    /// The pod is being stopped.
    Terminated,
    /// The hub no longer takes anything from this pod.
    Fenced(String),
}

/// Tells every part of the runner to stop. Cheap to clone.
#[derive(Clone, Default)]
pub struct Stop {
    reason: Arc<OnceLock<Reason>>,
    /// Stop as terraform stops: it finishes what is under way and writes its state.
    gently: CancellationToken,
    /// A second request: stop at once.
    now: CancellationToken,
}

impl Stop {
    /// Asks to stop; the first reason stays, a second request makes it urgent.
    pub fn request(&self, reason: Reason) {
        if self.reason.set(reason).is_err() {
            self.now.cancel();
        }
        self.gently.cancel();
    }

    /// Asks to stop, but never urgently: the hub says it in each answer.
    pub fn request_once(&self, reason: Reason) {
        let _ = self.reason.set(reason);
        self.gently.cancel();
    }

    /// Why, once it was requested.
    pub fn reason(&self) -> Option<Reason> {
        self.reason.get().cloned()
    }

    /// Resolves when a stop was requested.
    pub async fn requested(&self) {
        self.gently.cancelled().await;
    }

    /// Resolves when it was requested twice.
    pub async fn urgent(&self) {
        self.now.cancelled().await;
    }

    /// Lets SIGTERM and SIGINT request a stop, as long as the handle lives.
    ///
    /// # Errors
    /// When the process cannot have signal handlers.
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
