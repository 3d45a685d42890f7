//! `knoll cancel`.

use std::process::ExitCode;

use anyhow::Result;

use crate::connect::Connection;
use crate::run::stop;
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll cancel`.
#[derive(clap::Args)]
pub struct RunCancelArgs {
    #[command(flatten)]
    connection: Connection,
    /// The runs to cancel
    #[arg(required = true, add = crate::complete::runs())]
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
        let phase = run.status.unwrap_or_default().phase;
        if phase.is_finished() {
            style::say("Already finished:", &format!("run `{name}` ({})", phase.as_str()));
            continue;
        }
        stop::cancel(&session, name, args.now).await?;
        style::say("Cancelling", &format!("run `{name}`; `knoll attach {name}` follows it"));
    }
    Ok(ExitCode::SUCCESS)
}
