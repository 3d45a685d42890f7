//! Programs that a task needs and this repository does not build.

use std::path::PathBuf;

use anyhow::{Context, bail};

/// A program on the PATH.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// `terraform` or `tofu`, whichever is there.
pub fn terraform() -> anyhow::Result<&'static str> {
    match (find("terraform"), find("tofu")) {
        (Some(_), _) => Ok("terraform"),
        (None, Some(_)) => Ok("tofu"),
        (None, None) => {
            bail!("`terraform` (1.5 or newer) or `tofu` (1.6 or newer) must be on the PATH: install one of them")
        }
    }
}

/// Every program that the tests need.
pub fn for_tests() -> anyhow::Result<()> {
    if find("terraform").is_none() {
        bail!("the tests need `terraform` (1.5 or newer) on the PATH: install it");
    }
    find("kubectl").context("the tests need `kubectl` on the PATH: install it")?;
    find("git").context("the tests need `git` on the PATH: install it")?;
    find_system("sshd").context("the tests need OpenSSH's `sshd`: install it (Debian's package `openssh-server`)")?;
    Ok(())
}

/// A program of the system's: also where only root's PATH looks.
pub fn find_system(program: &str) -> Option<PathBuf> {
    let more = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"];
    find(program).or_else(|| more.iter().map(|folder| PathBuf::from(folder).join(program)).find(|file| file.is_file()))
}
