//! An embedded Kubernetes: an API server with a durable store, and a node that runs pods as processes.

pub mod cluster;
pub mod node;
pub mod patch;
pub mod schema;
pub mod select;
pub mod server;
pub mod store;
pub mod table;
