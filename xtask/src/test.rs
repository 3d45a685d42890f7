//! `cargo xtask test`: every check and every test, the quick ones first.

use std::process::{Command, Stdio};

use anyhow::bail;

use crate::build::{building, folder};
use crate::progress::{cargo, command, phase, status};
use crate::{conformance, needs, real, suite, tidy};

/// The random sequences that every run compares: a change is not refused for what it did not touch.
/// `cargo xtask conformance` takes others each time.
const CONFORMANCE_SEED: &str = "1";

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
    phase("generated files are current", || {
        status(Command::new(folder("debug")?.join("examples/generate")).arg("--check"))
    })?;
    let settings: &[(&str, &str)] = if arguments.thorough { &[("KNOLL_TEST_THOROUGH", "1")] } else { &[] };
    let mut passed = phase("tests", || suite::run(&programs, settings, &[]))?;
    if !arguments.embedded {
        conformance::run(&["--seed", CONFORMANCE_SEED].map(str::to_owned))?;
        passed += real::run(&programs, settings)?;
    }
    passed += phase("examples in the documentation", examples)?;
    phase("documentation", || {
        let mut docs = cargo();
        docs.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        status(&mut docs)
    })?;
    println!("\n{passed} passed, 0 failed");
    Ok(())
}

/// Runs the examples in the documentation; how many have passed.
fn examples() -> anyhow::Result<usize> {
    let output = building("test")?.args(["--workspace", "--doc", "--quiet"]).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("one of them does not work\n{text}");
    }
    Ok(suite::passed(&text))
}
