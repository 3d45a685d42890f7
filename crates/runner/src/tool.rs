//! Finds terraform or tofu in the image, and checks its version.
//!
//! Running `terraform version` costs as much as a small plan. The requested version is written into the module as a
//! constraint instead, which `init` checks anyway. Only if `init` fails is the program asked for its version, to give a
//! better message.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use knoll_api::workspace::Tool;
use serde::Deserialize;

use crate::process::Program;

/// Where the tool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSource {
    /// The image of the pod.
    Image,
    /// The PATH of the machine, as on the embedded cluster, which has no images.
    Machine,
}

/// Why the tool cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The image does not contain it.
    #[error("`{0}` not found in the run's image; set the Workspace's `spec.image` to an image that has it on its PATH")]
    Missing(&'static str),
    /// The machine does not have it.
    #[error(
        "`{0}` not found on the PATH of `knoll up`, whose cluster uses no images; install it on that machine, and start the \
         cluster again with a PATH that has it"
    )]
    MissingHere(&'static str),
    /// It has another version.
    #[error(
        "the Workspace requires {tool} {requested}, but the run's image has {found}; set `spec.version` to {found}, or \
         `spec.image` to an image with {requested}"
    )]
    Version { tool: &'static str, requested: String, found: String },
    /// The machine has another version.
    #[error(
        "the Workspace requires {tool} {requested}, but the PATH of `knoll up`, whose cluster uses no images, has {found}; set \
         `spec.version` to {found}, or start the cluster again with {requested} on its PATH"
    )]
    VersionHere { tool: &'static str, requested: String, found: String },
}

/// Finds the executable in `path`, as a shell would.
///
/// # Errors
/// If there is none.
pub fn find(tool: Tool, source: ToolSource, path: &OsStr) -> Result<PathBuf, ToolError> {
    let missing = || match source {
        ToolSource::Image => ToolError::Missing(tool.program()),
        ToolSource::Machine => ToolError::MissingHere(tool.program()),
    };
    let executable =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    std::env::split_paths(path).map(|folder| folder.join(tool.program())).find(executable).ok_or_else(missing)
}

/// The `required_version` constraint for the requested version.
///
/// `1.11.4` means exactly that version, and `1.11` any of its patches. Anything else already is a constraint.
pub fn constraint(requested: &str) -> String {
    let requested = requested.trim().trim_start_matches('v');
    let parts: Vec<&str> = requested.split('.').collect();
    let numbers = parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    match (numbers, parts.len()) {
        (true, 1) => format!("~> {requested}.0"),
        (true, 2) => format!("~> {requested}.0"),
        (true, _) => format!("= {requested}"),
        (false, _) if requested.starts_with(|c: char| c.is_ascii_digit()) => format!("= {requested}"),
        (false, _) => requested.to_owned(),
    }
}

/// Asks the program for its version, and compares it with the requested one.
///
/// A program that cannot report its version is accepted; its later use will fail with a better message.
///
/// # Errors
/// If it has another version.
pub async fn check(tool: Tool, source: ToolSource, requested: &str, program: &Program) -> Result<(), ToolError> {
    let Some(found) = version(program).await else {
        return Ok(());
    };
    if meets(requested, &found) {
        return Ok(());
    }
    let (tool, requested) = (tool.program(), requested.to_owned());
    Err(match source {
        ToolSource::Image => ToolError::Version { tool, requested, found },
        ToolSource::Machine => ToolError::VersionHere { tool, requested, found },
    })
}

/// Whether a failure of `init` may be caused by the version.
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

/// Compares exact versions and their prefixes. Constraints are left to the program itself.
fn meets(requested: &str, found: &str) -> bool {
    let requested = requested.trim().trim_start_matches('v');
    let is_version = requested.starts_with(|c: char| c.is_ascii_digit());
    let parts = requested.split('.').count();
    !is_version
        || requested == found
        || (parts < 3 && found.strip_prefix(requested).is_some_and(|rest| rest.starts_with('.')))
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
        for (requested, expect, found, met) in rows {
            assert_eq!(constraint(requested), expect, "{requested}");
            assert_eq!(meets(requested, found), met, "{requested} and {found}");
        }
    }

    #[test]
    fn a_missing_program_says_what_to_do() {
        let empty = tempfile::tempdir().unwrap();
        fs::write(empty.path().join("tofu"), "not executable").unwrap();
        let rows = [
            (
                ToolSource::Image,
                "`tofu` not found in the run's image; set the Workspace's `spec.image` to an image that has it on its PATH",
            ),
            (
                ToolSource::Machine,
                "`tofu` not found on the PATH of `knoll up`, whose cluster uses no images; install it on that machine, and start \
                 the cluster again with a PATH that has it",
            ),
        ];
        for (source, expect) in rows {
            let error = find(Tool::Tofu, source, empty.path().as_os_str()).unwrap_err();
            assert_eq!(error.to_string(), expect);
        }
    }
}
