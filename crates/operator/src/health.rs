//! `/healthz`, `/readyz` and `/metrics`: for the kubelet and for Prometheus.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Router, extract::State, routing::get};
use http::{StatusCode, header};
use tokio::{net::TcpListener, task::JoinHandle};
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
    tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await })
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
    use super::*;

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
