//! Starts and stops Knoll's services: the hub, the controllers, the health and metrics endpoint, and the web page.

use std::time::Duration;

use anyhow::Result;
use knoll_hub::{Observer, Running};
use knoll_operator::{Settings, health, metrics::Metrics};
use knoll_page::{BearerToken, Connect, RunningPage};
use kube::config::AuthInfo;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the services may take to shut down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// Handles of the running services.
pub struct Services {
    hub: Mutex<JoinHandle<()>>,
    operator: Mutex<JoinHandle<Result<(), knoll_operator::Error>>>,
    monitoring: Mutex<JoinHandle<std::io::Result<()>>>,
    page: Mutex<JoinHandle<()>>,
}

/// Makes clients of the page's users: the cluster of `config`, with the token of the user and no other credentials.
pub fn connect_users(config: Config) -> Connect {
    Box::new(move |token: &BearerToken| {
        let auth_info = AuthInfo { token: Some(token.expose().to_owned().into()), ..AuthInfo::default() };
        let mut config = config.clone();
        config.auth_info = auth_info;
        knoll_operator::client::connect(config)
    })
}

/// Measures the requests of runners to the hub.
pub fn observer(metrics: &Metrics) -> Observer {
    let metrics = metrics.clone();
    Observer::new(move |route, outcome, took| metrics.hub_request(route, outcome, took))
}

/// Starts the controllers and the monitoring endpoint beside a running hub and page. All stop when `stop` is cancelled.
pub fn start(
    client: Client,
    hub: Running,
    monitor: TcpListener,
    page: RunningPage,
    settings: Settings,
    stop: CancellationToken,
) -> Services {
    let Running { mut ready, done, addr: _, ca_pem: _ } = hub;
    let health = settings.health.clone();
    let monitoring = health::serve(monitor, settings.metrics.clone(), health.clone(), stop.clone());
    tokio::spawn(async move {
        if ready.wait_for(|ready| *ready).await.is_ok() {
            health.hub_is_ready();
        }
    });
    let operator = tokio::spawn(knoll_operator::run(client, settings, stop));
    Services {
        hub: Mutex::new(done),
        operator: Mutex::new(operator),
        monitoring: Mutex::new(monitoring),
        page: Mutex::new(page.done),
    }
}

impl Services {
    /// Resolves with a message when a service ends before it was told to stop.
    pub async fn failed(&self) -> String {
        let mut hub = self.hub.lock().await;
        let mut operator = self.operator.lock().await;
        let mut monitoring = self.monitoring.lock().await;
        let mut page = self.page.lock().await;
        tokio::select! {
            ended = &mut *hub => why("the hub", ended.err()),
            ended = &mut *page => why("the web page", ended.err()),
            ended = &mut *operator => match ended {
                Ok(result) => why("the operator", result.err()),
                Err(error) => why("the operator", Some(error)),
            },
            ended = &mut *monitoring => match ended {
                Ok(result) => why("the health endpoint", result.err()),
                Err(error) => why("the health endpoint", Some(error)),
            },
        }
    }

    /// Waits until all services have stopped, at most [`SHUTDOWN_TIMEOUT`].
    pub async fn finished(self) {
        let (hub, operator) = (self.hub.into_inner(), self.operator.into_inner());
        let (monitoring, page) = (self.monitoring.into_inner(), self.page.into_inner());
        let all = async {
            tokio::join!(ended(hub), ended(operator), ended(monitoring), ended(page));
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::warn!("the hub or the operator did not stop in time");
        }
    }
}

/// Awaits a task, unless [`Services::failed`] has already polled it to completion.
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
