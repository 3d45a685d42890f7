//! `knoll-runner`: the runner alone. It is in Knoll's image, so that pods get it rather than all of Knoll: it is a fraction
//! of the size, and each pod has its own copy.

use std::process::ExitCode;

use clap::Parser;

/// It is called as `knoll` is, so that a pod need not know which of the two it has.
#[derive(Parser)]
#[command(name = "knoll-runner", version, about = "The runner of Knoll, for the pods of Runs")]
enum Cli {
    /// Run terraform in a Run's pod
    Runner(knoll_runner::Args),
}

fn main() -> ExitCode {
    let Cli::Runner(args) = Cli::parse();
    args.run()
}
