//! `knoll cancel`.

use std::process::ExitCode;

use anyhow::Result;

use crate::connect::Connection;
use crate::run::stop;
use crate::style;
use crate::workspace::Place;

/// The arguments of `knoll cancel`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// The runs
    #[arg(required = true, add = crate::complete::runs())]
    runs: Vec<String>,
    /// Do not let terraform finish what is under way
    #[arg(long, env = "KNOLL_NOW")]
    now: bool,
}

/// Asks for the runs to be stopped.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    for name in &args.runs {
        let run = super::get(&place, name).await?;
        let phase = run.status.unwrap_or_default().phase;
        if phase.is_finished() {
            style::say("Ended already:", &format!("run `{name}` ({})", phase.as_str()));
            continue;
        }
        stop::cancel(&place, name, args.now).await?;
        style::say("Cancelling", &format!("run `{name}`; `knoll attach {name}` shows its end"));
    }
    Ok(ExitCode::SUCCESS)
}
