//! `knoll attach`: comes back to a run.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Run;
use knoll_storage::logs::{self, Range};
use kube::ResourceExt;

use super::follow::{self, Outcome};
use crate::connect::Connection;
use crate::workspace::Place;
use crate::{output, runs};

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
    if run.status.as_ref().is_some_and(|status| status.phase.is_finished()) {
        // Its pods may be gone; what they printed is kept.
        let log = logs::read(&place.cluster.client, &place.namespace, &name, Range::WHOLE).await;
        if let Some(log) = log.ok().filter(|log| !log.is_empty()) {
            output::print(&String::from_utf8_lossy(&log))?;
            return Ok(follow::exit(&Outcome::Ended(Box::new(run)), &name));
        }
    }
    let outcome = follow::follow(&place, run).await?;
    Ok(follow::exit(&outcome, &name))
}
