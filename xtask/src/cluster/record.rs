//! What was decided when a cluster was made, so that every later `up` makes the same one: `cluster.json`.

use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::place::{self, Place};
use super::ports::Ports;

const FILE: &str = "cluster.json";

/// The decisions of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The version of Kubernetes, without `v`.
    pub kube_version: String,
    /// Where its binaries are.
    pub assets: PathBuf,
    /// Whether the cluster has a node.
    pub node: bool,
    /// The ports of its processes.
    pub ports: Ports,
    /// The first address of the pods' network (a /16): the host's, as pods see it.
    pub gateway: Ipv4Addr,
    /// The bridge that pods are connected to.
    pub bridge: String,
}

impl Record {
    /// The record of a place, when there is one.
    pub fn read(place: &Place) -> anyhow::Result<Option<Record>> {
        let path = place.path(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let record = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged: run `cargo xtask cluster down --delete`", path.display()))?;
        Ok(Some(record))
    }

    pub fn write(&self, place: &Place) -> anyhow::Result<()> {
        place::write(&place.path(FILE), serde_json::to_string_pretty(self)?.as_bytes(), false)
    }

    /// The port of a process.
    pub fn port(&self, name: &str) -> anyhow::Result<u16> {
        self.ports.get(name).copied().with_context(|| format!("no port was chosen for {name}"))
    }

    /// The pods' network, as `address/length`.
    pub fn pod_network(&self) -> String {
        let [a, b, _, _] = self.gateway.octets();
        format!("{a}.{b}.0.0/16")
    }
}
