//! `knoll version`: prints the versions of the client and the cluster.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use knoll_api::names::GROUP;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::connect::{Cluster, Connection, Explain};
use crate::install::version::Version;
use crate::output::{self, Format, OutputArgs};
use crate::style;

/// How long the cluster may take to respond.
const PATIENCE: Duration = Duration::from_secs(5);

/// The arguments of `knoll version`.
#[derive(clap::Args)]
pub struct VersionArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// Print only the client version
    #[arg(long, env = "KNOLL_CLIENT")]
    client: bool,
}

/// The versions of a cluster.
pub struct Server {
    pub address: String,
    pub kubernetes: Version,
    /// The version of Knoll, if it is installed and the user may read it.
    pub knoll: Option<String>,
    /// The API version of Knoll's CRDs, if they are installed.
    pub kinds: Option<String>,
}

pub async fn run(args: VersionArgs, outer: &Connection) -> Result<ExitCode> {
    let client = env!("CARGO_PKG_VERSION");
    let server = if args.client { None } else { Some(server(&args.connection.or(outer)).await) };
    match args.output.output {
        Format::Json | Format::Yaml => {
            let server = server.and_then(Result::ok).map(
                |Server { address, kubernetes, knoll, kinds }| {
                    json!({"address": address, "kubernetes": kubernetes.to_string(), "knoll": knoll, "kinds": kinds})
                },
            );
            output::value(&json!({"client": client, "server": server}), args.output.output)?;
        }
        Format::Table | Format::Wide | Format::Name => {
            let mut text = format!("client: {client}\n");
            match server {
                None => {}
                Some(Ok(server)) => {
                    let kinds = server.kinds.unwrap_or_else(|| "not installed; run `knoll install`".to_owned());
                    let knoll = server.knoll.map(|version| format!("{version} on ")).unwrap_or_default();
                    text += &format!("server: {knoll}Kubernetes {} at {}\n", server.kubernetes, server.address);
                    text += &format!("kinds:  {kinds}\n");
                }
                Some(Err(error)) => {
                    output::print(&text)?;
                    style::note(&format!("{error:#}"));
                    return Ok(ExitCode::SUCCESS);
                }
            }
            output::print(&text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the versions from the cluster.
pub async fn server(connection: &Connection) -> Result<Server> {
    let cluster = Cluster::find_quietly(connection).await?;
    let ask = async {
        let kubernetes = Version::of(&cluster.client).await.explain(&cluster, "cannot read the server version")?;
        let (knoll, kinds) = installed(&cluster).await?;
        Ok(Server { address: cluster.server.clone(), kubernetes, knoll, kinds })
    };
    match tokio::time::timeout(PATIENCE, ask).await {
        Ok(result) => result,
        Err(_) => anyhow::bail!("the cluster at {} did not respond within {} s", cluster.server, PATIENCE.as_secs()),
    }
}

/// The versions of Knoll and of its CRDs. Every user can list API groups; reading the CRDs needs permission.
async fn installed(cluster: &Cluster) -> Result<(Option<String>, Option<String>)> {
    let groups = cluster.client.list_api_groups().await.explain(cluster, "cannot list the API groups of the server")?;
    let group = groups.groups.into_iter().find(|group| group.name == GROUP);
    let kinds = group.and_then(|group| group.versions.into_iter().next()).map(|version| version.group_version);
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let definition = definitions.get_metadata_opt(&format!("workspaces.{GROUP}")).await.ok().flatten();
    Ok((definition.and_then(|found| found.labels().get(knoll_deploy::VERSION_LABEL).cloned()), kinds))
}
