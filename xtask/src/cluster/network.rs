//! The pods' network on this machine: a bridge, the packet filter rules that let pods out, and taking both away again.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

use super::packages::Tools;
use super::place::Place;
use super::record::Record;
use crate::tools;

/// The networks that are tried for pods, in this order: 10.88.0.0/16 and those after it.
const SECOND_BYTES: std::ops::Range<u8> = 88..120;

/// The name of a cluster's bridge. Interfaces have short names, so it is made from the folder's.
pub fn bridge_name(place: &Place) -> String {
    let digest = crate::image::archive::digest(place.folder.to_string_lossy().as_bytes());
    format!("knoll{}", &digest[..8])
}

/// The host's address in a network that no interface of this machine is in. A bridge of our own that an earlier run
/// left behind does not count.
pub fn free_gateway(bridge: &str) -> anyhow::Result<Ipv4Addr> {
    let Some(ip) = tools::find_system("ip") else {
        return Ok(gateway(SECOND_BYTES.start));
    };
    let output = Command::new(ip).args(["-o", "-4", "addr", "show"]).output().context("cannot start ip")?;
    let taken = second_bytes(&String::from_utf8_lossy(&output.stdout), bridge);
    let free = SECOND_BYTES.clone().find(|byte| !taken.contains(byte));
    free.map(gateway).context("every network from 10.88.0.0/16 to 10.119.0.0/16 is taken on this machine")
}

fn gateway(second: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, second, 0, 1)
}

/// The second byte of each address `10.x` that `ip -o -4 addr` shows.
fn second_bytes(addresses: &str, bridge: &str) -> Vec<u8> {
    addresses
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let interface = words.next()?;
            let address: Ipv4Addr =
                words.find(|word| *word == "inet").and(words.next())?.split('/').next()?.parse().ok()?;
            let [first, second, _, _] = address.octets();
            (first == 10 && interface != bridge).then_some(second)
        })
        .collect()
}

/// Makes the bridge and the rules, also when some of them are there already.
pub fn ensure(tools: &Tools, record: &Record) -> anyhow::Result<()> {
    let bridge = &record.bridge;
    if !bridge_exists(tools, bridge)? {
        run(Command::new(&tools.ip).args(["link", "add", bridge, "type", "bridge"]))?;
    }
    let address = format!("{}/16", record.gateway);
    run(Command::new(&tools.ip).args(["addr", "replace", &address, "dev", bridge]))?;
    run(Command::new(&tools.ip).args(["link", "set", bridge, "up"]))?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot let this machine forward packets")?;
    for rule in rules(record) {
        if !rule.exists(tools)? {
            run(&mut rule.command(tools, "-A"))?;
        }
    }
    Ok(())
}

/// Takes away the bridge, our rules, and the chains that kubelet and kube-proxy made.
pub fn remove(tools: &Tools, record: &Record) -> anyhow::Result<()> {
    for rule in rules(record) {
        while rule.exists(tools)? {
            run(&mut rule.command(tools, "-D"))?;
        }
    }
    for program in ["iptables", "ip6tables"] {
        if let Some(program) = tools::find_system(program) {
            for table in ["filter", "nat", "mangle"] {
                remove_chains(&program, table)?;
            }
        }
    }
    if bridge_exists(tools, &record.bridge)? {
        run(Command::new(&tools.ip).args(["link", "delete", &record.bridge]))?;
    }
    Ok(())
}

fn bridge_exists(tools: &Tools, bridge: &str) -> anyhow::Result<bool> {
    let show = Command::new(&tools.ip).args(["link", "show", bridge]).output().context("cannot start ip")?;
    Ok(show.status.success())
}

/// A packet filter rule.
struct Rule {
    table: &'static str,
    chain: &'static str,
    words: Vec<String>,
}

