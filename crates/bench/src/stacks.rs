//! Many Stacks: how long they take when they are created at once, and what they cost when nothing changes.
//!
//! The first half is all real: `knoll up` and terraform. The second half asks what an operator costs that has nothing to
//! do, so it has the operator in a process of its own and plays the runners itself: how the Stacks came to be settled makes
//! no difference to that.

mod created;
mod settled;
mod traffic;

use std::path::PathBuf;
use std::time::Duration;

/// What to measure, and with what.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program `knoll`
    #[arg(long, value_name = "FILE")]
    knoll: PathBuf,
    /// How many Stacks are created at once, with real terraform; 0 leaves this half out
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    created: usize,
    /// How many resources each of them has
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    resources: usize,
    /// How many settled Stacks an operator looks after; 0 leaves this half out
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    settled: usize,
    /// For how long requests are counted while nothing changes
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    idle: u64,
    /// How long anything may take
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    patience: u64,
}

/// Measures, prints, and fails when something was done that need not be.
pub async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.created > 0 {
        created::run(arguments).await?;
    }
    if arguments.settled > 0 {
        settled::run(arguments).await?;
    }
    Ok(())
}

impl Arguments {
    fn idle(&self) -> Duration {
        Duration::from_secs(self.idle)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }
}
