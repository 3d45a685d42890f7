//! `knoll operator`: the hub and the controllers in a pod of a cluster.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{Service, Volume};
use knoll_api::names::API_VERSION;
use knoll_core::pod::{Platform, PluginCache, Runner, ToolImage};
use knoll_deploy::{HUB_PORT, LEASE, METRICS_PORT, SERVICE};
use knoll_hub::{Hub, Tls};
use knoll_operator::health::Health;
use knoll_operator::lease;
use knoll_operator::metrics::Metrics;
use kube::{Api, Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::install::version::Version;
use crate::parts;

/// The name of the volume with provider plugins, and where it is mounted.
const PLUGINS: &str = "knoll-plugins";
const PLUGINS_PATH: &str = "/var/cache/knoll/plugins";
/// How long the API may be out of reach when the operator starts: nodes start in no order.
const PATIENCE: Duration = Duration::from_secs(60);

/// The arguments of `knoll operator`.
#[derive(clap::Args)]
pub struct Args {
    /// The kubeconfig [default: the pod's own access]
    #[arg(long, env = "KNOLL_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The namespace to work in [default: all]
    #[arg(long, env = "KNOLL_WATCH_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Where the operator's own objects are: Lease, Service and certificate [default: the pod's namespace]
    #[arg(long, env = "KNOLL_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// Who this operator is among several [default: one of its own]
    #[arg(long, env = "KNOLL_IDENTITY", value_name = "NAME")]
    identity: Option<String>,
    /// Where the hub listens [default: port 8443 of every address]
    #[arg(long, env = "KNOLL_HUB_LISTEN", value_name = "ADDRESS")]
    hub_listen: Option<SocketAddr>,
    /// Where runners reach the hub [default: the address of the Service `knoll-hub`]
    #[arg(long, env = "KNOLL_HUB_URL", value_name = "URL", value_parser = https)]
    hub_url: Option<String>,
    /// Where health and metrics are served [default: port 8080 of every address]
    #[arg(long, env = "KNOLL_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
    /// The image that has `knoll` in it
    #[arg(long, env = "KNOLL_IMAGE", default_value_t = knoll_deploy::Settings::default().image, value_name = "IMAGE")]
    knoll_image: String,
    /// Give pods the runner as a volume of that image, and not by a container: Kubernetes 1.35, containerd 2.1 or CRI-O 1.33
    #[arg(long, env = "KNOLL_IMAGE_VOLUMES")]
    image_volumes: bool,
    /// The image of terraform, without its tag
    #[arg(long, env = "KNOLL_TERRAFORM_IMAGE", default_value = "hashicorp/terraform", value_name = "IMAGE")]
    terraform_image: String,
    /// The version of terraform where a Workspace names none
    #[arg(long, env = "KNOLL_TERRAFORM_VERSION", default_value = "1.11.4", value_name = "VERSION")]
    terraform_version: String,
    /// The image of OpenTofu, without its tag
    #[arg(long, env = "KNOLL_TOFU_IMAGE", default_value = "opentofu/opentofu", value_name = "IMAGE")]
    tofu_image: String,
    /// The version of OpenTofu where a Workspace names none
    #[arg(long, env = "KNOLL_TOFU_VERSION", default_value = "1.10.10", value_name = "VERSION")]
    tofu_version: String,
    /// A volume for provider plugins that all runs share, as JSON: `{"persistentVolumeClaim": {"claimName": "plugins"}}`
    #[arg(long, env = "KNOLL_PLUGIN_CACHE_VOLUME", value_name = "JSON", value_parser = volume)]
    plugin_cache_volume: Option<Volume>,
    /// Read sources with `file://` from the operator's own file system, on behalf of whoever writes a Stack or a Run
    #[arg(long, env = "KNOLL_LOCAL_SOURCES")]
    local_sources: bool,
}

/// Runs until it is told to stop.
pub fn run(args: &Args) -> Result<ExitCode> {
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

async fn serve(args: &Args) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let starting = start(args, &stop);
    let parts = tokio::select! {
        parts = starting => parts?,
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
    };
    let code = tokio::select! {
        _ = interrupt.recv() => ExitCode::SUCCESS,
        _ = terminate.recv() => ExitCode::SUCCESS,
        error = parts.failed() => {
            tracing::error!(%error, "a part has failed: stopping, to be started anew");
            ExitCode::FAILURE
        }
    };
    tracing::info!("stopping");
    stop.cancel();
    parts.finished().await;
    Ok(code)
}

async fn start(args: &Args, stop: &CancellationToken) -> Result<parts::Parts> {
    let metrics = Metrics::default();
    let config = config(args.kubeconfig.as_deref()).await?;
    let home = args.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let server = config.cluster_url.to_string();
    let client = knoll_operator::client::connect_counted(config, &metrics)
        .with_context(|| format!("the cluster at {server} cannot be reached"))?;
    let version = reach(&client, &server).await?;
    version.require()?;
    has_kinds(&client, &server).await?;

    let (url, names) = address(args, &client, &home).await?;
    let tls = Tls::shared(&client, &home, &names).await?;
    let namespace = args.namespace.as_deref();
    let fetch = knoll_storage::FetchSettings { local: args.local_sources };
    let listen = args.hub_listen.unwrap_or_else(|| every_address(HUB_PORT));
    let hub = Hub::start(client.clone(), namespace, listen, tls, fetch, stop.clone()).await?;
    let metrics_listen = args.metrics_listen.unwrap_or_else(|| every_address(METRICS_PORT));
    let monitor = TcpListener::bind(metrics_listen).await.with_context(|| {
        format!("health and metrics cannot be served on {metrics_listen}; choose another `--metrics-listen`")
    })?;
    tracing::info!(kubernetes = %version, hub = url, listen = %hub.addr, metrics = %monitor.local_addr()?, "Knoll starts");

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
        plugin_cache: args
            .plugin_cache_volume
            .clone()
            .map(|volume| PluginCache { path: PLUGINS_PATH.to_owned(), volume: Some(volume) }),
    };
    let settings = knoll_operator::Settings {
        namespace: args.namespace.clone(),
        platform,
        lease: Some(lease::Settings::new(home, LEASE, identity(args))),
        metrics,
        health: Health::default(),
        fetch,
    };
    Ok(parts::start(client, hub, monitor, settings, stop.clone()))
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config> {
    match kubeconfig {
        Some(path) => {
            let unreadable = || format!("cannot use the kubeconfig `{}`", path.display());
            let config = kube::config::Kubeconfig::read_from(path).with_context(unreadable)?;
            Config::from_custom_kubeconfig(config, &Default::default()).await.with_context(unreadable)
        }
        None => Config::incluster().map_err(|error| {
            anyhow!("this is not a pod of a cluster ({error}): `knoll install` puts the operator into one, `--kubeconfig FILE` names one, and `knoll up` brings one")
        }),
    }
}

/// Waits for the API for a while.
async fn reach(client: &Client, server: &str) -> Result<Version> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Version::of(client).await {
            Ok(version) => return Ok(version),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => return Err(kept_out(server, &status)),
            Err(error) if Instant::now() > deadline => {
                return Err(said(&error)).with_context(|| format!("the cluster at {server} does not answer"));
            }
            Err(error) => {
                tracing::warn!(%error, server, "the cluster does not answer yet");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn kept_out(server: &str, status: &kube::core::Status) -> anyhow::Error {
    anyhow!("the cluster at {server} does not let the operator in: {}", status.message)
}

async fn has_kinds(client: &Client, server: &str) -> Result<()> {
    let known = match client.list_api_group_resources(API_VERSION).await {
        Ok(list) => list.resources.len(),
        Err(kube::Error::Api(status)) if status.code == 404 => 0,
        Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => return Err(kept_out(server, &status)),
        Err(error) => return Err(said(&error)).context("cannot see which kinds the cluster has"),
    };
    if known == 0 {
        bail!("the cluster does not have Knoll's kinds ({API_VERSION}): `knoll install` installs them");
    }
    Ok(())
}

/// What the API said, without the form in which it said it.
fn said(error: &kube::Error) -> anyhow::Error {
    anyhow!(knoll_storage::message_of(error))
}

/// Where runners reach the hub, and the names that its certificate has to be for.
///
/// The Service is named by its address, so that a run needs no cluster DNS.
async fn address(args: &Args, client: &Client, home: &str) -> Result<(String, Vec<String>)> {
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
        .map_err(|error| said(&error))
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

/// The port on every address that the machine has, of both families where it knows both.
fn every_address(port: u16) -> SocketAddr {
    let six = std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    let all: IpAddr = if six { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(all, port)
}

/// A pod's name is unique. Elsewhere, the process and the time tell two operators apart.
fn identity(args: &Args) -> String {
    args.identity.clone().unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        format!("operator-{}-{}", std::process::id(), now.as_millis())
    })
}

fn https(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => Ok(text.to_owned()),
        _ => Err("write an address such as https://knoll.example.com".to_owned()),
    }
}

fn volume(text: &str) -> Result<Volume, String> {
    let example = r#"write a volume of a pod as JSON, such as {"hostPath": {"path": "/var/cache/knoll"}}"#;
    let mut volume: Volume = serde_json::from_str(text).map_err(|error| format!("{error}; {example}"))?;
    volume.name = PLUGINS.to_owned();
    let bare = Volume { name: PLUGINS.to_owned(), ..Volume::default() };
    if volume == bare {
        return Err(format!("it names no volume; {example}"));
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
