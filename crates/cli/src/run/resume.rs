//! `knoll attach`: comes back to a run.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Run;
use kube::ResourceExt;

use super::follow;
use crate::connect::Connection;
use crate::runs;
use crate::workspace::Place;

/// The arguments of `knoll attach`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// The run
    #[arg(add = crate::complete::runs())]
    run: String,
}

/// Prints what the run has printed, and goes on from there.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let run: Run = runs::get(&place, &args.run).await?;
    let name = run.name_any();
    let outcome = follow::follow(&place, run).await?;
    Ok(follow::exit(&outcome, &name))
}
