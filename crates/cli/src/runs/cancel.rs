//! `knoll cancel`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;

use crate::connect::Connection;
use crate::output::time;
use crate::run::stop;
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll cancel`.
#[derive(clap::Args)]
pub struct RunCancelArgs {
    #[command(flatten)]
    connection: Connection,
    /// The runs to cancel
    #[arg(required = true, add = crate::complete::runs(), value_parser = crate::workspace::plain_name::<knoll_api::Run>)]
    runs: Vec<String>,
    /// Kill terraform instead of letting it finish the operation in progress
    #[arg(long, env = "KNOLL_NOW")]
    now: bool,
}

/// Requests the cancellation of the runs.
pub async fn run(args: RunCancelArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    for name in &args.runs {
        let run = super::get(&session, name).await?;
        let by = knoll_core::run::requested_by(&run).map(|by| format!("started by {by}, ")).unwrap_or_default();
        let started = format!(" ({by}{} ago)", time::age(run.metadata.creation_timestamp.as_ref(), Timestamp::now()));
        let phase = run.status.unwrap_or_default().phase;
        if phase.is_finished() {
            style::say("Already finished:", &format!("run `{name}` ({})", phase.as_str()));
            continue;
        }
        stop::cancel(&session, name, args.now).await?;
        style::say("Cancelling", &format!("run `{name}`{started}; `knoll attach {name}` follows it"));
    }
    Ok(ExitCode::SUCCESS)
}
