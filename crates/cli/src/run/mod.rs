//! The run commands: terraform's own words, carried out in the cluster, with the output here.

mod attach;
mod ending;
pub mod fmt;
pub mod follow;
mod keys;
mod line;
mod lock_file;
mod logs;
mod position;
pub mod resume;
mod spec;
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

/// The arguments of a run command.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RunArgs {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub workspace: WorkspaceArg,
    /// Print the run's name and leave it to itself
    #[arg(long, env = "KNOLL_DETACH")]
    pub detach: bool,
    /// What terraform's command of this name takes, as terraform takes it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "TERRAFORM ARGUMENTS")]
    pub args: Vec<String>,
}

/// The arguments of a run command that changes infrastructure.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ChangeArgs {
    /// Who decides on the plan [default: `auto` with -auto-approve, else `prompt`]
    #[arg(long, env = "KNOLL_APPROVAL", value_name = "WHO", value_enum)]
    pub approval: Option<ApprovalFlag>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Who decides on a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ApprovalFlag {
    /// Terraform asks here
    Prompt,
    /// Nobody: the plan is applied at once
    Auto,
    /// Whoever may: the plan waits for `knoll approve`
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

/// Carries out terraform's command `words` in the cluster.
pub async fn run(words: &str, args: RunArgs, approval: Option<ApprovalFlag>, outer: &Connection) -> Result<ExitCode> {
    start::run(words, args, approval, outer).await
}
