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
use crate::workspace::Place;
use crate::{runs, style};

/// The arguments of commands that change a Stack.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Its name
    #[arg(add = crate::complete::stacks())]
    name: String,
}

/// The arguments of `knoll stack apply`.
#[derive(clap::Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    stack: Args,
    /// Stay until the run has ended, and print what it prints
    #[arg(long, env = "KNOLL_FOLLOW")]
    follow: bool,
}

/// Asks for a run of a Stack although nothing has changed.
pub async fn apply(args: ApplyArgs, outer: &Connection) -> Result<ExitCode> {
    let ApplyArgs { stack: Args { connection, name }, follow } = args;
    let place = Place::find(&connection.or(outer)).await?;
    let now = jiff::Timestamp::now().to_string();
    let asked = json!({"metadata": {"annotations": {annotation::RECONCILE: now}}});
    let stack = change(&place, &name, asked).await?;
    style::say("Asked", &format!("for a run of stack `{name}`"));
    if stack.spec.suspend {
        style::hint_aside(&format!("It is suspended; `knoll stack resume {name}` lets it go on."));
    } else if follow {
        let run = runs::get(&place, &next_run(&place, &stack).await?).await?;
        let name = run.name_any();
        return Ok(follow::exit(&follow::follow(&place, run).await?, &name));
    } else {
        style::hint_aside(&format!("`knoll stack show {name}` shows what it is up to."));
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the run that comes after the last one of the Stack; its name.
async fn next_run(place: &Place, stack: &Stack) -> Result<String> {
    let last = |stack: &Stack| stack.status.as_ref().and_then(|status| status.last_run.clone());
    let (name, before) = (stack.name_any(), last(stack));
    let is_next = |found: Option<&Stack>| found.is_none_or(|found| last(found).is_some() && last(found) != before);
    let found = await_condition(place.api::<Stack>(), &name, is_next).await;
    let found = found.with_context(|| format!("cannot wait for the run of stack `{name}`"))?;
    found.as_ref().and_then(last).with_context(|| format!("the stack `{name}` was deleted"))
}

/// Lets a Stack start no runs, or go on.
pub async fn suspend(args: Args, suspend: bool, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    change(&place, &args.name, json!({"spec": {"suspend": suspend}})).await?;
    style::say(if suspend { "Suspended" } else { "Resumed" }, &format!("stack `{}`", args.name));
    Ok(ExitCode::SUCCESS)
}

async fn change(place: &Place, name: &str, patch: Value) -> Result<Stack> {
    get(place, name).await?;
    let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
    let changed = place.api::<Stack>().patch(name, &params, &Patch::Merge(patch)).await;
    changed.explain(&place.cluster, &format!("cannot change the stack `{name}`"))
}
