//! `knoll state push` and `knoll state rollback`: Runs that replace the current state.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use knoll_storage::states;
use kube::ResourceExt;

use crate::connect::Connection;
use crate::run::{follow, start, stop};
use crate::style;
use crate::workspace::{Session, WorkspaceArg};

/// The arguments of `knoll state push`.
#[derive(clap::Args)]
pub struct StatePushArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    /// Push even if the state has an older serial or another lineage
    #[arg(long, env = "KNOLL_FORCE")]
    force: bool,
    /// The state file, or `-` for standard input
    file: PathBuf,
}

/// The arguments of `knoll state rollback`.
#[derive(clap::Args)]
pub struct StateRollbackArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    /// Do not ask for confirmation
    #[arg(long, short, env = "KNOLL_YES")]
    yes: bool,
    /// The serial of the state version, as listed by `knoll state history`
    serial: u64,
}

/// Starts a Run that replaces the state with the file.
pub async fn push(args: StatePushArgs, outer: &Connection) -> Result<ExitCode> {
    let state = if args.file.as_os_str() == "-" {
        let mut state = Vec::new();
        std::io::stdin().read_to_end(&mut state).context("cannot read standard input")?;
        state
    } else {
        std::fs::read(&args.file).with_context(|| format!("cannot read `{}`", args.file.display()))?
    };
    let session = Session::find(&args.connection.or(outer)).await?;
    let workspace = session.workspace_name(&args.workspace)?;
    session.workspace(&workspace).await?;
    check(&state, &args.file)?;
    let run = start::create(&session, "state-push", states::push(&workspace, &state, args.force)).await?;
    let name = run.name_any();
    if let Err(error) = session.storage().uploads().put(&run, &state).await {
        // A Run without an uploaded state has nothing to push, and must not block the queue.
        let _ = stop::cancel(&session, &name, false).await;
        return super::explain(Err(error), &session, &format!("cannot upload the state of workspace `{workspace}`"));
    }
    start::announce(&session, &run);
    Ok(follow::exit(&follow::follow(&session, run).await?, &name))
}

/// Rejects a file that is not a state before a Run is queued.
fn check(state: &[u8], file: &std::path::Path) -> Result<()> {
    let known: Option<serde_json::Value> = serde_json::from_slice(state).ok();
    if known.is_some_and(|state| state["serial"].is_u64() && state["lineage"].is_string()) {
        return Ok(());
    }
    bail!("`{}` is not a terraform state file\n  `knoll state pull` prints the current one", file.display())
}

/// Starts a Run that makes an earlier state version the current one.
pub async fn rollback(args: StateRollbackArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let workspace = session.workspace_name(&args.workspace)?;
    // Rejects a serial that is not stored before a Run is queued.
    super::pull::read(&session, &workspace, Some(args.serial)).await?;
    if !args.yes {
        if !style::can_ask() {
            bail!(
                "`knoll state rollback` asks for confirmation, and there is no terminal\n  add `--yes` to roll back the state"
            );
        }
        style::hint_aside("This changes only the state, not the infrastructure; `knoll plan` shows the difference.");
        if !style::confirm(&format!("Roll back the state of workspace `{workspace}` to serial {}?", args.serial))? {
            bail!("the state of workspace `{workspace}` was not changed");
        }
    }
    let run = start::create(&session, "state-rollback", states::rollback(&workspace, args.serial)).await?;
    let name = run.name_any();
    start::announce(&session, &run);
    let outcome = follow::follow(&session, run).await?;
    if outcome.succeeded() {
        style::say("Restored", &format!("serial {} as the state of workspace `{workspace}`", args.serial));
    }
    Ok(follow::exit(&outcome, &name))
}
