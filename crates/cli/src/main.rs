//! The binary `knoll`: the embedded cluster, the operator, the runner and the user's commands.

mod cluster;
mod connect;
mod install;
mod operator;
mod parts;
mod runner;
mod style;
mod uninstall;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Terraform and OpenTofu on Kubernetes.
#[derive(Parser)]
#[command(name = "knoll", version, disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the embedded cluster, with Knoll running in it.
    Up(cluster::up::Args),
    /// Stop the embedded cluster.
    Down(cluster::down::Args),
    /// Tell whether the embedded cluster runs, and where.
    Status(cluster::status::Args),
    /// Install Knoll into a cluster.
    Install(install::Args),
    /// Take Knoll out of a cluster.
    Uninstall(uninstall::Args),
    /// Run the hub and the controllers (started by `knoll install` in a pod).
    Operator(Box<operator::Args>),
    /// Run inside a Run's pod (started by Knoll itself).
    #[command(hide = true)]
    Runner(runner::Args),
}

fn main() -> ExitCode {
    // Every container of the embedded node starts through here: nothing else may cost it time.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "shim") {
        return knoll_embedded::node::shim::shim_main(words);
    }
    // kube and the servers share one TLS provider. It is installed once, here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let result = match Cli::parse().command {
        Command::Up(args) => cluster::up::run(&args),
        Command::Down(args) => cluster::down::run(&args),
        Command::Status(args) => cluster::status::run(&args),
        Command::Install(args) => install::run(&args),
        Command::Uninstall(args) => uninstall::run(&args),
        Command::Operator(args) => operator::run(&args),
        Command::Runner(args) => return runner::run(args),
    };
    result.unwrap_or_else(|error| {
        style::error(&error);
        ExitCode::FAILURE
    })
}
