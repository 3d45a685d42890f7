#![doc = include_str!("../README.md")]

mod cluster;

pub use cluster::{Cluster, Error, NODE, Options};
pub use knoll_kube_apiserver::{IN_PROCESS_USER, Identity, Server};
