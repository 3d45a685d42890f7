//! Runs `terraform show -json` on a plan, for the status and for hooks.

use std::fs::OpenOptions;
use std::io::{Error, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use knoll_api::run::PlanSummary;
use serde_json::Value;

use crate::console::Console;
use crate::process::Program;
use crate::setup::Folders;
use crate::{plan, sensitive};

/// Summarizes a plan. Its JSON file is written atomically, after the console has learned its sensitive values.
///
/// # Errors
/// If `show -json` fails; the message is short enough for a status.
pub async fn describe(
    program: Program,
    folders: Folders,
    console: Console,
    digest: String,
    changes: bool,
) -> Result<PlanSummary> {
    let (whole, part) = (folders.plan_json(), folders.plan_json().with_extension("part"));
    let out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    let shown = show(&program).arg(folders.plan()).stdout(out).stderr(Stdio::piped()).spawn()?;
    let shown = shown.wait_with_output().await?;
    if !shown.status.success() {
        let words = console.message(&shown.stderr);
        return Err(Error::other(format!("`show -json` failed with {}\n{words}", shown.status)));
    }
    let description: Value = serde_json::from_slice(&std::fs::read(&part)?).map_err(unread)?;
    // A hook may print the plan.
    console.learn(&sensitive::of_description(&description));
    let summary = plan::summarize(description, digest, changes).map_err(unread)?;
    std::fs::rename(part, whole)?;
    Ok(summary)
}

/// The state as terraform describes it, wherever its backend keeps it.
///
/// # Errors
/// If `show -json` fails. The message has nothing that it printed.
pub async fn show_state(program: Program) -> Result<Value> {
    let shown = show(&program).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?.wait_with_output().await?;
    if !shown.status.success() {
        return Err(Error::other(format!("`show -json` failed with {}", shown.status)));
    }
    serde_json::from_slice(&shown.stdout).map_err(unread)
}

fn show(program: &Program) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(&program.file);
    command
        .args(["show", "-json", "-no-color"])
        .env_clear()
        .envs(&program.env)
        .current_dir(&program.folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// The parser's own message could contain a value.
fn unread(error: serde_json::Error) -> Error {
    Error::other(format!("`show -json` printed invalid JSON, at line {} column {}", error.line(), error.column()))
}
