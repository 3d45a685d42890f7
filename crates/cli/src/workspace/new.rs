//! `knoll workspace new`.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use knoll_api::Workspace;
use knoll_api::names::field_manager;
use knoll_api::workspace::{StateKind, Tool, WorkspaceSpec};
use kube::api::PostParams;

use super::Session;
use super::choice::Choice;
use crate::connect::{Connection, Explain};
use crate::style;

/// The arguments of `knoll workspace new`.
#[derive(clap::Args)]
pub struct WorkspaceNewArgs {
    #[command(flatten)]
    connection: Connection,
    /// The name of the workspace
    name: String,
    /// The tool that runs the modules
    #[arg(long, env = "KNOLL_TOOL", default_value = "terraform", value_parser = ["terraform", "tofu"])]
    tool: String,
    /// The version of the tool, such as 1.11.4 [default: set by the operator]
    #[arg(long, env = "KNOLL_TOOL_VERSION", value_name = "VERSION")]
    tool_version: Option<String>,
    /// The image of the tool
    #[arg(long, env = "KNOLL_TOOL_IMAGE", value_name = "IMAGE")]
    image: Option<String>,
    /// Use the backend that the module declares instead of state managed by Knoll
    #[arg(long, env = "KNOLL_EXTERNAL_STATE")]
    external_state: bool,
}

/// Creates the Workspace, and selects it in this directory.
pub async fn run(args: WorkspaceNewArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let spec = WorkspaceSpec {
        tool: if args.tool == "tofu" { Tool::Tofu } else { Tool::Terraform },
        version: args.tool_version,
        image: args.image,
        state: if args.external_state { StateKind::External } else { StateKind::Managed },
        ..WorkspaceSpec::default()
    };
    let name = args.name;
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    match session.api::<Workspace>().create(&params, &Workspace::new(&name, spec)).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            return Err(anyhow!(
                "workspace `{name}` already exists in namespace `{}`\n  `knoll workspace select {name}` selects it in this directory",
                session.namespace
            ));
        }
        result => result.explain(&session.cluster, &format!("cannot create workspace `{name}`"))?,
    };
    Choice { namespace: session.namespace.clone(), workspace: name.clone() }.write(&session.folder)?;
    style::say(
        "Created",
        &format!("workspace `{name}` in namespace `{}` and selected it in this directory", session.namespace),
    );
    Ok(ExitCode::SUCCESS)
}
