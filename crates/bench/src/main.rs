//! What `cargo xtask bench` runs: each benchmark measures its sides in turns, in one run, and prints one table.

mod api;
mod atom;
mod run;
mod server;
mod spread;
mod stacks;
mod table;

use clap::{Parser, Subcommand};

/// Benchmarks of Knoll.
#[derive(Parser)]
#[command(name = "knoll-bench")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The embedded API server beside kube-apiserver with etcd
    Api(api::Arguments),
    /// Many objects in one Atom beside `kubectl apply --server-side`
    Atom(atom::Arguments),
    /// One run, and 20 at once, beside bare terraform
    Run(run::Arguments),
    /// Many Stacks: created at once, and settled
    Stacks(stacks::Arguments),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // kube takes whichever TLS provider is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Arguments::parse().bench {
        Bench::Api(arguments) => api::run(&arguments).await,
        Bench::Atom(arguments) => atom::run(&arguments).await,
        Bench::Run(arguments) => run::run(&arguments).await,
        Bench::Stacks(arguments) => stacks::run(&arguments).await,
    }
}
