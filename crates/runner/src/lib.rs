//! What runs inside of a Run's pod: it asks the hub for its job, drives terraform step by step, hands every state that
//! terraform writes to the hub, and reports.
//!
//! The runner has no access to the Kubernetes API; the hub is all it knows.

mod cancel;
mod command;
mod console;
mod describe;
mod flags;
mod gate;
mod hooks;
mod hub;
mod install;
mod log;
mod memory;
mod plan;
mod plugins;
mod process;
mod progress;
mod redact;
mod run;
mod sensitive;
mod setup;
mod state;
mod steps;
mod stop;
mod terminal;
mod tool;
mod watch;

pub use command::Args;
pub use gate::hook;
pub use install::install;
pub use process::Grace;
pub use run::{Config, ConfigError, run};
