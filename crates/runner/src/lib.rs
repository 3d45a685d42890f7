//! The process inside a Run's pod. It fetches its job from the hub, drives terraform step by step, uploads every state
//! that terraform writes, and reports progress.
//!
//! The runner has no access to the Kubernetes API; it talks only to the hub.

mod answer;
mod backend;
mod backend_notice;
mod cancel;
mod command;
mod console;
mod declared;
mod describe;
mod flags;
mod gate;
mod hooks;
mod hub;
mod install;
mod judge;
mod log;
mod memory;
mod plan;
mod plugins;
mod process;
mod progress;
mod prompt;
mod redact;
mod registry;
mod retry;
mod run;
mod sensitive;
mod setup;
mod stable_path;
mod state;
mod state_only;
mod steps;
mod stop;
mod terminal;
mod tool;
mod watch;

pub use backend::{LOCAL as LOCAL_BACKEND, declared as declared_backend, kept_in_pod};
pub use command::Args;
pub use flags::file_in_pod;
pub use gate::hook;
pub use install::install;
pub use run::{Config, ConfigError, run};
