//! Lets terraform describe a plan: for the status, and as a file for hooks.

use std::fs::OpenOptions;
use std::io::{Error, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use knoll_api::run::PlanSummary;

use crate::console::Console;
use crate::plan;
use crate::process::Program;
use crate::setup::Folders;

/// Describes a plan that changes something, or not. Its file is there as a whole or not at all.
///
/// # Errors
/// With terraform's words, when it does not describe it; they fit into a status.
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
        return Err(Error::other(format!("`show -json` ended with {}\n{words}", shown.status)));
    }
    // What the error itself says may hold a value of the plan.
    let unread = |error: serde_json::Error| {
        Error::other(format!(
            "`show -json` printed what is no plan, at line {} column {}",
            error.line(),
            error.column()
        ))
    };
    let summary = plan::summarize(&std::fs::read(&part)?, digest, changes).map_err(unread)?;
    std::fs::rename(part, whole)?;
    Ok(summary)
}
