//! `cargo xtask bench`: starts what is measured, in a release build, and lets `crates/bench` measure it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Subcommand;

use crate::cluster::{ApiServer, Place, Up, node_possible};
use crate::image;
use crate::progress::{phase, status};
use crate::real;
use crate::tools;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Compare the embedded API server with kube-apiserver and etcd
    Api {
        /// Arguments for `knoll-bench api`, such as `--rounds 5`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Measure the limits of Policies: 500 Runs of a tenant beside 5 of another, and what is left of 1,000 Runs in a Workspace
    Limits {
        /// Arguments for `knoll-bench limits`, such as `--large 100`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Measure many Stacks: created at once with real terraform, and idle
    Stacks {
        /// Arguments for `knoll-bench stacks`, such as `--settled 5000`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Compare an Atom with `kubectl apply --server-side`, on the embedded cluster and on a real one
    Atom {
        /// Leave out the real cluster
        #[arg(long)]
        embedded: bool,
        /// Arguments for `knoll-bench atom`, such as `--objects 1000`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Compare a Run with bare terraform, on the embedded cluster and on a real one
    Run {
        /// Leave out the real cluster
        #[arg(long)]
        embedded: bool,
        /// Install Knoll without `--image-volumes`
        #[arg(long)]
        no_image_volumes: bool,
        /// Arguments for `knoll-bench run`, such as `--rounds 5`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    tools::for_tests()?;
    // The program of the image is the one that is measured everywhere.
    let built =
        phase("building knoll and its benchmarks", || image::build_release(&["knoll", "knoll-runner", "knoll-bench"]))?;
    match &arguments.bench {
        Bench::Api { rest } => api(&built, rest),
        Bench::Limits { rest } => on_embedded(&built, "limits", rest),
        Bench::Stacks { rest } => on_embedded(&built, "stacks", rest),
        Bench::Atom { embedded, rest } => on_both(&built, "atom", *embedded, &real::IMAGE_VOLUMES, rest),
        Bench::Run { embedded, no_image_volumes, rest } => {
            let flags: &[&str] = if *no_image_volumes { &[] } else { &real::IMAGE_VOLUMES };
            on_both(&built, "run", *embedded, flags, rest)
        }
    }
}

/// Measures Runs or Atoms, on a real cluster too where this machine can have a node; Knoll is installed there with `flags`.
fn on_both(built: &Path, what: &str, embedded_only: bool, flags: &[&str], rest: &[String]) -> anyhow::Result<()> {
    let mut bench = Command::new(built.join("knoll-bench"));
    bench.arg(what);
    let possible = if embedded_only { Err("`--embedded` was given".to_owned()) } else { node_possible() };
    match possible {
        Err(why) => println!("==> NOT MEASURED: the real cluster: {why}"),
        Ok(()) => {
            let place = Place::of(None)?;
            phase("starting a real cluster with a node", || Up { node: true, ..Up::default() }.run(&place))?;
            phase("loading images", || image::load_built(&place, built))?;
            real::install(&built.join("knoll"), &place, flags)?;
            bench.arg("--real").arg(place.kubeconfig());
            if what == "run" {
                bench.arg("--audit").arg(place.path("logs/audit.log"));
            }
        }
    }
    let embedded = phase("starting the embedded cluster", || Embedded::start(built))?;
    status(bench.arg("--embedded").arg(embedded.folder.join("kubeconfig")).args(rest))
}

/// A benchmark that starts its own embedded clusters.
fn on_embedded(built: &Path, what: &str, rest: &[String]) -> anyhow::Result<()> {
    let mut bench = Command::new(built.join("knoll-bench"));
    status(bench.arg(what).arg("--knoll").arg(built.join("knoll")).args(rest))
}

fn api(built: &Path, rest: &[String]) -> anyhow::Result<()> {
    let real = phase("starting etcd and kube-apiserver", || ApiServer::start("bench"))?;
    let embedded = phase("starting the embedded cluster", || Embedded::start(built))?;
    let mut bench = Command::new(built.join("knoll-bench"));
    bench
        .arg("api")
        .arg("--embedded")
        .arg(embedded.folder.join("kubeconfig"))
        .args(["--embedded-processes", &embedded.process])
        .args(["--embedded-start", &milliseconds(embedded.start)])
        .arg("--real")
        .arg(real.kubeconfig())
        .args(["--real-processes", &real.processes.iter().map(i32::to_string).collect::<Vec<_>>().join(",")])
        .args(["--real-start", &milliseconds(real.start)])
        .args(rest);
    status(&mut bench)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1000.0)
}

/// A new embedded cluster. It ends, and its folder with it, when this is dropped.
struct Embedded {
    knoll: PathBuf,
    folder: PathBuf,
    process: String,
    start: Duration,
}

impl Embedded {
    fn start(built: &Path) -> anyhow::Result<Self> {
        // On the same disk as the other server, so that both write to the same.
        let folder = crate::cluster::user_cache()?.join("knoll/bench-embedded");
        let mut cluster = Self { knoll: built.join("knoll"), folder, process: String::new(), start: Duration::ZERO };
        cluster.end();
        let begun = Instant::now();
        status(
            Command::new(&cluster.knoll).args(["up", "--detach", "--port", "0", "--data-dir"]).arg(&cluster.folder),
        )?;
        cluster.start = begun.elapsed();
        let file = cluster.folder.join("knoll.pid");
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        text.trim().clone_into(&mut cluster.process);
        Ok(cluster)
    }

    fn end(&self) {
        if self.folder.exists() {
            let _ = Command::new(&self.knoll).args(["down", "--data-dir"]).arg(&self.folder).status();
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.end();
    }
}
