//! `knoll atom`: updates sets of Kubernetes objects as one transaction.

mod apply;
mod change;
mod diff;
mod files;
mod history;
mod list;
mod places;
mod status;
mod wait;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use knoll_api::Atom;

use crate::connect::{Connection, Explain, Role};
use crate::workspace::Session;

/// The arguments of `knoll atom`.
#[derive(clap::Args)]
pub struct AtomArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Update an atom to the objects of a directory or file
    #[command(after_help = wait::CODES)]
    Apply(apply::AtomApplyArgs),
    /// Show what an update would change; exits with 1 if there are changes
    Diff(diff::AtomDiffArgs),
    /// Show the phase and the objects of an atom
    #[command(visible_alias = "show", after_help = wait::CODES)]
    Status(status::AtomStatusArgs),
    /// Cancel the update in progress and roll it back, or end the rollback in progress
    #[command(after_help = wait::CODES)]
    Cancel(change::AtomCancelArgs),
    /// Roll back to an earlier version
    #[command(after_help = wait::CODES)]
    Rollback(change::AtomRollbackArgs),
    /// List the versions of an atom
    History(history::AtomHistoryArgs),
    /// List atoms
    #[command(visible_alias = "ls")]
    List(crate::output::listing::ListArgs),
}

impl AtomArgs {
    /// See [`crate::cli::Command::role`].
    pub fn role(&self) -> Role {
        match &self.command {
            Command::Apply(_) | Command::Cancel(_) | Command::Rollback(_) => Role::Editor,
            Command::Diff(_) | Command::Status(_) | Command::History(_) | Command::List(_) => Role::Viewer,
        }
    }
}

/// Runs the command.
pub async fn run(args: AtomArgs, outer: &Connection) -> Result<ExitCode> {
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

async fn get(session: &Session, name: &str) -> Result<Atom> {
    let found = session.api::<Atom>().get_opt(name).await;
    let found = found.explain(&session.cluster, &format!("cannot read atom `{name}`"))?;
    if found.is_none() {
        session.check_installed().await?;
    }
    found.ok_or_else(|| {
        anyhow!("atom `{name}` not found in namespace `{}`\n  list atoms with `knoll atom list`", session.namespace)
    })
}
