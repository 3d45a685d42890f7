//! `knoll stack apply`, `suspend` and `resume`.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Stack;
use knoll_api::names::{annotation, field_manager};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::get;
use crate::connect::{Connection, Explain};
use crate::style;
use crate::workspace::Place;

/// The arguments of commands that change a Stack.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Its name
    #[arg(add = crate::complete::stacks())]
    name: String,
}

/// Asks for a run of a Stack although nothing has changed.
pub async fn apply(args: Args, outer: &Connection) -> Result<ExitCode> {
    let now = jiff::Timestamp::now().to_string();
    let asked = json!({"metadata": {"annotations": {annotation::RECONCILE: now}}});
    let stack = change(&args, outer, asked).await?;
    style::say("Asked", &format!("for a run of stack `{}`", args.name));
    if stack.spec.suspend {
        style::hint_aside(&format!("It is suspended; `knoll stack resume {}` lets it go on.", args.name));
    } else {
        style::hint_aside(&format!("`knoll stack show {}` shows what it is up to.", args.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets a Stack start no runs, or go on.
pub async fn suspend(args: Args, suspend: bool, outer: &Connection) -> Result<ExitCode> {
    change(&args, outer, json!({"spec": {"suspend": suspend}})).await?;
    style::say(if suspend { "Suspended" } else { "Resumed" }, &format!("stack `{}`", args.name));
    Ok(ExitCode::SUCCESS)
}

async fn change(args: &Args, outer: &Connection, patch: Value) -> Result<Stack> {
    let place = Place::find(&args.connection.clone().or(outer)).await?;
    get(&place, &args.name).await?;
    let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
    let changed = place.api::<Stack>().patch(&args.name, &params, &Patch::Merge(patch)).await;
    changed.explain(&place.cluster, &format!("cannot change the stack `{}`", args.name))
}
