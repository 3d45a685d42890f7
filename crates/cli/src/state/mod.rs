//! `knoll state`: the stored states of a Workspace, and terraform's state commands.
//!
//! Reading a state needs no run. Changing it is a run, which waits in the queue like any other.

mod backups;
mod diff;
mod history;
mod pull;
mod push;

use std::process::ExitCode;

use anyhow::Result;

use crate::connect::{Connection, Explain};
use crate::run::{self, RunArgs};
use crate::workspace::Session;

/// The arguments of `knoll state`.
#[derive(clap::Args)]
pub struct StateArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List resources in the state
    List(RunArgs),
    /// Show a resource in the state
    Show(RunArgs),
    /// Move a resource to another address
    Mv(RunArgs),
    /// Remove a resource from the state without destroying it
    Rm(RunArgs),
    /// Replace the provider of resources in the state
    ReplaceProvider(RunArgs),
    /// Print the current state or an earlier version
    Pull(pull::StatePullArgs),
    /// Replace the current state with a local state file
    Push(push::StatePushArgs),
    /// List the stored state versions
    History(history::StateHistoryArgs),
    /// List the copies of states outside of the cluster
    Backups(backups::StateBackupsArgs),
    /// Roll back to an earlier state version
    Rollback(push::StateRollbackArgs),
    /// Compare two state versions
    Diff(diff::StateDiffArgs),
}

/// Runs the command.
pub async fn run(args: StateArgs, outer: &Connection) -> Result<ExitCode> {
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
        Command::Backups(args) => return backups::run(args, outer).await,
        Command::Rollback(args) => return push::rollback(args, outer).await,
        Command::Diff(args) => return diff::run(args, outer).await,
    };
    run::run(words, args.into(), outer).await
}

/// Adds the failed operation to an error of the state store.
pub(crate) fn explain<T>(result: Result<T, knoll_storage::Error>, session: &Session, what: &str) -> Result<T> {
    match result {
        Err(knoll_storage::Error::Api(error)) => Err(error).explain(&session.cluster, what),
        result => Ok(result?),
    }
}
