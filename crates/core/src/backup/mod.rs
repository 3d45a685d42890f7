//! The copies of states outside of the cluster: what is copied next, and what a Workspace's status says about it. Pure.

mod ledger;
mod standing;
mod waiting;

pub use ledger::{Change, CopyOutcome, Ledger, Outage, Work};
pub use standing::{Copied, FoundBackup, Standing, StateBackup, tell};
