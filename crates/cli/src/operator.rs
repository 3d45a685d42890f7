//! `knoll operator`: the controllers and the hub, as a pod of the cluster.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{Service, Volume};
use knoll_api::names::API_VERSION;
use knoll_core::pod::{Platform, PluginCache, Runner, ToolImage};
use knoll_core::stop_times::Silence;
use knoll_deploy::{HUB_PORT, LEASE, METRICS_PORT, PAGE_PORT, SERVICE};
use knoll_hub::{Hub, HubSettings, Tls};
use knoll_operator::RuleSettings;
use knoll_operator::health::Health;
use knoll_operator::lease;
use knoll_operator::metrics::Metrics;
use knoll_page::{Connect, Hosts, Page, PageSettings, RunningPage, SessionKey};
use knoll_rules::Evaluator;
use kube::{Api, Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::backups::BackupArgs;
use crate::fetches::FetchArgs;
use crate::install::version::Version;
use crate::services;

/// The volume of the shared provider plugin cache, and its mount path.
const PLUGINS: &str = "knoll-plugins";
const PLUGINS_PATH: &str = "/var/cache/knoll/plugins";
/// How long the operator waits for the API server at startup. Nodes and control planes start in any order.
const API_TIMEOUT: Duration = Duration::from_secs(60);

/// The arguments of `knoll operator`.
#[derive(clap::Args)]
pub struct OperatorArgs {
    /// The kubeconfig [default: in-cluster configuration]
    #[arg(long, env = "KNOLL_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The namespace to watch [default: all namespaces]
    #[arg(long, env = "KNOLL_WATCH_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The namespace of the operator's Lease, Service and certificate [default: the pod's namespace]
    #[arg(long, env = "KNOLL_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// The identity of this replica in the leader election [default: the pod's name]
    #[arg(long, env = "KNOLL_IDENTITY", value_name = "NAME")]
    identity: Option<String>,
    /// The address that the hub listens on [default: port 8443 on all interfaces]
    #[arg(long, env = "KNOLL_HUB_LISTEN", value_name = "ADDRESS")]
    hub_listen: Option<SocketAddr>,
    /// The URL by which runners reach the hub [default: the cluster IP of the Service `knoll-hub`]
    #[arg(long, env = "KNOLL_HUB_URL", value_name = "URL", value_parser = https)]
    hub_url: Option<String>,
    /// The address that serves health checks and metrics [default: port 8080 on all interfaces]
    #[arg(long, env = "KNOLL_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
    /// The address that serves the web page [default: port 8081 on all interfaces]
    #[arg(long, env = "KNOLL_PAGE_LISTEN", value_name = "ADDRESS")]
    page_listen: Option<SocketAddr>,
    /// The image that contains `knoll`
    #[arg(long, env = "KNOLL_IMAGE", default_value_t = knoll_deploy::Settings::default().image, value_name = "IMAGE")]
    knoll_image: String,
    /// Mount the runner from that image as an image volume instead of copying it in a container; needs Kubernetes 1.35
    /// and containerd 2.1 or CRI-O 1.33
    #[arg(long, env = "KNOLL_IMAGE_VOLUMES")]
    image_volumes: bool,
    /// The terraform image, without a tag
    #[arg(long, env = "KNOLL_TERRAFORM_IMAGE", default_value = "hashicorp/terraform", value_name = "IMAGE")]
    terraform_image: String,
    /// The terraform version for Workspaces that do not set one
    #[arg(long, env = "KNOLL_TERRAFORM_VERSION", default_value = "1.11.4", value_name = "VERSION")]
    terraform_version: String,
    /// The OpenTofu image, without a tag
    #[arg(long, env = "KNOLL_TOFU_IMAGE", default_value = "opentofu/opentofu", value_name = "IMAGE")]
    tofu_image: String,
    /// The OpenTofu version for Workspaces that do not set one
    #[arg(long, env = "KNOLL_TOFU_VERSION", default_value = "1.10.10", value_name = "VERSION")]
    tofu_version: String,
    /// A volume for a provider plugin cache shared by all runs, as JSON: `{"persistentVolumeClaim": {"claimName":
    /// "plugins"}}`
    #[arg(long, env = "KNOLL_PLUGIN_CACHE_VOLUME", value_name = "JSON", value_parser = volume)]
    plugin_cache_volume: Option<Volume>,
    /// Allow `file://` sources, which read the operator's own file system for any user who may create a Stack or a Run
    #[arg(long, env = "KNOLL_LOCAL_SOURCES")]
    local_sources: bool,
    #[command(flatten)]
    fetch: FetchArgs,
    #[command(flatten)]
    backup: BackupArgs,
    /// How long a runner that cannot reach the hub continues before it stops terraform, from 40s to 90s
    #[arg(long, env = "KNOLL_RUNNER_SILENCE", default_value = "80s", value_name = "DURATION", value_parser = silence)]
    runner_silence: Silence,
}

fn silence(text: &str) -> Result<Silence, String> {
    let duration: knoll_api::Duration = text.parse().map_err(|error| format!("{error}"))?;
    Silence::new(duration.get()).map_err(|error| error.to_string())
}

/// Runs until the process receives a termination signal.
pub fn run(args: &OperatorArgs) -> Result<ExitCode> {
    let filter = EnvFilter::try_from_env("KNOLL_LOG").unwrap_or_else(|_| EnvFilter::new("info,kube=warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        log.init();
    } else {
        log.json().flatten_event(true).init();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(serve(args));
    runtime.shutdown_timeout(Duration::from_secs(2));
    result
}

async fn serve(args: &OperatorArgs) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let starting = start(args, &stop);
    let services = tokio::select! {
        services = starting => services?,
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
    };
    let code = tokio::select! {
        _ = interrupt.recv() => ExitCode::SUCCESS,
        _ = terminate.recv() => ExitCode::SUCCESS,
        error = services.failed() => {
            tracing::error!(%error, "a service has failed: shutting down, to be restarted");
            ExitCode::FAILURE
        }
    };
    tracing::info!("stopping");
    stop.cancel();
    services.finished().await;
    Ok(code)
}

async fn start(args: &OperatorArgs, stop: &CancellationToken) -> Result<services::Services> {
    let metrics = Metrics::default();
    let backup = args.backup.settings()?;
    let config = config(args.kubeconfig.as_deref()).await?;
    let home = args.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let server = config.cluster_url.to_string();
    let connect = services::connect_users(config.clone());
    let client = knoll_operator::client::connect_counted(config, &metrics)
        .with_context(|| format!("cannot connect to the cluster at {server}"))?;
    let version = reach(&client, &server).await?;
    version.require()?;
    has_kinds(&client, &server).await?;

    let (url, names) = address(args, &client, &home).await?;
    let tls = Tls::shared(&client, &home, &names).await?;
    let namespace = args.namespace.as_deref();
    let fetch = args.fetch.settings(args.local_sources);
    let listen = args.hub_listen.unwrap_or_else(|| every_address(HUB_PORT));
    let observer = services::observer(&metrics);
    let storage = knoll_storage::Storage::new(client.clone());
    let rules = RuleSettings { evaluator: Evaluator::default(), home: home.clone() };
    let settings = HubSettings {
        fetch: fetch.clone(),
        silence: args.runner_silence,
        home: home.clone(),
        evaluator: rules.evaluator.clone(),
    };
    let hub = Hub::start(storage, namespace, listen, tls, settings, observer, stop.clone()).await?;
    let metrics_listen = args.metrics_listen.unwrap_or_else(|| every_address(METRICS_PORT));
    let monitor = TcpListener::bind(metrics_listen).await.with_context(|| {
        format!(
            "cannot serve health checks and metrics on {metrics_listen}; choose another address with `--metrics-listen`"
        )
    })?;
    let page = start_page(args, &client, &home, connect, stop).await?;
    tracing::info!(kubernetes = %version, page = %page.addr, hub = url, listen = %hub.addr, metrics = %monitor.local_addr()?, "starting Knoll");

    let image =
        |repository: &str, version: &str| ToolImage { repository: repository.to_owned(), version: version.to_owned() };
    let platform = Platform {
        knoll_image: args.knoll_image.clone(),
        runner: if args.image_volumes {
            Runner::Volume("/usr/local/bin/knoll-runner")
        } else {
            Runner::Container("knoll-runner")
        },
        terraform: image(&args.terraform_image, &args.terraform_version),
        tofu: image(&args.tofu_image, &args.tofu_version),
        hub_url: url,
        hub_ca: hub.ca_pem.clone(),
        pulls_images: true,
        plugin_cache: args
            .plugin_cache_volume
            .clone()
            .map(|volume| PluginCache { path: PLUGINS_PATH.to_owned(), volume: Some(volume) }),
    };
    let settings = knoll_operator::Settings {
        namespace: args.namespace.clone(),
        platform,
        lease: Some(lease::LeaseSettings::new(home, LEASE, identity(args))),
        metrics,
        health: Health::default(),
        fetch,
        backup,
        rules,
    };
    Ok(services::start(client, hub, monitor, page, settings, stop.clone()))
}

/// Serves the web page. Its users bring their own tokens: the operator's rights are for the key of the sessions only.
async fn start_page(
    args: &OperatorArgs,
    client: &Client,
    home: &str,
    connect: Connect,
    stop: &CancellationToken,
) -> Result<RunningPage> {
    let listen = args.page_listen.unwrap_or_else(|| every_address(PAGE_PORT));
    let listener = TcpListener::bind(listen).await.with_context(|| {
        format!("cannot serve the web page on {listen}; choose another address with `--page-listen`")
    })?;
    let key = SessionKey::shared(client, home).await?;
    Ok(Page::serve(listener, PageSettings { connect, key, hosts: Hosts::Any }, stop.clone())?)
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    match kubeconfig {
        Some(path) => {
            let unreadable = || format!("cannot use the kubeconfig `{}`", path.display());
            let config = kube::config::Kubeconfig::read_from(path).with_context(unreadable)?;
            Config::from_custom_kubeconfig(config, &Default::default()).await.with_context(unreadable)
        }
        None => Config::incluster().map_err(|error| {
            anyhow!("not running in a pod ({error}): `knoll install` deploys the operator to a cluster, `--kubeconfig FILE` names a cluster, and `knoll up` starts a local one")
        }),
    }
}

/// Retries for [`API_TIMEOUT`] until the API server answers.
async fn reach(client: &Client, server: &str) -> Result<Version> {
    let deadline = Instant::now() + API_TIMEOUT;
    loop {
        match Version::of(client).await {
            Ok(version) => return Ok(version),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => return Err(rejected(server, &status)),
            Err(error) if Instant::now() > deadline => {
                return Err(api_message(&error)).with_context(|| format!("the cluster at {server} does not respond"));
            }
            Err(error) => {
                tracing::warn!(%error, server, "the cluster does not respond yet");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn rejected(server: &str, status: &kube::core::Status) -> anyhow::Error {
    anyhow!("the cluster at {server} rejected the operator's credentials: {}", status.message)
}

async fn has_kinds(client: &Client, server: &str) -> Result<()> {
    let known = match client.list_api_group_resources(API_VERSION).await {
        Ok(list) => list.resources.len(),
        Err(kube::Error::Api(status)) if status.code == 404 => 0,
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => return Err(rejected(server, &status)),
        Err(error) => return Err(api_message(&error)).context("cannot list the API groups of the cluster"),
    };
    if known == 0 {
        bail!("Knoll's CRDs ({API_VERSION}) are not installed in the cluster: run `knoll install`");
    }
    Ok(())
}

/// The message of an API error, without kube's wrapping.
fn api_message(error: &kube::Error) -> anyhow::Error {
    anyhow!(knoll_storage::message_of(error))
}

/// The hub's URL for runners, and the DNS names and addresses of its certificate.
///
/// Runners are given the Service's cluster IP, so a run does not depend on cluster DNS.
async fn address(args: &OperatorArgs, client: &Client, home: &str) -> Result<(String, Vec<String>)> {
    let mut names = vec![format!("{SERVICE}.{home}.svc"), format!("{SERVICE}.{home}.svc.cluster.local")];
    if let Some(url) = &args.hub_url {
        let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        names.extend(host.map(|host| host.trim_matches(['[', ']']).to_owned()));
        return Ok((url.trim_end_matches('/').to_owned(), names));
    }
    let services: Api<Service> = Api::namespaced(client.clone(), home);
    let service = services
        .get_opt(SERVICE)
        .await
        .map_err(|error| api_message(&error))
        .context("cannot read the address of the hub's Service")?;
    let ip: Option<IpAddr> = service.and_then(|service| service.spec?.cluster_ip?.parse().ok());
    let url = match ip {
        Some(ip) => {
            names.push(ip.to_string());
            format!("https://{}", if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() })
        }
        None => format!("https://{}", names[0]),
    };
    Ok((url, names))
}

/// The port on all interfaces, IPv6 and IPv4 where the machine has both.
fn every_address(port: u16) -> SocketAddr {
    let six = std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    let all: IpAddr = if six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(all, port)
}

/// The identity for leader election. A pod's name is unique; outside of a pod, process id and time are.
fn identity(args: &OperatorArgs) -> String {
    args.identity.clone().unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        format!("operator-{}-{}", std::process::id(), now.as_millis())
    })
}

fn https(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => Ok(text.to_owned()),
        _ => Err("expected a URL such as https://knoll.example.com".to_owned()),
    }
}

fn volume(text: &str) -> Result<Volume, String> {
    let example = r#"expected a pod volume as JSON, such as {"hostPath": {"path": "/var/cache/knoll"}}"#;
    let mut volume: Volume = serde_json::from_str(text).map_err(|error| format!("{error}; {example}"))?;
    volume.name = PLUGINS.to_owned();
    let bare = Volume { name: PLUGINS.to_owned(), ..Volume::default() };
    if volume == bare {
        return Err(format!("no volume source given; {example}"));
    }
    Ok(volume)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volume_of_plugins_is_one() {
        let claim = volume(r#"{"persistentVolumeClaim": {"claimName": "plugins"}}"#).unwrap_or_default();
        assert_eq!(claim.name, PLUGINS);
        assert_eq!(claim.persistent_volume_claim.map(|claim| claim.claim_name).as_deref(), Some("plugins"));
        for bad in ["", "plugins", "{}", r#"{"name": "x"}"#] {
            assert!(volume(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_hub_speaks_tls_only() {
        assert!(https("https://hub.example.com:8443").is_ok());
        for bad in ["http://hub.example.com", "hub.example.com", "https://"] {
            assert!(https(bad).is_err(), "{bad}");
        }
    }
}
