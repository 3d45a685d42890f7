//! `knoll version`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::connect::{Cluster, Connection, Explain};
use crate::output::{self, Format, OutputArgs};
use crate::style;

/// How long the cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The arguments of `knoll version`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// Do not ask the cluster
    #[arg(long, env = "KNOLL_CLIENT")]
    client: bool,
}

/// What the cluster says of itself.
pub struct Server {
    /// Its address.
    pub address: String,
    /// The version of Kubernetes.
    pub kubernetes: String,
    /// The version of Knoll's kinds, when they are installed.
    pub kinds: Option<String>,
}

/// Prints the versions of both sides.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let client = env!("CARGO_PKG_VERSION");
    let server = if args.client { None } else { Some(server(&args.connection.or(outer)).await) };
    match args.output.output {
        Format::Json | Format::Yaml => {
            let server = server.and_then(Result::ok).map(
                |server| json!({"address": server.address, "kubernetes": server.kubernetes, "kinds": server.kinds}),
            );
            output::value(&json!({"client": client, "server": server}), args.output.output)?;
        }
        Format::Table | Format::Wide | Format::Name => {
            let mut text = format!("client: {client}\n");
            match server {
                None => {}
                Some(Ok(server)) => {
                    let kinds =
                        server.kinds.unwrap_or_else(|| "not installed; `knoll install` installs Knoll".to_owned());
                    text += &format!("server: {} at {}\nkinds:  {kinds}\n", server.kubernetes, server.address);
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

/// Asks the cluster.
pub async fn server(connection: &Connection) -> Result<Server> {
    let cluster = Cluster::find_quietly(connection).await?;
    let ask = async {
        let kubernetes =
            cluster.client.apiserver_version().await.explain(&cluster, "cannot ask for the server's version")?;
        Ok(Server { address: cluster.server.clone(), kubernetes: kubernetes.git_version, kinds: kinds(&cluster).await })
    };
    match tokio::time::timeout(PATIENCE, ask).await {
        Ok(result) => result,
        Err(_) => anyhow::bail!("the cluster at {} does not answer within {} s", cluster.server, PATIENCE.as_secs()),
    }
}

/// The version of the kinds; whoever may not look at definitions learns it from the kinds themselves.
async fn kinds(cluster: &Cluster) -> Option<String> {
    let name = format!("workspaces.{}", knoll_api::names::GROUP);
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    if let Ok(found) = definitions.get_opt(&name).await {
        let served = found?.spec.versions.into_iter().find(|version| version.served)?;
        return Some(format!("{}/{}", knoll_api::names::GROUP, served.name));
    }
    let workspaces: Api<knoll_api::Workspace> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let list = workspaces.list_metadata(&ListParams::default().limit(1)).await;
    list.ok().map(|_| knoll_api::names::API_VERSION.to_owned())
}
