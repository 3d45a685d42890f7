//! `knoll-runner`: a binary with only the runner. Knoll's image contains it because every pod gets a copy, and it is a
//! fraction of the size of `knoll`.

use std::process::ExitCode;

use clap::Parser;

/// The command line is the same as that of `knoll`, so a pod does not depend on which binary it has.
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
