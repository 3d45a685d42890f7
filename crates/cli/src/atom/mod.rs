//! `knoll atom`: sets of Kubernetes objects that are updated as one transaction.

mod apply;
mod change;
mod diff;
mod files;
mod history;
mod list;
mod status;
mod wait;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use knoll_api::Atom;

use crate::connect::{Connection, Explain};
use crate::workspace::Place;

/// The arguments of `knoll atom`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make the objects of a folder the next version of an atom
    #[command(after_help = wait::CODES)]
    Apply(apply::Args),
    /// Show what the objects of a folder would change; 1 when that is something
    Diff(diff::Args),
    /// Show an atom: its phase, its objects and what is missing
    #[command(after_help = wait::CODES)]
    Status(status::Args),
    /// Stop the update that is under way, and undo it
    #[command(after_help = wait::CODES)]
    Cancel(change::CancelArgs),
    /// Go back to an earlier version, the last good one if none is named
    #[command(after_help = wait::CODES)]
    Rollback(change::RollbackArgs),
    /// List the versions of an atom
    History(history::Args),
    /// List the atoms of a namespace
    #[command(visible_alias = "ls")]
    List(crate::output::listing::Args),
}

/// Runs the command.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    match args.command {
        Command::Apply(args) => apply::run(args, outer).await,
        Command::Diff(args) => diff::run(args, outer).await,
        Command::Status(args) => status::run(args, outer).await,
        Command::Cancel(args) => change::cancel(args, outer).await,
        Command::Rollback(args) => change::rollback(args, outer).await,
        Command::History(args) => history::run(args, outer).await,
        Command::List(args) => list::run(args, outer).await,
    }
}

/// The Atom itself.
async fn get(place: &Place, name: &str) -> Result<Atom> {
    let found = place.api::<Atom>().get_opt(name).await;
    let found = found.explain(&place.cluster, &format!("cannot read the atom `{name}`"))?;
    if found.is_none() {
        place.check_installed().await?;
    }
    found.ok_or_else(|| {
        anyhow!(
            "there is no atom `{name}` in namespace `{}`\n  `knoll atom list` shows those that are there",
            place.namespace
        )
    })
}
