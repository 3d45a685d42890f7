//! `knoll state push` and `knoll state rollback`: runs that put another state in the place of the current one.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use knoll_storage::states;
use kube::ResourceExt;

use crate::connect::Connection;
use crate::run::{follow, start, stop};
use crate::style;
use crate::workspace::{Place, WorkspaceArg};

/// The arguments of `knoll state push`.
#[derive(clap::Args)]
pub struct PushArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    /// Take it although it is older than the current state, or of another lineage
    #[arg(long, env = "KNOLL_FORCE")]
    force: bool,
    /// The file; `-` reads standard input
    file: PathBuf,
}

/// The arguments of `knoll state rollback`.
#[derive(clap::Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    /// Do not ask
    #[arg(long, short, env = "KNOLL_YES")]
    yes: bool,
    /// The serial of the state to go back to, as `knoll state history` lists it
    serial: u64,
}

/// Starts a run that takes the file as the state.
pub async fn push(args: PushArgs, outer: &Connection) -> Result<ExitCode> {
    let state = if args.file.as_os_str() == "-" {
        let mut state = Vec::new();
        std::io::stdin().read_to_end(&mut state).context("cannot read standard input")?;
        state
    } else {
        std::fs::read(&args.file).with_context(|| format!("cannot read `{}`", args.file.display()))?
    };
    let place = Place::find(&args.connection.or(outer)).await?;
    let workspace = place.workspace_name(&args.workspace)?;
    place.workspace(&workspace).await?;
    check(&state, &args.file)?;
    let run = start::create(&place, "state-push", states::push(&workspace, args.force)).await?;
    let name = run.name_any();
    if let Err(error) = states::hand_in(&place.cluster.client, &run, &state).await {
        // Without its state the run has nothing to push; it must not hold up the queue.
        let _ = stop::cancel(&place, &name, false).await;
        return super::explain(Err(error), &place, &format!("cannot hand in the state of `{workspace}`"));
    }
    Ok(follow::exit(&follow::follow(&place, run).await?, &name))
}

/// What is no state is told here, before anything waits in a queue.
fn check(state: &[u8], file: &std::path::Path) -> Result<()> {
    let known: Option<serde_json::Value> = serde_json::from_slice(state).ok();
    if known.is_some_and(|state| state["serial"].is_u64() && state["lineage"].is_string()) {
        return Ok(());
    }
    bail!("`{}` is no state of terraform's\n  `knoll state pull` prints one as it has to be", file.display())
}

/// Starts a run that makes an earlier state the current one.
pub async fn rollback(args: RollbackArgs, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let workspace = place.workspace_name(&args.workspace)?;
    // A serial that is not kept is told here, before anything waits in a queue.
    super::pull::read(&place, &workspace, Some(args.serial)).await?;
    if !args.yes {
        if !style::can_ask() {
            bail!(
                "`knoll state rollback` asks first, and there is no terminal to ask on\n  add `--yes` if the state may change"
            );
        }
        style::hint_aside(
            "What exists does not change, only what terraform knows of it; `knoll plan` shows the difference.",
        );
        if !style::confirm(&format!("Make serial {} the state of workspace `{workspace}` again?", args.serial))? {
            bail!("the state of `{workspace}` was not changed");
        }
    }
    let run = start::create(&place, "state-rollback", states::rollback(&workspace, args.serial)).await?;
    let name = run.name_any();
    let outcome = follow::follow(&place, run).await?;
    if outcome.succeeded() {
        style::say("Restored", &format!("serial {} as the state of workspace `{workspace}`", args.serial));
    }
    Ok(follow::exit(&outcome, &name))
}
