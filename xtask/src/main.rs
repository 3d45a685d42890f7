//! The tasks of this repository: `cargo xtask <task>`.

mod bench;
mod build;
mod cluster;
mod conformance;
mod image;
mod needs;
mod progress;
mod real;
mod suite;
mod test;
mod tidy;

use clap::{Parser, Subcommand};

/// The tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds Knoll and shows its main job on the embedded cluster
    Demo,
    /// Builds everything and runs every check and test
    Test(test::Arguments),
    /// Writes the files that are made from the code: deploy/crds/*.yaml
    Generate {
        /// Changes nothing and fails when a file is not what the code says
        #[arg(long)]
        check: bool,
    },
    /// Measures, and prints a table
    Bench(bench::Arguments),
    /// Compares the embedded API server with kube-apiserver, request by request
    Conformance(conformance::Arguments),
    /// A real Kubernetes on this machine
    Cluster(cluster::Arguments),
    /// Builds the images that Knoll runs from, and loads them into the cluster's node
    Image(image::Arguments),
}

fn main() -> std::process::ExitCode {
    let result = match Arguments::parse().task {
        Task::Demo => demo(),
        Task::Test(arguments) => test::run(&arguments),
        Task::Generate { check } => generate(check),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Conformance(arguments) => conformance::run(&arguments.rest),
        Task::Cluster(arguments) => cluster::run(&arguments),
        Task::Image(arguments) => image::run(&arguments),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// The demo is an example of the `knoll` crate, so that its dependencies are built once.
fn demo() -> anyhow::Result<()> {
    let tool = needs::terraform()?;
    progress::phase("building knoll", || {
        progress::status(build::building("build")?.args(["--package", "knoll", "--bin", "knoll", "--example", "demo"]))
    })?;
    let folder = build::folder("debug")?;
    progress::status(std::process::Command::new(folder.join("examples/demo")).arg(folder.join("knoll")).arg(tool))
}

fn generate(check: bool) -> anyhow::Result<()> {
    let mut generate = build::building("run")?;
    generate.args(["--package", "knoll", "--example", "generate", "--"]).args(check.then_some("--check"));
    progress::status(&mut generate)
}
