//! End-to-end tests, written once and run on both clusters: the embedded one and a real one.
//!
//! `KNOLL_E2E=embedded` (the default) starts `knoll up` in a folder of its own, once for each test program.
//! `KNOLL_E2E=real` uses the cluster of `KNOLL_E2E_KUBECONFIG`, which has Knoll in it. A test knows neither: it has
//! kubectl, the program `knoll`, and a namespace of its own.
#![allow(clippy::unwrap_used, reason = "this is a part of tests: what goes wrong here has to stop them")]

mod evidence;
pub mod git;
pub mod manifests;
mod namespace;
mod said;
mod world;

pub use namespace::{Namespace, Person};
pub use said::Said;
pub use world::World;

use std::time::Duration;

/// How long anything may take: a busy machine, a pod that has to start.
pub const PATIENCE: Duration = Duration::from_secs(120);
