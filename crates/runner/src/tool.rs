//! Finds terraform or tofu in the image and holds it to the version that the Workspace asks for.
//!
//! Asking the program for its version costs as much as a small plan, so it is not asked: the wanted version is written into
//! the module as a constraint, which `init` checks anyway. Only when that fails is the program asked, to say what to do.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use knoll_api::workspace::Tool;
use serde::Deserialize;

use crate::process::Program;

/// Why there is no usable program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not in the image.
    #[error(
        "there is no `{0}` in the run's image; set the Workspace's `spec.image` to an image that has it on its PATH"
    )]
    Missing(&'static str),
    /// It is of another version.
    #[error(
        "the Workspace asks for {tool} {wanted}, but the run's image has {found}; set `spec.version` to {found}, or \
         `spec.image` to an image with {wanted}"
    )]
    Version {
        /// The program.
        tool: &'static str,
        /// What the Workspace asks for.
        wanted: String,
        /// What the program says it is.
        found: String,
    },
}

/// The program's file, looked for as a shell would in `path`.
///
/// # Errors
/// When there is none.
pub fn find(tool: Tool, path: &OsStr) -> Result<PathBuf, Error> {
    let executable =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    std::env::split_paths(path)
        .map(|folder| folder.join(tool.program()))
        .find(executable)
        .ok_or(Error::Missing(tool.program()))
}

/// The constraint that only the wanted version meets, as `required_version` has it.
///
/// `1.11.4` is that version, `1.11` any of its patches; anything else is a constraint already.
pub fn constraint(wanted: &str) -> String {
    let wanted = wanted.trim().trim_start_matches('v');
    let parts: Vec<&str> = wanted.split('.').collect();
    let numbers = parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    match (numbers, parts.len()) {
        (true, 1) => format!("~> {wanted}.0"),
        (true, 2) => format!("~> {wanted}.0"),
        (true, _) => format!("= {wanted}"),
        (false, _) if wanted.starts_with(|c: char| c.is_ascii_digit()) => format!("= {wanted}"),
        (false, _) => wanted.to_owned(),
    }
}

/// Asks the program for its version and compares.
///
/// A program that cannot tell is left alone: what it is used for will say more about it.
///
/// # Errors
/// When it is another version.
pub async fn check(tool: Tool, wanted: &str, program: &Program) -> Result<(), Error> {
    let Some(found) = version(program).await else {
        return Ok(());
    };
    if meets(wanted, &found) {
        return Ok(());
    }
    Err(Error::Version { tool: tool.program(), wanted: wanted.to_owned(), found })
}

/// Whether a failure of `init` may be one of the version.
pub fn is_version_failure(message: &str) -> bool {
    message.contains("Unsupported") && message.contains("Core version")
}

#[derive(Deserialize)]
struct Version {
    terraform_version: String,
}

async fn version(program: &Program) -> Option<String> {
    let output = tokio::process::Command::new(&program.file)
        .args(["version", "-json"])
        .env_clear()
        .envs(&program.env)
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    serde_json::from_slice::<Version>(&output.stdout).ok().map(|version| version.terraform_version)
}

/// Only exact versions and their beginnings are compared; a constraint is left to the program itself.
fn meets(wanted: &str, found: &str) -> bool {
    let wanted = wanted.trim().trim_start_matches('v');
    let is_version = wanted.starts_with(|c: char| c.is_ascii_digit());
    let parts = wanted.split('.').count();
    !is_version
        || wanted == found
        || (parts < 3 && found.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.')))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn constraints_and_what_meets_them() {
        let rows = [
            ("1.11.4", "= 1.11.4", "1.11.4", true),
            ("v1.11.4", "= 1.11.4", "1.11.4", true),
            ("1.11.4", "= 1.11.4", "1.11.5", false),
            ("1.11", "~> 1.11.0", "1.11.5", true),
            ("1.11", "~> 1.11.0", "1.1.15", false),
            ("1", "~> 1.0", "1.9.0", true),
            ("1.12.0-rc1", "= 1.12.0-rc1", "1.12.0-rc1", true),
            ("~> 1.9", "~> 1.9", "1.2.0", true),
        ];
        for (wanted, expect, found, met) in rows {
            assert_eq!(constraint(wanted), expect, "{wanted}");
            assert_eq!(meets(wanted, found), met, "{wanted} and {found}");
        }
    }

    #[test]
    fn a_missing_program_says_what_to_do() {
        let empty = tempfile::tempdir().unwrap();
        fs::write(empty.path().join("tofu"), "not executable").unwrap();
        let error = find(Tool::Tofu, empty.path().as_os_str()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no `tofu` in the run's image; set the Workspace's `spec.image` to an image that has it on its PATH"
        );
    }
}
