//! Where Knoll's parts listen in the embedded cluster: the same ports and the same certificate after a restart.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_core::pod::{Platform, PluginCache, Runner, ToolImage};
use knoll_hub::{Hub, Running, Tls};
use knoll_operator::health::Health;
use knoll_operator::metrics::{Metrics, counted};
use kube::api::{Api, Patch, PatchParams};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::folder::Folder;
use crate::parts::{self, Parts};

/// Where the cluster's own objects are.
const NAMESPACE: &str = "kube-system";
/// The ConfigMap that says on which ports the parts are.
const PLACE: &str = "knoll-hub";
/// Its keys.
const HUB: &str = "port";
const METRICS: &str = "metricsPort";
/// Images say nothing to the embedded node: programs are those of the host, whatever their version.
const HOST: &str = "host";
/// Whoever uses this cluster is the user of this machine.
const FETCH: knoll_storage::FetchSettings = knoll_storage::FetchSettings { local: true };

/// Starts the parts on loopback. They stop with the token.
pub async fn start(client: kube::Client, folder: &Folder, stop: CancellationToken) -> Result<Parts> {
    let metrics = Metrics::default();
    let client = counted(client, &metrics);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let known = maps.get_opt(PLACE).await.context("cannot read where the hub was")?;
    let known = known.and_then(|map| map.data).unwrap_or_default();
    let port = |key: &str| known.get(key).and_then(|port| port.parse().ok()).unwrap_or_default();
    let hub = start_hub(&client, port(HUB), &stop).await?;
    let monitor = listen(port(METRICS)).await.context("the metrics cannot be served")?;
    let ports = [(HUB, hub.addr.port()), (METRICS, monitor.local_addr()?.port())];
    if ports.iter().any(|(key, now)| port(key) != *now) {
        let data: serde_json::Map<_, _> =
            ports.map(|(key, port)| (key.to_owned(), port.to_string().into())).into_iter().collect();
        let map =
            serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PLACE}, "data": data });
        maps.patch(PLACE, &PatchParams::apply("knoll").force(), &Patch::Apply(map))
            .await
            .context("cannot record where the hub is")?;
    }

    let cache = folder.cache().join("plugins");
    std::fs::create_dir_all(&cache).with_context(|| format!("cannot make `{}`", cache.display()))?;
    let image = |name: &str| ToolImage { repository: name.to_owned(), version: HOST.to_owned() };
    let platform = Platform {
        knoll_image: format!("knoll:{HOST}"),
        // This program, in which everything is.
        runner: Runner::Container("knoll"),
        terraform: image("terraform"),
        tofu: image("tofu"),
        hub_url: format!("https://{}", hub.addr),
        hub_ca: hub.ca_pem.clone(),
        plugin_cache: Some(PluginCache { path: cache.display().to_string(), volume: None }),
    };
    // The lock on the data folder is what keeps a second operator away.
    let health = Health::default();
    let settings = knoll_operator::Settings { namespace: None, platform, lease: None, metrics, health, fetch: FETCH };
    Ok(parts::start(client, hub, monitor, settings, stop))
}

/// Starts the hub where runners that outlived the last cluster look for it.
async fn start_hub(client: &kube::Client, port: u16, stop: &CancellationToken) -> Result<Running> {
    let names = ["127.0.0.1".to_owned()];
    let start = async |port| {
        let tls = Tls::shared(client, NAMESPACE, &names).await?;
        anyhow::Ok(Hub::start(client.clone(), None, loopback(port), tls, FETCH, stop.clone()).await?)
    };
    match start(port).await {
        Err(error) if port != 0 => {
            tracing::warn!(%error, "runs that are under way cannot report any more");
            start(0).await
        }
        result => result,
    }
}

/// Listens on the port if it is free, and on another one if it is not.
async fn listen(port: u16) -> std::io::Result<TcpListener> {
    match TcpListener::bind(loopback(port)).await {
        Err(_) if port != 0 => TcpListener::bind(loopback(0)).await,
        result => result,
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
