//! `knoll policy`: lists Policies, explains what they demand of a Workspace, and tests their rules on plans.

mod earlier;
mod explain;
mod list;
mod test;

use std::process::ExitCode;

use anyhow::Result;

use crate::connect::Connection;

/// The arguments of `knoll policy`.
#[derive(clap::Args)]
pub struct PolicyArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the policies of the cluster
    #[command(visible_alias = "ls")]
    List(list::PolicyListArgs),
    /// Show the rules that apply to a workspace, and the objects that they come from
    Explain(explain::PolicyExplainArgs),
    /// Evaluate the rules of a policy on plans: files, or those of earlier runs
    Test(test::PolicyTestArgs),
}

/// Runs the command.
pub async fn run(args: PolicyArgs, outer: &Connection) -> Result<ExitCode> {
    let outer = &args.connection.or(outer);
    match args.command {
        Command::List(args) => list::run(args, outer).await,
        Command::Explain(args) => explain::run(args, outer).await,
        Command::Test(args) => test::run(args, outer).await,
    }
}
