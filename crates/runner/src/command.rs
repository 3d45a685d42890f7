//! The words of `knoll runner`: what Knoll starts inside a Run's pod.

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
    /// Put this program into a folder that the pod's containers share.
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

impl Args {
    /// The runner, or its installation.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self.command {
            Some(Step::Install { folder }) => match crate::install(&folder) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&format!("cannot install into `{}`", folder.display()), Some(&error)),
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
        Err(error) => fail("the runner cannot start", Some(&error)),
    }
}

/// Says what went wrong as the user's commands do.
fn fail(what: &str, because: Option<&dyn Error>) -> ExitCode {
    eprintln!("error: {what}");
    if let Some(cause) = because {
        eprintln!("  because: {cause}");
    }
    ExitCode::FAILURE
}
