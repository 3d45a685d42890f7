//! `knoll workspace select`.

use std::process::ExitCode;

use anyhow::Result;

use super::Session;
use super::choice::Choice;
use crate::connect::Connection;
use crate::style;

/// The arguments of `knoll workspace select`.
#[derive(clap::Args)]
pub struct WorkspaceSelectArgs {
    #[command(flatten)]
    connection: Connection,
    /// The name of the workspace
    #[arg(add = crate::complete::workspaces())]
    name: String,
}

/// Selects an existing Workspace.
pub async fn run(args: WorkspaceSelectArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    session.workspace(&args.name).await?;
    Choice { namespace: session.namespace.clone(), workspace: args.name.clone() }.write(&session.folder)?;
    style::say("Selected", &format!("workspace `{}` in namespace `{}`", args.name, session.namespace));
    Ok(ExitCode::SUCCESS)
}
