//! The HTTP API that runners speak: their job, the module, states, plans, logs, and reports.
//!
//! The hub keeps nothing for itself: what it is given is in the cluster before it answers, so any replica can serve any
//! runner, and a replica that dies takes nothing with it.

mod auth;
mod bundle;
mod cache;
mod chunks;
pub mod content;
mod error;
mod job;
mod log;
pub mod logs;
mod progress;
mod routes;
mod server;
mod session;
mod state_file;
pub mod states;
mod store;
mod sweep;
mod tls;
mod variables;
mod versions;

pub use error::Error;
pub use server::{Hub, Running, StartError};
pub use state_file::{Output, StateFile};
pub use store::Store;
pub use tls::{Error as TlsError, Tls};
pub use variables::{Error as VariablesError, Given, Lookup, Resolved};
