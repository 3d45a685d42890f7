//! `cargo xtask conformance`: the embedded API server is held to a real one.

use std::process::Command;

use crate::build::{building, folder};
use crate::cluster::{Place, Up, down};
use crate::progress::{phase, status};

/// The cluster that is compared with: one of its own, so that nothing but the suite writes to it.
const NAME: &str = "conformance";

/// What `knoll-conformance` is told, such as `--only 'deletion*'`.
#[derive(clap::Args)]
pub struct Arguments {
    /// What `knoll-conformance` is told, such as `--only 'deletion*'`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
}

/// Builds the suite and runs it, with these words.
pub fn run(rest: &[String]) -> anyhow::Result<()> {
    phase("building the suite", || status(building("build")?.args(["--workspace", "--bin", "knoll-conformance"])))?;
    let place = Place::of(Some(NAME))?;
    // What an earlier suite left behind is no part of this one.
    phase("starting a control plane", || {
        down(&place, true)?;
        // The embedded server that is compared has no node, so nobody places a pod there either.
        Up { unscheduled: true, ..Up::default() }.run(&place)
    })?;
    let compared = phase("comparing the embedded API server with kube-apiserver", || {
        let mut suite = Command::new(folder("debug")?.join("knoll-conformance"));
        status(suite.arg("--kubeconfig").arg(place.kubeconfig()).args(rest))
    });
    down(&place, true)?;
    compared
}
