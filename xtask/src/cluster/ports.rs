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
    complete_where(known, running, is_free)
}

fn complete_where(
    known: &Ports,
    running: impl Fn(&str) -> bool,
    is_free: impl Fn(u16) -> bool,
) -> anyhow::Result<Ports> {
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
            let port = next_free(&ports, &is_free)?;
            ports.insert((*name).to_owned(), port);
        }
    }
    Ok(ports)
}

fn next_free(taken: &Ports, is_free: impl Fn(u16) -> bool) -> anyhow::Result<u16> {
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

    /// Nothing else listens: what other programs of this machine do is not for a test to know.
    const ALL_FREE: fn(u16) -> bool = |_| true;

    #[test]
    fn every_name_gets_a_port_of_its_own_and_keeps_it() {
        let first = complete_where(&Ports::new(), |_| false, ALL_FREE).unwrap();
        assert_eq!(first.len(), NAMES.len());
        let distinct: std::collections::BTreeSet<u16> = first.values().copied().collect();
        assert_eq!(distinct.len(), NAMES.len());
        assert_eq!(complete_where(&first, |_| false, ALL_FREE).unwrap(), first);
    }

    #[test]
    fn a_port_that_another_program_took_is_replaced_unless_it_is_ours() {
        let first = complete_where(&Ports::new(), |_| false, ALL_FREE).unwrap();
        let taken = first["etcd"];
        let free = |port| port != taken;
        assert_ne!(complete_where(&first, |_| false, free).unwrap()["etcd"], taken);
        assert_eq!(complete_where(&first, |name| name == "etcd", free).unwrap()["etcd"], taken);
    }

    #[test]
    fn a_port_on_which_something_listens_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        assert!(!is_free(listener.local_addr().unwrap().port()));
    }
}
