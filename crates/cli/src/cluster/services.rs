//! Starts Knoll's services in the embedded cluster, with the same ports and certificate after a restart.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use knoll_core::pod::{Platform, PluginCache, Runner, ToolImage};
use knoll_core::stop_times::Silence;
use knoll_hub::{Hub, HubSettings, Running, Tls};
use knoll_operator::health::Health;
use knoll_operator::metrics::{Metrics, counted};
use knoll_operator::{BackupSettings, RuleSettings};
use knoll_page::{BearerToken, Hosts, Page, PageSettings, RunningPage, SessionKey};
use knoll_storage::{FetchSettings, Storage};
use kube::Config;
use kube::api::{Api, Patch, PatchParams};
use kube::config::Kubeconfig;
use secrecy::ExposeSecret;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::folder::Folder;
use crate::services::{self, Services};

/// The namespace of the services' own objects.
pub const NAMESPACE: &str = "kube-system";
/// The ConfigMap that records the services' ports.
pub const PORTS: &str = "knoll-hub";
/// The keys of the ConfigMap.
const HUB: &str = "port";
const METRICS: &str = "metricsPort";
pub const PAGE: &str = "pagePort";
/// The tag of all images. The embedded node ignores images and runs the host's programs.
const HOST: &str = "host";

/// Starts the services on loopback. They stop when `stop` is cancelled. Returns a link to the page as well, which signs the
/// user of this kubeconfig in once.
pub async fn start(
    client: kube::Client,
    kubeconfig: &str,
    folder: &Folder,
    fetch: FetchSettings,
    backup: Option<BackupSettings>,
    stop: CancellationToken,
) -> Result<(Services, Option<String>)> {
    let metrics = Metrics::default();
    let client = counted(client, &metrics);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let known = maps.get_opt(PORTS).await.context("cannot read the ports of the last start")?;
    let known = known.and_then(|map| map.data).unwrap_or_default();
    let port = |key: &str| known.get(key).and_then(|port| port.parse().ok()).unwrap_or_default();
    let rules = RuleSettings { home: NAMESPACE.to_owned(), ..RuleSettings::default() };
    let hub = start_hub(&client, &metrics, port(HUB), &fetch, &rules, &stop).await?;
    let monitor = listen(port(METRICS)).await.context("cannot serve metrics")?;
    let (page, link) = start_page(&client, kubeconfig, port(PAGE), &stop).await.context("cannot serve the web page")?;
    let ports = [(PAGE, page.addr.port()), (HUB, hub.addr.port()), (METRICS, monitor.local_addr()?.port())];
    if ports.iter().any(|(key, now)| port(key) != *now) {
        let data: serde_json::Map<_, _> =
            ports.map(|(key, port)| (key.to_owned(), port.to_string().into())).into_iter().collect();
        let map =
            serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PORTS}, "data": data });
        maps.patch(PORTS, &PatchParams::apply("knoll").force(), &Patch::Apply(map))
            .await
            .context("cannot store the ports")?;
    }

    let cache = folder.cache().join("plugins");
    std::fs::create_dir_all(&cache).with_context(|| format!("cannot create `{}`", cache.display()))?;
    let image = |name: &str| ToolImage { repository: name.to_owned(), version: HOST.to_owned() };
    let platform = Platform {
        knoll_image: format!("knoll:{HOST}"),
        // The runner is this executable.
        runner: Runner::Container("knoll"),
        terraform: image("terraform"),
        tofu: image("tofu"),
        hub_url: format!("https://{}", hub.addr),
        hub_ca: hub.ca_pem.clone(),
        plugin_cache: Some(PluginCache { path: cache.display().to_string(), volume: None }),
        // A pod runs programs of this machine.
        pulls_images: false,
    };
    // The lock on the data directory replaces leader election.
    let health = Health::default();
    let settings =
        knoll_operator::Settings { namespace: None, platform, lease: None, metrics, health, fetch, backup, rules };
    Ok((services::start(client, hub, monitor, page, settings, stop), link))
}

/// Starts the web page, and makes a link that signs the user of the kubeconfig in.
async fn start_page(
    client: &kube::Client,
    kubeconfig: &str,
    port: u16,
    stop: &CancellationToken,
) -> Result<(RunningPage, Option<String>)> {
    let config = Config::from_custom_kubeconfig(Kubeconfig::from_yaml(kubeconfig)?, &Default::default()).await?;
    let token = config.auth_info.token.as_ref().and_then(|token| BearerToken::new(token.expose_secret()));
    let key = SessionKey::shared(client, NAMESPACE).await?;
    let settings = PageSettings { connect: services::connect_users(config), key, hosts: Hosts::Loopback };
    let page = Page::serve(listen(port).await?, settings, stop.clone())?;
    let link = token.and_then(|token| page.link(token));
    Ok((page, link))
}

/// Starts the hub on its previous port, where the runners of the last start look for it.
async fn start_hub(
    client: &kube::Client,
    metrics: &Metrics,
    port: u16,
    fetch: &FetchSettings,
    rules: &RuleSettings,
    stop: &CancellationToken,
) -> Result<Running> {
    let names = ["127.0.0.1".to_owned()];
    let start = async |port| {
        let tls = Tls::shared(client, NAMESPACE, &names).await?;
        let observer = services::observer(metrics);
        let settings = HubSettings {
            fetch: fetch.clone(),
            silence: Silence::default(),
            home: rules.home.clone(),
            evaluator: rules.evaluator.clone(),
        };
        let storage = Storage::new(client.clone());
        anyhow::Ok(Hub::start(storage, None, loopback(port), tls, settings, observer, stop.clone()).await?)
    };
    match start(port).await {
        Err(error) if port != 0 => {
            tracing::warn!(%error, "the hub's previous port is taken: runners of the last start cannot reach it");
            start(0).await
        }
        result => result,
    }
}

/// Listens on the port, or on another one if it is taken.
async fn listen(port: u16) -> std::io::Result<TcpListener> {
    match TcpListener::bind(loopback(port)).await {
        Err(_) if port != 0 => TcpListener::bind(loopback(0)).await,
        result => result,
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
