//! Runs `terraform show -json` on a plan, for the status and for hooks.

use std::fs::OpenOptions;
use std::io::{Error, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use knoll_api::run::PlanSummary;

use crate::console::Console;
use crate::plan;
use crate::process::Program;
use crate::setup::Folders;

/// Summarizes a plan. Its JSON file is written atomically.
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
    let shown = tokio::process::Command::new(&program.file)
        .args(["show", "-json", "-no-color"])
        .arg(folders.plan())
        .env_clear()
        .envs(&program.env)
        .current_dir(&program.folder)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?
        .wait_with_output()
        .await?;
    if !shown.status.success() {
        let words = console.message(&shown.stderr);
        return Err(Error::other(format!("`show -json` failed with {}\n{words}", shown.status)));
    }
    // The parser's own message could contain a value of the plan.
    let unread = |error: serde_json::Error| {
        Error::other(format!(
            "`show -json` printed an invalid plan, at line {} column {}",
            error.line(),
            error.column()
        ))
    };
    let summary = plan::summarize(&std::fs::read(&part)?, digest, changes).map_err(unread)?;
    std::fs::rename(part, whole)?;
    Ok(summary)
}
