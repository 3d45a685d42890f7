//! `knoll fmt`: formats local files, so it runs on this machine.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Result, anyhow};

/// The arguments of `knoll fmt`.
#[derive(clap::Args)]
pub struct FmtArgs {
    /// The tool that formats the files
    #[arg(long, env = "KNOLL_TOOL", value_parser = ["terraform", "tofu"])]
    tool: Option<String>,
    /// Arguments of `terraform fmt`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "TERRAFORM ARGUMENTS", add = crate::complete::terraform())]
    args: Vec<String>,
}

/// Replaces this process with `terraform fmt`, or with `tofu fmt` if terraform is not installed.
pub fn run(args: &FmtArgs) -> Result<ExitCode> {
    let tools = args.tool.as_deref().map_or_else(|| vec!["terraform", "tofu"], |tool| vec![tool]);
    for tool in &tools {
        // `exec` returns only if the program cannot be started.
        let error = Command::new(tool).arg("fmt").args(&args.args).exec();
        if error.kind() != std::io::ErrorKind::NotFound {
            return Err(anyhow!("cannot run `{tool} fmt`: {error}"));
        }
    }
    let tools = tools.iter().map(|tool| format!("`{tool}`")).collect::<Vec<_>>().join(" or ");
    Err(anyhow!("`knoll fmt` runs on this machine and needs {tools} on the PATH"))
}
