//! `knoll workspace select`.

use std::process::ExitCode;

use anyhow::Result;
use kube::ResourceExt;

use super::Session;
use crate::connect::Connection;
use crate::style;

/// The arguments of `knoll workspace select`.
#[derive(clap::Args)]
pub struct WorkspaceSelectArgs {
    #[command(flatten)]
    connection: Connection,
    /// The name of the workspace
    #[arg(add = crate::complete::workspaces(), value_parser = crate::workspace::plain_name::<knoll_api::Workspace>)]
    name: String,
}

/// Selects an existing Workspace.
pub async fn run(args: WorkspaceSelectArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let name = session.workspace(&args.name).await?.name_any();
    session.select(&name).await?;
    style::say("Selected", &format!("workspace `{name}` in namespace `{}`", session.namespace));
    Ok(ExitCode::SUCCESS)
}
