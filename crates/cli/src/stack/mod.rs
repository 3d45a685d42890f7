//! `knoll stack`: inspects, applies, suspends and resumes Stacks.

mod change;
mod graph;
pub mod list;
mod plan;
mod show;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use knoll_api::Stack;

use crate::connect::{Connection, Explain, Role};
use crate::workspace::Session;

/// The arguments of `knoll stack`.
#[derive(clap::Args)]
pub struct StackArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List stacks
    #[command(visible_alias = "ls")]
    List(crate::output::listing::ListArgs),
    /// Show the revision, the runs, the drift and the outputs of a stack
    Show(show::StackShowArgs),
    /// Plan the current revision of a stack without applying it
    Plan(plan::StackPlanArgs),
    /// Request a run of a stack, even if nothing has changed
    Apply(change::StackApplyArgs),
    /// Suspend a stack: start no runs until it is resumed
    Suspend(change::StackChangeArgs),
    /// Resume a suspended stack
    Resume(change::StackChangeArgs),
    /// Show the dependencies between stacks
    Graph(graph::StackGraphArgs),
}

impl StackArgs {
    /// See [`crate::cli::Command::role`].
    pub fn role(&self) -> Role {
        match &self.command {
            Command::Apply(_) | Command::Suspend(_) | Command::Resume(_) => Role::Editor,
            Command::Plan(_) => Role::User,
            Command::List(_) | Command::Show(_) | Command::Graph(_) => Role::Viewer,
        }
    }
}

/// Runs the command.
pub async fn run(args: StackArgs, outer: &Connection) -> Result<ExitCode> {
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

async fn get(session: &Session, name: &str) -> Result<Stack> {
    let found = session.api::<Stack>().get_opt(name).await;
    let found = found.explain(&session.cluster, &format!("cannot read stack `{name}`"))?;
    if found.is_none() {
        session.check_installed().await?;
    }
    found.ok_or_else(|| {
        anyhow!("stack `{name}` not found in namespace `{}`\n  list stacks with `knoll stack list`", session.namespace)
    })
}

/// The first characters of a digest.
fn short(digest: Option<&str>) -> String {
    let hash = digest.unwrap_or_default();
    let hash = hash.strip_prefix("sha256:").unwrap_or(hash);
    hash.get(..7).unwrap_or(hash).to_owned()
}
