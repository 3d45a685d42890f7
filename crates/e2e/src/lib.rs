//! End-to-end tests that run unchanged on the embedded cluster and on a real one.
//!
//! `KNOLL_E2E=embedded` (the default) starts `knoll up` in a temporary directory, once per test program.
//! `KNOLL_E2E=real` uses the cluster of `KNOLL_E2E_KUBECONFIG`, in which Knoll is installed. A test does not know
//! which: it has kubectl, the `knoll` binary and its own namespace.
#![allow(clippy::unwrap_used, reason = "this is a part of tests: what goes wrong here has to stop them")]

mod bucket;
mod command_result;
mod evidence;
pub mod git;
mod hub;
pub mod manifests;
mod namespace;
mod outage;
pub mod processes;
pub mod registry;
mod world;

pub use bucket::Bucket;
pub use command_result::CommandResult;
pub use hub::Hub;
pub use namespace::{Namespace, Person};
pub use outage::Outage;
pub use world::World;

use std::time::Duration;

/// The timeout of every wait, long enough for a pod to start on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);
