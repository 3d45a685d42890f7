//! `knoll state`: what is kept of a Workspace's state, and terraform's own commands on it.
//!
//! Reading needs no run. What changes the state is a run, and waits in the queue as any other.

mod diff;
mod history;
mod pull;
mod push;

use std::process::ExitCode;

use anyhow::Result;
use knoll_storage::states;

use crate::connect::{Connection, Explain};
use crate::run::{self, RunArgs};
use crate::workspace::Place;

/// The arguments of `knoll state`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the resources in the state
    List(RunArgs),
    /// Show one resource
    Show(RunArgs),
    /// Know a resource under another address
    Mv(RunArgs),
    /// Let go of a resource without destroying it
    Rm(RunArgs),
    /// Know resources as those of another provider
    ReplaceProvider(RunArgs),
    /// Print the state, or an earlier one that is kept
    Pull(pull::Args),
    /// Put a state from a file in the place of the one that is kept
    Push(push::PushArgs),
    /// List the states that are kept
    History(history::Args),
    /// Make an earlier state the current one
    Rollback(push::RollbackArgs),
    /// Compare two states that are kept
    Diff(diff::Args),
}

/// Runs the command.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let outer = &args.connection.or(outer);
    let (words, args) = match args.command {
        Command::List(args) => ("state list", args),
        Command::Show(args) => ("state show", args),
        Command::Mv(args) => ("state mv", args),
        Command::Rm(args) => ("state rm", args),
        Command::ReplaceProvider(args) => ("state replace-provider", args),
        Command::Pull(args) => return pull::run(args, outer).await,
        Command::Push(args) => return push::push(args, outer).await,
        Command::History(args) => return history::run(args, outer).await,
        Command::Rollback(args) => return push::rollback(args, outer).await,
        Command::Diff(args) => return diff::run(args, outer).await,
    };
    run::run(words, args, None, outer).await
}

/// Says what was tried when a state cannot be read or handed in.
fn explain<T>(result: Result<T, states::Error>, place: &Place, what: &str) -> Result<T> {
    match result {
        Err(states::Error::Api(error)) => Err(error).explain(&place.cluster, what),
        result => Ok(result?),
    }
}
