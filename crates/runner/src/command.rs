//! The command line of `knoll runner`, which Knoll starts inside a Run's pod.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// The arguments of `knoll runner`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Step>,
}

#[derive(clap::Subcommand)]
enum Step {
    /// Copy this binary to a directory that the pod's containers share
    Install {
        /// The directory
        folder: PathBuf,
    },
    /// Wait for the turn of a hook with its own image, and run it
    Hook {
        /// The name of the hook
        name: String,
    },
}

impl Args {
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self.command {
            Some(Step::Install { folder }) => match crate::install(&folder) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&format!("cannot install to `{}`", folder.display()), Some(&error)),
            },
            Some(Step::Hook { name }) => block_on(crate::hook(&name)),
            None => match crate::Config::from_env(|name| std::env::var(name).ok()) {
                Ok(config) => block_on(crate::run(config)),
                Err(error) => fail(&error.to_string(), None),
            },
        }
    }
}

fn block_on(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => fail("cannot start the runner", Some(&error)),
    }
}

/// Prints an error in the format of the other commands.
fn fail(what: &str, because: Option<&dyn Error>) -> ExitCode {
    eprintln!("error: {what}");
    if let Some(cause) = because {
        eprintln!("  caused by: {cause}");
    }
    ExitCode::FAILURE
}
