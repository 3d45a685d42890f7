//! `knoll workspace select`.

use std::process::ExitCode;

use anyhow::Result;

use super::Place;
use super::choice::Choice;
use crate::connect::Connection;
use crate::style;

/// The arguments of `knoll workspace select`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Its name
    #[arg(add = crate::complete::workspaces())]
    name: String,
}

/// Chooses a Workspace that is there.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    place.workspace(&args.name).await?;
    Choice { namespace: place.namespace.clone(), workspace: args.name.clone() }.write(&place.folder)?;
    style::say("Selected", &format!("workspace `{}` in namespace `{}`", args.name, place.namespace));
    Ok(ExitCode::SUCCESS)
}
