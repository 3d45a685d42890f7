//! `cargo xtask conformance`: compares the embedded API server with kube-apiserver.

use std::process::Command;

use crate::build::{building, folder};
use crate::cluster::{Place, Up, down};
use crate::progress::{phase, status};

/// The name of the real cluster. It is used for nothing else, so only the suite writes to it.
const NAME: &str = "conformance";

#[derive(clap::Args)]
pub struct Arguments {
    /// Arguments for `knoll-conformance`, such as `--only 'deletion*'`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
}

/// Builds the suite and runs it with these arguments.
pub fn run(rest: &[String]) -> anyhow::Result<()> {
    phase("building the suite", || status(building("build")?.args(["--workspace", "--bin", "knoll-conformance"])))?;
    let place = Place::of(Some(NAME))?;
    // Objects of an earlier run would change the answers.
    phase("starting a control plane", || {
        down(&place, true)?;
        // The embedded server runs without a node, and schedules no pods.
        Up { unscheduled: true, ..Up::default() }.run(&place)
    })?;
    let compared = phase("comparing the embedded API server with kube-apiserver", || {
        let mut suite = Command::new(folder("debug")?.join("knoll-conformance"));
        status(suite.arg("--kubeconfig").arg(place.kubeconfig()).args(rest))
    });
    down(&place, true)?;
    compared
}
