//! An embedded Kubernetes cluster: store, API server and its controllers, in a data folder or in memory.

pub mod cluster;

pub use cluster::{Cluster, Error, NODE, Options};
pub use knoll_kube_apiserver::{Identity, Server};
