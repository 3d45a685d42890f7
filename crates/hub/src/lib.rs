//! The HTTP API that runners speak: their job, the module, states, plans, logs, and reports.
//!
//! The hub keeps nothing for itself: what it is given is in the cluster before it answers, so any replica can serve any
//! runner, and a replica that dies takes nothing with it.

mod auth;
mod body;
mod bundle;
mod cache;
mod error;
mod images;
mod job;
mod judge;
mod progress;
mod routes;
mod server;
mod session;
mod tls;
mod trace;

pub use error::Error;
pub use server::{Hub, HubSettings, Running, StartError};
pub use tls::{Error as TlsError, Tls};
pub use trace::Observer;
