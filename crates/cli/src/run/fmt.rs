//! `knoll fmt`: runs here, because it is about the files here.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Result, anyhow};

/// The arguments of `knoll fmt`.
#[derive(clap::Args)]
pub struct Args {
    /// The program that formats
    #[arg(long, env = "KNOLL_TOOL", value_parser = ["terraform", "tofu"])]
    tool: Option<String>,
    /// What terraform's command of this name takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "TERRAFORM ARGUMENTS")]
    args: Vec<String>,
}

/// Becomes `terraform fmt`, or `tofu fmt` where there is no terraform.
pub fn run(args: &Args) -> Result<ExitCode> {
    let tools = args.tool.as_deref().map_or_else(|| vec!["terraform", "tofu"], |tool| vec![tool]);
    for tool in &tools {
        // Only returns when the program cannot be started.
        let error = Command::new(tool).arg("fmt").args(&args.args).exec();
        if error.kind() != std::io::ErrorKind::NotFound {
            return Err(anyhow!("cannot run `{tool} fmt`: {error}"));
        }
    }
    let tools = tools.iter().map(|tool| format!("`{tool}`")).collect::<Vec<_>>().join(" nor ");
    Err(anyhow!("`knoll fmt` runs on this machine, and there is no {tools} on the PATH\n  install one of them"))
}
