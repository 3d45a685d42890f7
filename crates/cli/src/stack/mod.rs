//! `knoll stack`: infrastructure that is declared, what it is up to, and how to make it move or hold still.

mod change;
mod graph;
pub mod list;
mod plan;
mod show;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use knoll_api::Stack;

use crate::connect::{Connection, Explain};
use crate::workspace::Place;

/// The arguments of `knoll stack`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the stacks of a namespace
    #[command(visible_alias = "ls")]
    List(crate::output::listing::Args),
    /// Show a stack: its revision, its runs, its drift, its outputs
    Show(show::Args),
    /// Plan a stack as it is declared now, and change nothing
    Plan(plan::Args),
    /// Ask for a run of a stack although nothing has changed
    Apply(change::ApplyArgs),
    /// Start no runs of a stack until it is resumed
    Suspend(change::Args),
    /// Let a stack go on
    Resume(change::Args),
    /// Show which stacks wait for which
    Graph(graph::Args),
}

/// Runs the command.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let outer = &args.connection.or(outer);
    match args.command {
        Command::List(args) => list::run(args, outer).await,
        Command::Show(args) => show::run(args, outer).await,
        Command::Plan(args) => plan::run(args, outer).await,
        Command::Apply(args) => change::apply(args, outer).await,
        Command::Suspend(args) => change::suspend(args, true, outer).await,
        Command::Resume(args) => change::suspend(args, false, outer).await,
        Command::Graph(args) => graph::run(args, outer).await,
    }
}

/// The Stack itself.
async fn get(place: &Place, name: &str) -> Result<Stack> {
    let found = place.api::<Stack>().get_opt(name).await;
    let found = found.explain(&place.cluster, &format!("cannot read the stack `{name}`"))?;
    if found.is_none() {
        place.check_installed().await?;
    }
    found.ok_or_else(|| {
        anyhow!(
            "there is no stack `{name}` in namespace `{}`\n  `knoll stack list` shows those that are there",
            place.namespace
        )
    })
}

/// A digest as people write it.
fn short(digest: Option<&str>) -> String {
    let hash = digest.unwrap_or_default();
    let hash = hash.strip_prefix("sha256:").unwrap_or(hash);
    hash.get(..7).unwrap_or(hash).to_owned()
}
