//! `knoll workspace`: the states and queues that runs work with, and which of them a folder uses.

pub mod choice;
mod delete;
mod edit;
mod list;
mod new;
mod place;
mod select;
mod show;

use std::process::ExitCode;

use anyhow::Result;

pub use place::{Place, WorkspaceArg};

use crate::connect::Connection;

/// The arguments of `knoll workspace`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a workspace, and use it in this folder
    New(new::Args),
    /// List the workspaces of a namespace
    #[command(visible_alias = "ls")]
    List(crate::output::listing::Args),
    /// Use a workspace in this folder
    Select(select::Args),
    /// Show a workspace: its state, its queue, its outputs
    Show(show::Args),
    /// Delete a workspace
    Delete(delete::Args),
    /// Change the settings of a workspace in an editor
    Edit(edit::Args),
}

/// Runs the command.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let outer = &args.connection.or(outer);
    match args.command {
        Command::New(args) => new::run(args, outer).await,
        Command::List(args) => list::run(args, outer).await,
        Command::Select(args) => select::run(args, outer).await,
        Command::Show(args) => show::run(args, outer).await,
        Command::Delete(args) => delete::run(args, outer).await,
        Command::Edit(args) => edit::run(args, outer).await,
    }
}
