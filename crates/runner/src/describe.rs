//! Runs `terraform show` on a plan: as JSON for the status and for hooks, as text for people who review it.

use std::fs::OpenOptions;
use std::io::{Error, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use bytes::Bytes;
use knoll_api::run::PlanSummary;
use knoll_api::sensitive::of_description;
use knoll_api::wire::LARGEST_PLAN_TEXT;
use serde_json::Value;

use crate::console::Console;
use crate::plan;
use crate::process::Program;
use crate::setup::Folders;

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
    let shown = show(&program).arg("-json").arg(folders.plan()).stdout(out).stderr(Stdio::piped()).spawn()?;
    let shown = shown.wait_with_output().await?;
    if !shown.status.success() {
        let words = console.message(&shown.stderr);
        return Err(Error::other(format!("`show -json` failed with {}\n{words}", shown.status)));
    }
    let description: Value = serde_json::from_slice(&std::fs::read(&part)?).map_err(unread)?;
    // A hook may print the plan.
    console.learn(&of_description(&description));
    let mut summary = plan::summarize(description, digest, changes).map_err(unread)?;
    for resource in &mut summary.resources {
        // The key of an instance can be a value that a Secret has and that the module does not call sensitive.
        resource.address = console.redact(&resource.address);
    }
    std::fs::rename(part, whole)?;
    Ok(summary)
}

/// The plan as terraform prints it for people, with sensitive values masked. The console has to know them already.
///
/// # Errors
/// If `show` fails; the message is short enough for a status.
pub async fn render(program: Program, folders: Folders, console: Console) -> Result<Bytes> {
    let shown = show(&program).arg(folders.plan()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let shown = shown.wait_with_output().await?;
    if !shown.status.success() {
        let words = console.message(&shown.stderr);
        return Err(Error::other(format!("`show` failed with {}\n{words}", shown.status)));
    }
    let text = console.redact(&String::from_utf8_lossy(&shown.stdout));
    Ok(cut(text, usize::try_from(LARGEST_PLAN_TEXT).unwrap_or(usize::MAX)).into())
}

/// Cuts a text to `limit` bytes, the last of which say that it was cut.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let notice = format!(
        "\n\nknoll: the plan is too long to be shown; its text has {} bytes, and these are the first.\n",
        text.len()
    );
    let end = (0..=limit.saturating_sub(notice.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text + &notice
}

/// The state as terraform describes it, wherever its backend keeps it.
///
/// # Errors
/// If `show -json` fails. The message has nothing that it printed.
pub async fn show_state(program: Program) -> Result<Value> {
    let shown =
        show(&program).arg("-json").stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?.wait_with_output().await?;
    if !shown.status.success() {
        return Err(Error::other(format!("`show -json` failed with {}", shown.status)));
    }
    serde_json::from_slice(&shown.stdout).map_err(unread)
}

fn show(program: &Program) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(&program.file);
    command
        .args(["show", "-no-color"])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_says_so_within_its_limit() {
        assert_eq!(cut("é".repeat(100), 200), "é".repeat(100));
        let text = cut("é".repeat(1000), 301);
        assert!(text.len() <= 301 && text.starts_with("éé") && text.contains("its text has 2000 bytes"), "{text}");
    }
}
