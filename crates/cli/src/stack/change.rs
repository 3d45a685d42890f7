//! `knoll stack apply`, `suspend` and `resume`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use knoll_api::Stack;
use knoll_api::names::{annotation, field_manager};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use super::get;
use crate::connect::{Connection, Explain};
use crate::run::follow;
use crate::workspace::Session;
use crate::{runs, style};

#[derive(clap::Args)]
pub struct StackChangeArgs {
    #[command(flatten)]
    connection: Connection,
    /// The name of the stack
    #[arg(add = crate::complete::stacks(), value_parser = crate::workspace::plain_name::<knoll_api::Stack>)]
    name: String,
}

/// The arguments of `knoll stack apply`.
#[derive(clap::Args)]
pub struct StackApplyArgs {
    #[command(flatten)]
    stack: StackChangeArgs,
    /// Follow the output until the run has finished
    #[arg(long, env = "KNOLL_FOLLOW")]
    follow: bool,
}

/// Requests a run of a Stack even if its revision is already applied.
pub async fn apply(args: StackApplyArgs, outer: &Connection) -> Result<ExitCode> {
    let StackApplyArgs { stack: StackChangeArgs { connection, name }, follow } = args;
    let session = Session::find(&connection.or(outer)).await?;
    let now = jiff::Timestamp::now().to_string();
    let asked = json!({"metadata": {"annotations": {annotation::RECONCILE: now}}});
    let stack = change(&session, &name, asked).await?;
    style::say("Requested", &format!("a run of stack `{name}`"));
    if stack.spec.suspend {
        style::hint_aside(&format!("The stack is suspended; `knoll stack resume {name}` resumes it."));
    } else if follow {
        let run = runs::get(&session, &next_run(&session, &stack).await?).await?;
        let name = run.name_any();
        return Ok(follow::exit(&follow::follow(&session, run).await?, &name));
    } else {
        style::hint_aside(&format!("`knoll stack show {name}` shows its progress."));
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the first run after the current last run, and returns its name.
async fn next_run(session: &Session, stack: &Stack) -> Result<String> {
    let last = |stack: &Stack| stack.status.as_ref().and_then(|status| status.last_run.clone());
    let (name, before) = (stack.name_any(), last(stack));
    let is_next = |found: Option<&Stack>| found.is_none_or(|found| last(found).is_some() && last(found) != before);
    let found = await_condition(session.api::<Stack>(), &name, is_next).await;
    let found = found.with_context(|| format!("cannot watch stack `{name}`"))?;
    found.as_ref().and_then(last).with_context(|| format!("stack `{name}` was deleted"))
}

/// Suspends or resumes a Stack.
pub async fn suspend(args: StackChangeArgs, suspend: bool, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    change(&session, &args.name, json!({"spec": {"suspend": suspend}})).await?;
    style::say(if suspend { "Suspended" } else { "Resumed" }, &format!("stack `{}`", args.name));
    Ok(ExitCode::SUCCESS)
}

async fn change(session: &Session, name: &str, mut patch: Value) -> Result<Stack> {
    let found = get(session, name).await?;
    // A Stack that names the last user to change its spec is changed under this user's name. One that does not may be
    // written by a GitOps controller, which could not change the spec beside the name of a user.
    if patch.get("spec").is_some() && knoll_core::stack::requested_by(&found).is_some() {
        patch["metadata"]["annotations"][annotation::REQUESTED_BY] = session.cluster.user().await?.into();
    }
    let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
    let changed = session.api::<Stack>().patch(name, &params, &Patch::Merge(patch)).await;
    changed.explain(&session.cluster, &format!("cannot update stack `{name}`"))
}
