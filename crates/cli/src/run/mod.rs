//! The run commands: terraform commands that run in the cluster, with their output here.

mod attach;
mod ending;
mod environment;
pub mod fmt;
pub mod follow;
mod guard;
pub mod keys;
mod line;
mod lock_file;
mod logs;
mod position;
mod printer;
pub mod resume;
mod spec;
mod split;
pub mod start;
pub mod stop;
mod waiting;
mod watch;

use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use knoll_api::run::RunApproval;

pub use keys::size as screen_size;

use crate::connect::Connection;
use crate::workspace::WorkspaceArg;

/// The flags of a run command.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RunArgs {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub workspace: WorkspaceArg,
    /// Print the name of the run and do not wait for it
    #[arg(long, env = "KNOLL_DETACH")]
    pub detach: bool,
    /// Print the finished run as JSON to standard output, and terraform's output to standard error
    #[arg(long, short, env = "KNOLL_RUN_OUTPUT", value_name = "FORMAT", value_enum)]
    pub output: Option<ResultFormat>,
    /// Send `TF_VAR_*` and `TF_TOKEN_*` of this environment to the run, in a Secret of the run
    #[arg(long, env = "KNOLL_WITH_ENV")]
    pub with_env: bool,
    /// Start without the dependency lock file that earlier runs have stored, and store a new one
    #[arg(long, env = "KNOLL_IGNORE_LOCK_FILE")]
    pub ignore_lock_file: bool,
    /// Arguments of the terraform command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "TERRAFORM ARGUMENTS", add = crate::complete::terraform())]
    pub args: Vec<String>,
}

/// The flags of a run command that changes infrastructure.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ChangeArgs {
    /// How the plan is approved [default: `auto` with -auto-approve, otherwise `prompt`]
    #[arg(long, env = "KNOLL_APPROVAL", value_name = "MODE", value_enum)]
    pub approval: Option<ApprovalFlag>,
    /// Change the infrastructure of the Stack that the workspace belongs to
    #[arg(long, env = "KNOLL_OVERRIDE_STACK")]
    pub override_stack: bool,
    /// Do not wait for the windows of policies, where they let you
    #[arg(long, env = "KNOLL_NOW", requires = "because")]
    pub now: bool,
    /// Why the run does not wait, for the record
    #[arg(long, env = "KNOLL_BECAUSE", value_name = "REASON", requires = "now")]
    pub because: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// The values of `--output` of a run command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    Json,
}

/// The values of `--approval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ApprovalFlag {
    /// Terraform asks in this terminal
    Prompt,
    /// The plan is applied without approval
    Auto,
    /// The plan waits for `knoll approve`
    Manual,
}

impl From<ApprovalFlag> for RunApproval {
    fn from(flag: ApprovalFlag) -> Self {
        match flag {
            ApprovalFlag::Prompt => RunApproval::Prompt,
            ApprovalFlag::Auto => RunApproval::Auto,
            ApprovalFlag::Manual => RunApproval::Manual,
        }
    }
}

impl From<RunArgs> for ChangeArgs {
    fn from(run: RunArgs) -> Self {
        ChangeArgs { run, ..ChangeArgs::default() }
    }
}

/// Runs the terraform command `words` in the cluster.
pub async fn run(words: &str, args: ChangeArgs, outer: &Connection) -> Result<ExitCode> {
    start::run(words, args, outer).await
}
