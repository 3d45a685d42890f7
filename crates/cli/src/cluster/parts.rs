//! Knoll's own parts of the embedded cluster: the hub and the operator.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_core::pod::{Platform, PluginCache, ToolImage};
use knoll_hub::{Hub, Running, Tls};
use knoll_operator::Settings;
use kube::api::{Api, Patch, PatchParams};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::folder::Folder;

/// Where the cluster's own objects are.
const NAMESPACE: &str = "kube-system";
/// The ConfigMap that says on which port the hub is.
const PLACE: &str = "knoll-hub";
/// How long the parts may take to stop.
const PATIENCE: Duration = Duration::from_secs(15);
/// Images say nothing to the embedded node: programs are those of the host, whatever their version.
const HOST: &str = "host";

/// The hub and the operator, running.
pub struct Parts {
    hub: Mutex<JoinHandle<()>>,
    operator: Mutex<JoinHandle<Result<(), knoll_operator::Error>>>,
}

/// Starts both. They stop with the token.
pub async fn start(client: kube::Client, folder: &Folder, stop: CancellationToken) -> Result<Parts> {
    let hub = start_hub(&client, &stop).await?;
    let cache = folder.cache().join("plugins");
    std::fs::create_dir_all(&cache).with_context(|| format!("cannot make `{}`", cache.display()))?;
    let image = |name: &str| ToolImage { repository: name.to_owned(), version: HOST.to_owned() };
    let platform = Platform {
        knoll_image: format!("knoll:{HOST}"),
        terraform: image("terraform"),
        tofu: image("tofu"),
        hub_url: format!("https://{}", hub.addr),
        hub_ca: hub.ca_pem,
        plugin_cache: Some(PluginCache { path: cache.display().to_string(), volume: None }),
    };
    // The lock on the data folder is what keeps a second operator away.
    let settings = Settings { namespace: None, platform, lease: None };
    let operator = tokio::spawn(knoll_operator::run(client, settings, stop));
    Ok(Parts { hub: Mutex::new(hub.done), operator: Mutex::new(operator) })
}

/// Starts the hub where runners that outlived the last cluster look for it: same certificate, and same port if it is free.
async fn start_hub(client: &kube::Client, stop: &CancellationToken) -> Result<Running> {
    let names = ["127.0.0.1".to_owned()];
    let tls = || Tls::shared(client, NAMESPACE, &names);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let known = maps.get_opt(PLACE).await.context("cannot read where the hub was")?;
    let port: u16 = known.and_then(|map| map.data?.get("port")?.parse().ok()).unwrap_or_default();
    let start = async |port| {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        anyhow::Ok(Hub::start(client.clone(), listen, tls().await?, stop.clone()).await?)
    };
    let hub = match start(port).await {
        Err(error) if port != 0 => {
            tracing::warn!(%error, "runs that are under way cannot report any more");
            start(0).await?
        }
        result => result?,
    };
    if hub.addr.port() != port {
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PLACE}, "data": {"port": hub.addr.port().to_string()},
        });
        maps.patch(PLACE, &PatchParams::apply("knoll").force(), &Patch::Apply(map))
            .await
            .context("cannot record where the hub is")?;
    }
    Ok(hub)
}

impl Parts {
    /// Resolves when a part has ended although nobody told it to.
    pub async fn failed(&self) -> String {
        let mut hub = self.hub.lock().await;
        let mut operator = self.operator.lock().await;
        tokio::select! {
            ended = &mut *hub => match ended {
                Ok(()) => "the hub has ended".to_owned(),
                Err(error) => format!("the hub has ended: {error}"),
            },
            ended = &mut *operator => match ended {
                Ok(Ok(())) => "the operator has ended".to_owned(),
                Ok(Err(error)) => format!("the operator has ended: {error}"),
                Err(error) => format!("the operator has ended: {error}"),
            },
        }
    }

    /// Waits until both have stopped, or have had their time.
    pub async fn finished(self) {
        let (mut hub, mut operator) = (self.hub.into_inner(), self.operator.into_inner());
        let both = async {
            if !hub.is_finished() {
                let _ = (&mut hub).await;
            }
            if !operator.is_finished() {
                let _ = (&mut operator).await;
            }
        };
        if tokio::time::timeout(PATIENCE, both).await.is_err() {
            tracing::warn!("the hub or the operator did not stop in time");
        }
    }
}