fn rules(record: &Record) -> Vec<Rule> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let Record { bridge, .. } = record;
    let comment = format!("-m comment --comment {bridge}");
    let network = record.pod_network();
    vec![
        Rule {
            table: "nat",
            chain: "POSTROUTING",
            words: words(format!("-s {network} ! -o {bridge} {comment} -j MASQUERADE")),
        },
        // Some machines, those with Docker among them, forward nothing that is not allowed by name.
        Rule { table: "filter", chain: "FORWARD", words: words(format!("-i {bridge} {comment} -j ACCEPT")) },
        Rule { table: "filter", chain: "FORWARD", words: words(format!("-o {bridge} {comment} -j ACCEPT")) },
    ]
}

impl Rule {
    fn command(&self, tools: &Tools, action: &str) -> Command {
        let mut command = Command::new(&tools.iptables);
        command.args(["-w", "-t", self.table, action, self.chain]).args(&self.words);
        command
    }

    fn exists(&self, tools: &Tools) -> anyhow::Result<bool> {
        let status = self.command(tools, "-C").stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(status.context("cannot start iptables")?.success())
    }
}

/// Removes every chain of Kubernetes from a table. A machine has one node at most, so they are all of this cluster.
fn remove_chains(iptables: &Path, table: &str) -> anyhow::Result<()> {
    let iptables = |words: &[&str]| {
        let mut command = Command::new(iptables);
        command.args(["-w", "-t", table]).args(words);
        command
    };
    let Ok(listing) = run(&mut iptables(&["-S"])) else {
        // A kernel may lack a table, above all of IPv6's; then there is nothing in it.
        return Ok(());
    };
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    for (chain, number) in jumps(&listing) {
        run(&mut iptables(&["-D", &chain, &number.to_string()]))?;
    }
    let chains: Vec<&str> =
        listing.lines().filter_map(|line| line.strip_prefix("-N ")).filter(|c| c.starts_with("KUBE-")).collect();
    for chain in &chains {
        run(&mut iptables(&["-F", chain]))?;
    }
    for chain in &chains {
        run(&mut iptables(&["-X", chain]))?;
    }
    Ok(())
}

/// The rules of other chains that jump into chains of Kubernetes: chain and number, the last rule first, so that
/// removing one does not renumber the next.
fn jumps(listing: &str) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    let mut found = Vec::new();
    for line in listing.lines() {
        let Some(chain) = line.strip_prefix("-A ").and_then(|rest| rest.split(' ').next()) else {
            continue;
        };
        let number = counts.entry(chain).or_default();
        *number += 1;
        if !chain.starts_with("KUBE-") && line.contains(" -j KUBE-") {
            found.push((chain.to_owned(), *number));
        }
    }
    found.reverse();
    found
}

/// Runs a command whose output matters only when it fails.
pub fn run(command: &mut Command) -> anyhow::Result<Output> {
    let shown = format!("{command:?}").replace('"', "");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_other_interfaces_are_taken() {
        let addresses = "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever\n\
                         4: eth0    inet 10.91.0.2/24 brd 10.91.0.255 scope global eth0\n\
                         5: podman0    inet 10.88.0.1/16 scope global podman0\n\
                         6: knoll1    inet 10.89.0.1/16 scope global knoll1\n";
        assert_eq!(second_bytes(addresses, "knoll1"), [91, 88]);
        assert_eq!(second_bytes("", "knoll1"), [0u8; 0]);
    }

    #[test]
    fn jumps_into_kubernetes_are_found_from_the_end() {
        let listing = "-P FORWARD ACCEPT\n-N KUBE-FORWARD\n-A INPUT -j KUBE-A\n-A FORWARD -m comment --comment \
                       \"x y\" -j KUBE-FORWARD\n-A FORWARD -i knoll1 -j ACCEPT\n-A FORWARD -j KUBE-B\n-A KUBE-FORWARD \
                       -j KUBE-C\n";
        let expected = [("FORWARD".to_owned(), 3), ("FORWARD".to_owned(), 1), ("INPUT".to_owned(), 1)];
        assert_eq!(jumps(listing), expected);
    }
}
