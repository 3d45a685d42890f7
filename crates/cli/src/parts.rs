//! Knoll's own parts, the same on every cluster: the hub, the controllers, and what tells how they are.

use std::time::Duration;

use anyhow::Result;
use knoll_hub::Running;
use knoll_operator::{Settings, health};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the parts may take to stop.
const PATIENCE: Duration = Duration::from_secs(15);

/// The parts, running.
pub struct Parts {
    hub: Mutex<JoinHandle<()>>,
    operator: Mutex<JoinHandle<Result<(), knoll_operator::Error>>>,
    telling: Mutex<JoinHandle<std::io::Result<()>>>,
}

/// Starts what goes with a hub that runs. All of it stops with the token.
pub fn start(client: Client, hub: Running, monitor: TcpListener, settings: Settings, stop: CancellationToken) -> Parts {
    let Running { mut ready, done, addr: _, ca_pem: _ } = hub;
    let health = settings.health.clone();
    let telling = health::serve(monitor, settings.metrics.clone(), health.clone(), stop.clone());
    tokio::spawn(async move {
        if ready.wait_for(|ready| *ready).await.is_ok() {
            health.hub_is_ready();
        }
    });
    let operator = tokio::spawn(knoll_operator::run(client, settings, stop));
    Parts { hub: Mutex::new(done), operator: Mutex::new(operator), telling: Mutex::new(telling) }
}

impl Parts {
    /// Resolves when a part has ended although nobody told it to.
    pub async fn failed(&self) -> String {
        let mut hub = self.hub.lock().await;
        let mut operator = self.operator.lock().await;
        let mut telling = self.telling.lock().await;
        tokio::select! {
            ended = &mut *hub => why("the hub", ended.err()),
            ended = &mut *operator => match ended {
                Ok(result) => why("the operator", result.err()),
                Err(error) => why("the operator", Some(error)),
            },
            ended = &mut *telling => match ended {
                Ok(result) => why("what tells its health", result.err()),
                Err(error) => why("what tells its health", Some(error)),
            },
        }
    }

    /// Waits until all have stopped, or have had their time.
    pub async fn finished(self) {
        let (hub, operator) = (self.hub.into_inner(), self.operator.into_inner());
        let telling = self.telling.into_inner();
        let all = async {
            tokio::join!(ended(hub), ended(operator), ended(telling));
        };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            tracing::warn!("the hub or the operator did not stop in time");
        }
    }
}

/// One that has been waited for already is not waited for again.
async fn ended<T>(task: JoinHandle<T>) {
    if !task.is_finished() {
        let _ = task.await;
    }
}

fn why(part: &str, error: Option<impl std::fmt::Display>) -> String {
    match error {
        Some(error) => format!("{part} has ended: {error}"),
        None => format!("{part} has ended"),
    }
}
