//! `knoll workspace new`.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use knoll_api::Workspace;
use knoll_api::names::field_manager;
use knoll_api::workspace::{StateKind, Tool, WorkspaceSpec};
use kube::api::PostParams;

use super::Place;
use super::choice::Choice;
use crate::connect::{Connection, Explain};
use crate::style;

/// The arguments of `knoll workspace new`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Its name
    name: String,
    /// The program that runs its modules
    #[arg(long, env = "KNOLL_TOOL", default_value = "terraform", value_parser = ["terraform", "tofu"])]
    tool: String,
    /// The version of that program, such as 1.11.4 [default: the one that the cluster has]
    #[arg(long, env = "KNOLL_TOOL_VERSION", value_name = "VERSION")]
    tool_version: Option<String>,
    /// The image of its pods
    #[arg(long, env = "KNOLL_TOOL_IMAGE", value_name = "IMAGE")]
    image: Option<String>,
    /// Leave the state to the backend that the module declares
    #[arg(long, env = "KNOLL_EXTERNAL_STATE")]
    external_state: bool,
}

/// Makes the Workspace, and chooses it.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let spec = WorkspaceSpec {
        tool: if args.tool == "tofu" { Tool::Tofu } else { Tool::Terraform },
        version: args.tool_version,
        image: args.image,
        state: if args.external_state { StateKind::External } else { StateKind::Managed },
        ..WorkspaceSpec::default()
    };
    let name = args.name;
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    match place.api::<Workspace>().create(&params, &Workspace::new(&name, spec)).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            return Err(anyhow!(
                "there is a workspace `{name}` in namespace `{}` already\n  `knoll workspace select {name}` uses it in this folder",
                place.namespace
            ));
        }
        result => result.explain(&place.cluster, &format!("cannot make the workspace `{name}`"))?,
    };
    Choice { namespace: place.namespace.clone(), workspace: name.clone() }.write(&place.folder)?;
    style::say("Created", &format!("workspace `{name}` in namespace `{}`; this folder uses it", place.namespace));
    Ok(ExitCode::SUCCESS)
}
