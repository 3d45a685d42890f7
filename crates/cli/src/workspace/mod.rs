//! `knoll workspace`: manages Workspaces, and selects the one that a directory uses.

pub mod choice;
mod delete;
mod edit;
mod list;
mod new;
mod select;
mod session;
mod show;

use std::process::ExitCode;

use anyhow::Result;

pub use session::{Session, WorkspaceArg, plain_name};

use crate::connect::{Connection, Role};

/// The arguments of `knoll workspace`.
#[derive(clap::Args)]
pub struct WorkspaceArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a workspace and select it in this directory
    New(new::WorkspaceNewArgs),
    /// List workspaces
    #[command(visible_alias = "ls")]
    List(crate::output::listing::ListArgs),
    /// Select the workspace that this directory uses
    Select(select::WorkspaceSelectArgs),
    /// Show the state, the queue and the outputs of a workspace
    Show(show::WorkspaceShowArgs),
    /// Delete a workspace
    Delete(delete::WorkspaceDeleteArgs),
    /// Edit the spec of a workspace in an editor
    Edit(edit::WorkspaceEditArgs),
}

impl WorkspaceArgs {
    /// See [`crate::cli::Command::role`].
    pub fn role(&self) -> Role {
        match &self.command {
            Command::New(_) | Command::Edit(_) | Command::Delete(_) => Role::Editor,
            Command::List(_) | Command::Select(_) | Command::Show(_) => Role::Viewer,
        }
    }
}

/// Runs the command.
pub async fn run(args: WorkspaceArgs, outer: &Connection) -> Result<ExitCode> {
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
