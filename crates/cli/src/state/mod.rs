//! `knoll state`: what is kept of a Workspace's state, and terraform's own commands on it.

use std::process::ExitCode;

use anyhow::Result;

use crate::connect::Connection;
use crate::run::{self, RunArgs};

/// The arguments of `knoll state`.
#[derive(clap::Args)]
pub struct Args {
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
}

/// Runs the command.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let (words, args) = match args.command {
        Command::List(args) => ("state list", args),
        Command::Show(args) => ("state show", args),
        Command::Mv(args) => ("state mv", args),
        Command::Rm(args) => ("state rm", args),
        Command::ReplaceProvider(args) => ("state replace-provider", args),
    };
    run::run(words, args, None, outer).await
}
