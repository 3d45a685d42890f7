//! Free ports, chosen once for a cluster and kept with it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::process;

use anyhow::bail;

/// Below what the kernel hands to outgoing connections, and below the ports of Services (30000 and up), so that nobody
/// takes a port by accident while its process is down.
const RANGE: std::ops::Range<u16> = 20_000..29_000;

/// Everything of a cluster that listens.
pub const NAMES: &[&str] = &[
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubelet-healthz",
    "kube-proxy",
    "kube-proxy-metrics",
];

/// The port of each name.
pub type Ports = BTreeMap<String, u16>;

/// Completes `known` so that every name has a port. A name that `running` says is served keeps its port; any other
/// gets a new one when somebody else has taken it.
pub fn complete(known: &Ports, running: impl Fn(&str) -> bool) -> anyhow::Result<Ports> {
    let mut ports = Ports::new();
    for name in NAMES {
        if let Some(port) = known.get(*name)
            && (running(name) || is_free(*port))
        {
            ports.insert((*name).to_owned(), *port);
        }
    }
    for name in NAMES {
        if !ports.contains_key(*name) {
            let port = next_free(&ports)?;
            ports.insert((*name).to_owned(), port);
        }
    }
    Ok(ports)
}

fn next_free(taken: &Ports) -> anyhow::Result<u16> {
    // Runs that start at the same time begin their search at different places.
    let count = RANGE.end - RANGE.start;
    let begin = u16::try_from(process::id() * 37 % u32::from(count)).unwrap_or(0);
    let found = (0..count)
        .map(|step| RANGE.start + (begin + step) % count)
        .find(|port| !taken.values().any(|known| known == port) && is_free(*port));
    match found {
        Some(port) => Ok(port),
        None => bail!("there is no free port between {} and {}: end what holds them", RANGE.start, RANGE.end),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_name_gets_a_port_of_its_own_and_keeps_it() {
        let first = complete(&Ports::new(), |_| false).unwrap();
        assert_eq!(first.len(), NAMES.len());
        let distinct: std::collections::BTreeSet<u16> = first.values().copied().collect();
        assert_eq!(distinct.len(), NAMES.len());
        assert_eq!(complete(&first, |_| false).unwrap(), first);
    }

    #[test]
    fn a_port_that_another_program_took_is_replaced_unless_it_is_ours() {
        let first = complete(&Ports::new(), |_| false).unwrap();
        let port = first["etcd"];
        let _taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        assert_ne!(complete(&first, |_| false).unwrap()["etcd"], port);
        assert_eq!(complete(&first, |name| name == "etcd").unwrap()["etcd"], port);
    }
}
