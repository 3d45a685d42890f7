//! The programs that a task needs and this repository does not build.
//!
//! A program on the PATH is used as it is. A missing one is installed as a Debian package (as root), downloaded as a
//! pinned release, or built from the Go module proxy. Downloads and builds go into the user's cache, once.

mod debian;
mod download;
mod kubectl;
pub mod tofu;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::cluster::user_cache;

pub use debian::{SYSTEM_FOLDERS, install};

/// Set when a task has restarted itself with a longer PATH.
const RESTARTED: &str = "KNOLL_XTASK_RESTARTED";

/// A program on the PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A program on the PATH, or in one of the system's folders that only root has on the PATH.
pub fn find_system(program: &str) -> Option<PathBuf> {
    find(program).or_else(|| SYSTEM_FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|f| f.is_file()))
}

/// Provides what the demo needs: `terraform`, or else `tofu`. Returns the one to use.
pub fn for_demo() -> anyhow::Result<&'static str> {
    if find("terraform").is_some() {
        return Ok("terraform");
    }
    if find("tofu").is_none() {
        restart_with(&[folder_of(&tofu::ensure()?)])?;
    }
    Ok("tofu")
}

/// Provides every program that the tests and the benchmarks call.
pub fn for_tests() -> anyhow::Result<()> {
    let mut packages = Vec::new();
    if find_system("git").is_none() {
        packages.push("git");
    }
    // The tests of git sources talk to a real sshd.
    if find_system("sshd").is_none() || find_system("ssh-keygen").is_none() {
        packages.push("openssh-server");
    }
    // The tests of the web page drive a browser.
    if find_system("chromium").is_none() || find_system("chromedriver").is_none() {
        packages.extend(["chromium", "chromium-driver"]);
    }
    if !packages.is_empty() {
        install(&packages).context("the tests need these programs")?;
    }
    let mut folders = Vec::new();
    if find("kubectl").is_none() {
        folders.push(folder_of(&kubectl::ensure()?));
    }
    if find("terraform").is_none() {
        let tofu = find("tofu").map_or_else(tofu::ensure, Ok)?;
        folders.push(as_terraform(&tofu)?);
        println!("`terraform` is not on the PATH: the tests use {} under that name", tofu.display());
    }
    // The system's folders come last, so that they hide nothing that the lines above have chosen.
    for program in ["git", "ssh-keygen", "chromedriver"] {
        if find(program).is_none() {
            folders.extend(find_system(program).map(|path| folder_of(&path)));
        }
    }
    if folders.is_empty() { Ok(()) } else { restart_with(&folders) }
}

/// A folder in the user's cache with a link named `terraform` to OpenTofu.
fn as_terraform(tofu: &Path) -> anyhow::Result<PathBuf> {
    let folder = user_cache()?.join("knoll/tofu/as-terraform");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let link = folder.join("terraform");
    if std::fs::read_link(&link).ok().as_deref() != Some(tofu) {
        // A rename replaces the link of an earlier version, also while another task uses it.
        let new = folder.join(format!("terraform.{}", std::process::id()));
        std::os::unix::fs::symlink(tofu, &new)
            .and_then(|()| std::fs::rename(&new, &link))
            .with_context(|| format!("cannot create the link {}", link.display()))?;
    }
    Ok(folder)
}

/// Starts this task again with more folders at the end of the PATH. Every program that the task starts then finds the
/// programs in them. Returns only on failure.
fn restart_with(folders: &[PathBuf]) -> anyhow::Result<()> {
    if std::env::var_os(RESTARTED).is_some() {
        bail!("the programs in {folders:?} are still not found on the PATH");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::env::split_paths(&path).chain(folders.iter().cloned()))
        .context("a folder on the PATH has a colon in its name")?;
    let program = std::env::current_exe().context("cannot find the program of this task")?;
    let failed = Command::new(&program).args(std::env::args_os().skip(1)).env("PATH", path).env(RESTARTED, "1").exec();
    Err(failed).with_context(|| format!("cannot start {}", program.display()))
}

fn folder_of(program: &Path) -> PathBuf {
    program.parent().map_or_else(PathBuf::new, Path::to_owned)
}
