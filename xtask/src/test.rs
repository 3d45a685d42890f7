//! `cargo xtask test`: every check and every test, the quick ones first.

use std::process::Command;

use crate::progress::{built, cargo, command, phase, status};
use crate::{conformance, needs, real, suite, tidy};

/// What to leave out.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only what runs on the embedded cluster: the quick half
    #[arg(long)]
    embedded: bool,
    /// Whatever is repeated is repeated as often as a release needs it: 100 runs in a row, every kill five times
    #[arg(long)]
    thorough: bool,
}

/// Runs it all.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    needs::for_tests()?;
    phase("formatting", || command(&["fmt", "--all", "--check"]))?;
    phase("house rules", tidy::run)?;
    phase("clippy", || command(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    let programs = phase("building the tests", || suite::build(&["--workspace"]))?;
    phase("generated files are current", || status(Command::new(built()?.join("examples/generate")).arg("--check")))?;
    let settings: &[(&str, &str)] = if arguments.thorough { &[("KNOLL_TEST_THOROUGH", "1")] } else { &[] };
    phase("tests", || suite::run(&programs, settings, &[]))?;
    if !arguments.embedded {
        conformance::compare(&[])?;
        real::run(&programs, settings)?;
    }
    phase("examples in the documentation", || command(&["test", "--workspace", "--doc", "--quiet"]))?;
    phase("documentation", || {
        let mut docs = cargo();
        docs.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        status(&mut docs)
    })
}
