//! Many Stacks: how long they take when they are created at once, and what they cost when nothing changes.
//!
//! The first half uses `knoll up` and real terraform. The second half measures an idle operator in its own process and
//! simulates the runners, because the way the Stacks were created makes no difference to it.

mod created;
mod settled;
mod traffic;

use std::path::PathBuf;
use std::time::Duration;

/// The flags of `bench stacks`.
#[derive(clap::Args)]
pub struct StacksArgs {
    /// The `knoll` binary
    #[arg(long, value_name = "FILE")]
    knoll: PathBuf,
    /// How many Stacks are created at once with real terraform; 0 skips this half
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    created: usize,
    /// How many resources each Stack has
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    resources: usize,
    /// How many settled Stacks the operator manages; 0 skips this half
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    settled: usize,
    /// How long requests are counted while nothing changes
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    idle: u64,
    /// The timeout of each wait
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    patience: u64,
}

/// Measures and prints. Fails if the operator did unnecessary work.
pub async fn run(arguments: &StacksArgs) -> anyhow::Result<()> {
    if arguments.created > 0 {
        created::run(arguments).await?;
    }
    if arguments.settled > 0 {
        settled::run(arguments).await?;
    }
    Ok(())
}

impl StacksArgs {
    fn idle(&self) -> Duration {
        Duration::from_secs(self.idle)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }
}
