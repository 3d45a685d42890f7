//! `knoll install`: checks a cluster, then installs Knoll into it.

pub mod apply;
mod available;
mod image_volumes;
mod preflight;
pub mod version;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use knoll_deploy::{Manifest, Settings};

pub use preflight::{allowed, installed_in};

use crate::connect::{Cluster, Connection, Explain};
use crate::fetches::FetchArgs;
use crate::style;

/// Connection flags without a namespace, because `--namespace` is the operator's here.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "Connection")]
pub struct ClusterArgs {
    /// The kubeconfig context
    #[arg(long, env = "KNOLL_CONTEXT", value_name = "CONTEXT")]
    context: Option<String>,
    /// The kubeconfig [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, env = "KNOLL_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl ClusterArgs {
    pub async fn cluster(&self, outer: &Connection) -> Result<Cluster> {
        let ClusterArgs { context, kubeconfig } = self.clone();
        let connection = Connection { context, kubeconfig, ..Connection::default() };
        Cluster::find_quietly(&connection.or(outer)).await
    }
}

/// The arguments of `knoll install`.
#[derive(clap::Args)]
pub struct InstallArgs {
    /// The namespace of the operator
    #[arg(long, short, env = "KNOLL_INSTALL_NAMESPACE", default_value_t = Settings::default().namespace, value_name = "NAMESPACE")]
    namespace: String,
    /// The image that contains `knoll`
    #[arg(long, env = "KNOLL_IMAGE", default_value_t = Settings::default().image, value_name = "IMAGE")]
    image: String,
    /// The number of operator replicas; one leads, and all of them serve runners
    #[arg(long, env = "KNOLL_REPLICAS", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=100), value_name = "N")]
    replicas: i32,
    /// Mount the runner as an image volume instead of copying it in a container, so that pods start sooner; needs
    /// Kubernetes 1.35 and containerd 2.1 or CRI-O 1.33
    #[arg(long, env = "KNOLL_IMAGE_VOLUMES")]
    image_volumes: bool,
    #[command(flatten)]
    fetch: FetchArgs,
    /// Print the manifests instead of applying them
    #[arg(long, short, env = "KNOLL_INSTALL_OUTPUT", value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    /// How long to wait for the operator to become available
    #[arg(long, env = "KNOLL_TIMEOUT", default_value = "3m", value_parser = duration, value_name = "DURATION")]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// YAML documents
    Yaml,
}

/// Installs Knoll, or prints the manifests.
pub async fn run(args: InstallArgs, outer: &Connection) -> Result<ExitCode> {
    let settings = Settings {
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        replicas: args.replicas,
        image_volumes: args.image_volumes,
        allow_source_cidrs: args.fetch.allow_source_cidr.iter().map(ToString::to_string).collect(),
        plain_http_credentials: args.fetch.plain_http_credentials,
    };
    if let Some(Format::Yaml) = args.output {
        return print(&settings);
    }
    install(&args, &settings, outer).await
}

fn print(settings: &Settings) -> Result<ExitCode> {
    let documents: Vec<String> = knoll_deploy::all(settings).iter().map(Manifest::yaml).collect::<Result<_, _>>()?;
    match std::io::stdout().write_all(documents.join("---\n").as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

async fn install(args: &InstallArgs, settings: &Settings, outer: &Connection) -> Result<ExitCode> {
    let cluster = args.cluster.cluster(outer).await?;
    let version = version::check(&cluster).await?;
    let manifests = knoll_deploy::all(settings);
    preflight::check(&cluster, settings, &manifests).await?;
    if settings.image_volumes {
        image_volumes::check(&cluster, &settings.image).await?;
    }
    style::say("Installing", &format!("Knoll into {} (Kubernetes {version})", cluster.server));
    let kinds = knoll_deploy::kinds();
    for manifest in &manifests {
        let what = format!("cannot install `{}`", manifest.title());
        let outcome = administrator(apply::one(&cluster.client, manifest).await, &cluster, &what)?;
        style::field(outcome.as_str(), &manifest.title());
    }
    let served = futures::future::try_join_all(kinds.iter().map(|kind| apply::served(&cluster.client, kind.name())));
    match tokio::time::timeout(args.timeout, served).await {
        Ok(result) => drop(result?),
        Err(_) => bail!("the CRDs were installed, but the cluster does not serve them yet; run `knoll install` again"),
    }
    available::wait(&cluster.client, settings, args.timeout).await?;
    style::say("Installed:", &format!("the operator is available in namespace `{}`", settings.namespace));
    style::hint("\nGrant access with the roles `knoll-user`, `knoll-approver` and `knoll-viewer`, for example:");
    style::hint("  kubectl create rolebinding alice --clusterrole knoll-user --user alice -n NAMESPACE");
    Ok(ExitCode::SUCCESS)
}

/// Explains an API error of an operation that needs cluster-admin.
pub fn administrator<T>(result: kube::Result<T>, cluster: &Cluster, what: &str) -> Result<T> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            bail!("{what}: {}\n  ask an administrator of the cluster (role `cluster-admin`) to do it", status.message)
        }
        result => result.explain(cluster, what),
    }
}

/// Parses a Go-style duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration: knoll_api::duration::Duration = text.parse().map_err(|error| format!("{error}"))?;
    Ok(duration.into())
}
