//! Everything that Knoll keeps in Kubernetes: states, plans, logs, bundles and variables.
//!
//! Nothing in this crate listens: the hub, the operator and the user's commands use it, each with its own client and so
//! with its own rights.

pub mod bundles;
mod chunks;
pub mod content;
mod error;
pub mod logs;
mod messages;
mod sources;
pub mod states;
mod sweep;
mod variables;

pub use error::Error;
pub use knoll_fetch::Settings as FetchSettings;
pub use messages::message_of;
pub use sources::{Earlier, Origin, SourceError, Sources};
pub use states::{Claim, Output, Owner, StateFile, Store};
pub use sweep::sweep_until;
pub use variables::{Error as VariablesError, Given, Lookup, Resolved};
