//! What the clients of a server may hold: shared by the hub, the page and the endpoint for probes and metrics.
//!
//! *Guarantees.* One client, by its address or by its name, never takes all of anything, and gives back what it held
//! however its request ends. Nothing here knows Kubernetes, TLS or HTTP.

mod accept;
mod budget;
mod connections;
mod refusals;

pub use accept::accept;
pub use budget::{Budget, Held};
pub use connections::{Bounds, Connection, Connections};
pub use refusals::Refusals;
