//! Installs Debian packages, where the task runs as root.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

/// Where a Debian system has its programs.
pub const SYSTEM_FOLDERS: &[&str] = &["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"];

/// Installs packages. Where it cannot, the error names the packages for the user to install.
pub fn install(packages: &[&str]) -> anyhow::Result<()> {
    let names = packages.join(" ");
    let Some(apt) = super::find_system("apt-get") else {
        bail!("install the equivalents of these Debian packages: {names}");
    };
    if !nix::unistd::geteuid().is_root() {
        bail!("install these packages: sudo apt-get install {names}");
    }
    println!("Installing Debian packages: {names}");
    let run = |arguments: &[&str]| -> anyhow::Result<Output> {
        Command::new(&apt)
            .args(["-q", "-y", "-o", "Dpkg::Use-Pty=0"])
            .args(arguments)
            // Scripts of packages call programs of the system, and the user's PATH may not have them.
            .env("PATH", SYSTEM_FOLDERS.join(":"))
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .context("cannot start apt-get")
    };
    let mut words = vec!["install", "--no-install-recommends"];
    words.extend(packages);
    if run(&words)?.status.success() {
        return Ok(());
    }
    // A fresh machine has no list of packages yet.
    run(&["update"])?;
    let output = run(&words)?;
    if !output.status.success() {
        bail!(
            "apt-get cannot install {names}:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
