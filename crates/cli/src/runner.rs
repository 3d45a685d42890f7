//! `knoll runner`: what Knoll starts inside a Run's pod.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::style;

/// The arguments of `knoll runner`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Step>,
}

#[derive(clap::Subcommand)]
enum Step {
    /// Put this executable into a folder that the pod's containers share.
    Install {
        /// The folder.
        folder: PathBuf,
    },
    /// Run a hook in an image of its own, when its turn has come.
    Hook {
        /// The hook's name.
        name: String,
    },
}

/// The runner, or its installation.
pub fn run(args: Args) -> ExitCode {
    match args.command {
        Some(Step::Install { folder }) => match knoll_runner::install(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                style::error(&anyhow::Error::new(error).context(format!("cannot install into `{}`", folder.display())));
                ExitCode::FAILURE
            }
        },
        Some(Step::Hook { name }) => block_on(knoll_runner::hook(&name)),
        None => match knoll_runner::Config::from_env(|name| std::env::var(name).ok()) {
            Ok(config) => block_on(knoll_runner::run(config)),
            Err(error) => {
                style::error(&error.into());
                ExitCode::FAILURE
            }
        },
    }
}

fn block_on(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => {
            style::error(&anyhow::Error::new(error).context("the runner cannot start"));
            ExitCode::FAILURE
        }
    }
}
