//! `knoll attach`: attaches to a run.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Run;
use knoll_storage::LogRange;
use kube::ResourceExt;

use super::follow::{self, Outcome};
use super::start;
use crate::connect::Connection;
use crate::workspace::Session;
use crate::{output, runs};

/// The arguments of `knoll attach`.
#[derive(clap::Args)]
pub struct AttachArgs {
    #[command(flatten)]
    connection: Connection,
    /// The run
    #[arg(add = crate::complete::runs(), value_parser = crate::workspace::plain_name::<knoll_api::Run>)]
    run: String,
}

/// Prints the run's output from the beginning, and follows it.
pub async fn run(args: AttachArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let run: Run = runs::get(&session, &args.run).await?;
    let name = run.name_any();
    start::announce(&session, &run);
    if run.status.as_ref().is_some_and(|status| status.phase.is_finished()) {
        // The pods of a finished run may be deleted; its log is stored.
        let log = session.storage().logs().read(&run, LogRange::WHOLE).await;
        if let Some(log) = log.ok().filter(|log| !log.is_empty()) {
            output::print(&String::from_utf8_lossy(&log))?;
            return Ok(follow::exit(&Outcome::Ended(Box::new(run)), &name));
        }
    }
    let outcome = follow::follow(&session, run).await?;
    Ok(follow::exit(&outcome, &name))
}
