//! `knoll man`: writes a manual page for each command, for packagers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};

use crate::cli::Cli;
use crate::style;

/// The arguments of `knoll man`.
#[derive(clap::Args)]
pub struct ManArgs {
    /// The target directory
    folder: PathBuf,
}

/// Writes one page per command.
pub fn run(args: &ManArgs) -> Result<ExitCode> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create the directory `{}`", folder.display()))?;
    let mut cli = Cli::command();
    cli.build();
    let count = write(&cli, "knoll", folder)?;
    style::say("Wrote", &format!("{count} pages to `{}`", folder.display()));
    Ok(ExitCode::SUCCESS)
}

fn write(command: &Command, name: &str, folder: &Path) -> Result<usize> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page).with_context(|| format!("cannot write `{}`", path.display()))?;
    let mut count = 1;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        count += write(sub, &format!("{name}-{}", sub.get_name()), folder)?;
    }
    Ok(count)
}
