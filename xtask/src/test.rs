//! `cargo xtask test`: every check and every test, the quick ones first.

use std::process::{Command, Stdio};

use anyhow::bail;

use crate::build::{building, folder};
use crate::cluster::control_plane_possible;
use crate::progress::{cargo, command, phase, status};
use crate::{conformance, deny, real, suite, tidy, tools};

/// The seed of the random sequences. It is fixed, so that no change fails for sequences that passed before.
/// `cargo xtask conformance` uses new sequences each time.
const CONFORMANCE_SEED: &str = "1";

#[derive(clap::Args)]
pub struct Arguments {
    /// Leave out the tests on a real cluster
    #[arg(long)]
    embedded: bool,
    /// Repeat tests as often as a release needs it: 100 runs in a row, every kill five times
    #[arg(long)]
    thorough: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    tools::for_tests()?;
    phase("formatting", || command(&["fmt", "--all", "--check"]))?;
    phase("house rules", tidy::run)?;
    phase("dependencies", deny::run)?;
    phase("clippy", || command(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    let programs = phase("building the tests", || suite::build(&["--workspace"]))?;
    phase("generated files are current", || {
        status(Command::new(folder("debug")?.join("examples/generate")).arg("--check"))
    })?;
    let settings: &[(&str, &str)] = if arguments.thorough { &[("KNOLL_TEST_THOROUGH", "1")] } else { &[] };
    let mut passed = phase("tests", || suite::run(&programs, settings, &[]))?;
    if !arguments.embedded {
        match control_plane_possible(false) {
            Ok(()) => conformance::run(&["--seed", CONFORMANCE_SEED].map(str::to_owned))?,
            Err(why) => real::not_run("the conformance suite", &why)?,
        }
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

/// Runs the examples in the documentation and returns how many passed.
fn examples() -> anyhow::Result<usize> {
    let output = building("test")?.args(["--workspace", "--doc", "--quiet"]).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("an example failed\n{text}");
    }
    Ok(suite::passed(&text))
}
