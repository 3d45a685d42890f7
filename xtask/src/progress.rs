//! How tasks show what they are doing: a line when a piece of work starts, and one with its time when it ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

/// The folder of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Does a piece of work and prints how long it took.
pub fn phase<T>(title: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    println!("==> {title}");
    let begun = Instant::now();
    let result = work().with_context(|| format!("`{title}` failed"))?;
    println!("    done in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(result)
}

/// Runs cargo in the repository, its output going where ours goes.
pub fn command(arguments: &[&str]) -> anyhow::Result<()> {
    status(cargo().args(arguments))
}

/// Runs a prepared command and fails when it fails.
pub fn status(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start `{program}`"))?;
    if !status.success() {
        let words: Vec<String> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        bail!("`{program} {}` ended with {status}", words.join(" "));
    }
    Ok(())
}

/// The cargo that runs this task, in the repository. It must not inherit the variables that cargo set for
/// *this* program: build scripts that read them would run again each time.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let from_cargo =
            name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
        if from_cargo {
            command.env_remove(name);
        }
    }
    command.current_dir(root());
    command
}
