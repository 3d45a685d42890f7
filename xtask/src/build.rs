//! How programs are built that a task runs: in one way for tests, images, benchmarks and the demo, so that they share it.
//!
//! An image has nothing in it but the program, which therefore is linked statically wherever the machine can do that.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::progress::{cargo, root};

/// Cargo with a command that builds for tests, such as `build` or `test`.
///
/// Programs at a fixed address start in less than half the time: the many of a debug build have hundreds of thousands of
/// pointers to mend first otherwise.
pub fn building(subcommand: &str) -> anyhow::Result<Command> {
    with_flags(subcommand, "-C target-feature=+crt-static -C relocation-model=static")
}

/// Cargo that builds what is shipped.
pub fn shipping() -> anyhow::Result<Command> {
    let mut command = with_flags("build", "-C target-feature=+crt-static")?;
    command.arg("--release");
    Ok(command)
}

fn with_flags(subcommand: &str, static_flags: &str) -> anyhow::Result<Command> {
    let host = host()?;
    let mut command = cargo();
    // With a target of its own, flags reach the programs, and not what runs during the build.
    command.args([subcommand, "--target", &host]);
    if links_statically(&host) {
        command.env("RUSTFLAGS", static_flags).env("RUSTDOCFLAGS", static_flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
    }
    Ok(command)
}

/// Where the programs are, by the name of the profile's folder: `debug` or `release`.
pub fn folder(profile: &str) -> anyhow::Result<PathBuf> {
    Ok(target().join(host()?).join(profile))
}

/// The folder that cargo builds into.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// Whether there is a static C library to link with. Not every distribution brings it with the compiler.
fn links_statically(host: &str) -> bool {
    let found = || {
        let output = Command::new("cc").arg("-print-file-name=libc.a").output().ok()?;
        // A compiler that has none repeats the name.
        Some(Path::new(String::from_utf8(output.stdout).ok()?.trim()).is_absolute())
    };
    host.ends_with("linux-gnu") && found().unwrap_or(false)
}

/// The platform that this machine's compiler builds for.
fn host() -> anyhow::Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not name its host")?;
    Ok(host.to_owned())
}
