//! The tasks of this repository: `cargo xtask <task>`.

mod bench;
mod build;
mod cluster;
mod conformance;
mod deny;
mod go;
mod image;
mod permissions;
mod progress;
mod real;
mod suite;
mod test;
mod tidy;
mod tools;

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
    /// Build Knoll and show the life of a Stack on an embedded cluster
    Demo,
    /// Run every check and every test
    Test(test::Arguments),
    /// Write the files that are generated from the code: deploy/
    Generate {
        /// Write nothing, and fail if a file is not current
        #[arg(long)]
        check: bool,
    },
    /// Run a benchmark and print a table
    Bench(bench::Arguments),
    /// Compare the embedded API server with kube-apiserver, request by request
    Conformance(conformance::Arguments),
    /// Run a real Kubernetes on this machine
    Cluster(cluster::Arguments),
    /// Build the container images of Knoll and load them into the node of the cluster
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
    let tool = tools::for_demo()?;
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
