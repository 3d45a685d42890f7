//! The benchmarks of `cargo xtask bench`. Each one measures its sides alternately in one process, and prints one table.

mod api;
mod atom;
mod limits;
mod run;
mod server;
mod spread;
mod stacks;
mod table;
mod up;

use clap::{Parser, Subcommand};

/// Benchmarks of Knoll
#[derive(Parser)]
#[command(name = "knoll-bench")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Compare the embedded API server with kube-apiserver and etcd
    Api(api::ApiArgs),
    /// Compare an Atom with many objects with `kubectl apply --server-side`
    Atom(atom::AtomArgs),
    /// Compare one run, and 20 concurrent ones, with bare terraform
    Run(run::RunArgs),
    /// Measure the limits of Policies: fairness between tenants, and what is left of many Runs
    Limits(limits::LimitsArgs),
    /// Measure many Stacks: created at once, and settled
    Stacks(stacks::StacksArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // kube uses the installed TLS provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Arguments::parse().bench {
        Bench::Api(arguments) => api::run(&arguments).await,
        Bench::Atom(arguments) => atom::run(&arguments).await,
        Bench::Run(arguments) => run::run(&arguments).await,
        Bench::Limits(arguments) => limits::run(&arguments).await,
        Bench::Stacks(arguments) => stacks::run(&arguments).await,
    }
}
