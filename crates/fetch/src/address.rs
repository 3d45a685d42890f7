//! Which addresses the operator may fetch from.
//!
//! A source names a host, and the writer of the source need not be allowed to reach that host: the operator's network is
//! not the user's. So every address is judged before a connection to it is made: addresses in URLs, DNS answers, and
//! the targets of redirects and submodules.
//!
//! *Guarantees.* [`judge`] is pure. An address that is not publicly routed is refused unless an administrator has opened
//! a range that contains it. An IPv6 address that stands for an IPv4 address is judged as that IPv4 address.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

pub use ipnet::IpNet;
use ipnet::{Ipv4Net, Ipv6Net};

/// IPv4 ranges that are not publicly routed, or that lead to the operator's own host.
const REFUSED_V4: [(Ipv4Net, &str); 14] = [
    (v4([0, 0, 0, 0], 8), "an unspecified address"),
    (v4([10, 0, 0, 0], 8), "a private address"),
    (v4([100, 64, 0, 0], 10), "a shared (carrier-grade NAT) address"),
    (v4([127, 0, 0, 0], 8), "a loopback address"),
    (v4([168, 63, 129, 16], 32), "a cloud metadata address"),
    (v4([169, 254, 0, 0], 16), "a link-local address"),
    (v4([172, 16, 0, 0], 12), "a private address"),
    (v4([192, 0, 0, 0], 24), "a reserved address"),
    (v4([192, 0, 2, 0], 24), "a documentation address"),
    (v4([192, 168, 0, 0], 16), "a private address"),
    (v4([198, 18, 0, 0], 15), "a benchmarking address"),
    (v4([198, 51, 100, 0], 24), "a documentation address"),
    (v4([203, 0, 113, 0], 24), "a documentation address"),
    (v4([224, 0, 0, 0], 3), "a multicast or reserved address"),
];

/// IPv6 ranges with a name of their own. Every other address outside of [`PUBLIC_V6`] is refused as reserved.
const REFUSED_V6: [(Ipv6Net, &str); 9] = [
    (v6([0, 0, 0, 0], 128), "an unspecified address"),
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), "a loopback address"),
    (v6([0xfc00, 0, 0, 0], 7), "a private address"),
    (v6([0xfe80, 0, 0, 0], 10), "a link-local address"),
    (v6([0xfec0, 0, 0, 0], 10), "a private address"),
    (v6([0xff00, 0, 0, 0], 8), "a multicast address"),
    // Teredo and other special uses. Teredo hides an IPv4 address behind a relay.
    (v6([0x2001, 0, 0, 0], 23), "a reserved address"),
    (v6([0x2001, 0xdb8, 0, 0], 32), "a documentation address"),
    (v6([0x3fff, 0, 0, 0], 20), "a documentation address"),
];

/// The only IPv6 range with publicly routed addresses.
const PUBLIC_V6: Ipv6Net = v6([0x2000, 0, 0, 0], 3);
/// IPv6 addresses that a NAT64 gateway translates to the IPv4 address in their last 32 bits.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0], 96);
/// IPv6 addresses of 6to4. The IPv4 address follows the first 16 bits.
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0, 0], 16);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c, d]: [u16; 4], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

/// The ranges that administrators have opened. Publicly routed addresses are always open.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    opened: Arc<[IpNet]>,
}

impl Addresses {
    #[must_use]
    pub fn new(opened: &[IpNet]) -> Self {
        Self { opened: opened.into() }
    }

    /// Whether the operator may connect to `address`.
    ///
    /// # Errors
    /// If it may not.
    pub fn check(&self, address: IpAddr) -> Result<(), Refusal> {
        judge(address, &self.opened)
    }

    /// Checks the host of a URL if it is an address. A name is checked when it is resolved.
    pub(crate) fn check_host(&self, host: &str) -> Result<(), Refusal> {
        literal(host).map_or(Ok(()), |address| self.check(address))
    }

    /// The addresses of a DNS answer that may be connected to.
    ///
    /// # Errors
    /// If all of them are refused: the reason of the first.
    pub(crate) fn open_among(&self, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, Refusal> {
        let mut open = Vec::new();
        let mut refused = None;
        for address in found {
            match self.check(address.ip()) {
                Ok(()) => open.push(address),
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        match refused {
            Some(refusal) if open.is_empty() => Err(refusal),
            _ => Ok(open),
        }
    }
}

/// An address that the operator does not connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub address: IpAddr,
    /// The kind of the address, with an article.
    pub kind: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { address, kind } = self;
        let opens = IpNet::from(represented(*address));
        write!(
            f,
            "`{address}` is {kind}, which this operator does not fetch from; if it should, start the operator with `--allow-source-cidr {opens}`"
        )
    }
}

impl std::error::Error for Refusal {}

/// Whether an address may be connected to, given the ranges that are opened.
///
/// # Errors
/// If it may not.
pub fn judge(address: IpAddr, opened: &[IpNet]) -> Result<(), Refusal> {
    let real = represented(address);
    if opened.iter().any(|range| range.contains(&real)) {
        return Ok(());
    }
    let kind = match real {
        IpAddr::V4(real) => REFUSED_V4.iter().find(|(range, _)| range.contains(&real)).map(|(_, kind)| *kind),
        IpAddr::V6(real) => {
            let named = REFUSED_V6.iter().find(|(range, _)| range.contains(&real)).map(|(_, kind)| *kind);
            named.or_else(|| (!PUBLIC_V6.contains(&real)).then_some("a reserved address"))
        }
    };
    kind.map_or(Ok(()), |kind| Err(Refusal { address, kind }))
}

/// The address that packets to `address` reach: the IPv4 address that an IPv6 address stands for, or itself.
fn represented(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let [_, a, b, .., y, z] = v6.segments();
    let joined = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    if let Some(v4) = v6.to_ipv4_mapped() {
        IpAddr::V4(v4)
    } else if NAT64.contains(&v6) {
        joined(y, z)
    } else if SIX_TO_FOUR.contains(&v6) {
        joined(a, b)
    } else {
        address
    }
}

/// The address that a URL has as its host, with or without brackets.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Parses a range of addresses. An address alone is a range of one.
///
/// # Errors
/// If it is neither, or has bits outside of its prefix: `10.1.2.3/8` is probably not meant to open all of `10.0.0.0/8`.
pub fn parse_range(text: &str) -> Result<IpNet, String> {
    let wrong = || format!("`{text}` is not a range of addresses; write for example `10.1.0.0/16` or `fd00::/8`");
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    let range: IpNet = text.parse().map_err(|_| wrong())?;
    if range.trunc() != range {
        return Err(format!("`{text}` has bits outside of its prefix; did you mean `{}`?", range.trunc()));
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn addresses_that_are_not_publicly_routed_are_refused() {
        let rows: [(&str, Option<&str>); 52] = [
            ("1.1.1.1", None),
            ("140.82.121.3", None),
            ("100.63.255.255", None),
            ("100.128.0.0", None),
            ("172.15.255.255", None),
            ("172.32.0.0", None),
            ("223.255.255.255", None),
            ("2606:50c0:8000::153", None),
            ("2a00:1450::1", None),
            ("0.0.0.0", Some("an unspecified address")),
            ("0.1.2.3", Some("an unspecified address")),
            ("10.0.0.1", Some("a private address")),
            ("10.255.255.255", Some("a private address")),
            ("100.64.0.1", Some("a shared (carrier-grade NAT) address")),
            ("100.100.100.200", Some("a shared (carrier-grade NAT) address")),
            ("127.0.0.1", Some("a loopback address")),
            ("127.255.0.1", Some("a loopback address")),
            ("168.63.129.16", Some("a cloud metadata address")),
            ("169.254.169.254", Some("a link-local address")),
            ("169.254.170.2", Some("a link-local address")),
            ("172.16.0.1", Some("a private address")),
            ("172.31.255.255", Some("a private address")),
            ("192.0.0.192", Some("a reserved address")),
            ("192.0.2.7", Some("a documentation address")),
            ("192.168.1.1", Some("a private address")),
            ("198.19.0.1", Some("a benchmarking address")),
            ("198.51.100.1", Some("a documentation address")),
            ("203.0.113.9", Some("a documentation address")),
            ("224.0.0.1", Some("a multicast or reserved address")),
            ("240.0.0.1", Some("a multicast or reserved address")),
            ("255.255.255.255", Some("a multicast or reserved address")),
            ("::", Some("an unspecified address")),
            ("::1", Some("a loopback address")),
            ("::2", Some("a reserved address")),
            // IPv4-compatible, which no router takes.
            ("::127.0.0.1", Some("a reserved address")),
            ("fc00::1", Some("a private address")),
            ("fd00:ec2::254", Some("a private address")),
            ("fe80::1", Some("a link-local address")),
            ("febf::1", Some("a link-local address")),
            ("fec0::1", Some("a private address")),
            ("ff02::1", Some("a multicast address")),
            ("2001::1", Some("a reserved address")),
            ("2001:db8::1", Some("a documentation address")),
            ("3fff::1", Some("a documentation address")),
            ("64:ff9b:1::a00:1", Some("a reserved address")),
            ("5f00::1", Some("a reserved address")),
            // Forms of IPv4 addresses.
            ("::ffff:1.1.1.1", None),
            ("::ffff:127.0.0.1", Some("a loopback address")),
            ("::ffff:169.254.169.254", Some("a link-local address")),
            ("64:ff9b::a9fe:a9fe", Some("a link-local address")),
            ("2002:7f00:1::1", Some("a loopback address")),
            ("2002:101:101::1", None),
        ];
        for (address, expect) in rows {
            let kind = judge(address.parse().unwrap(), &[]).err().map(|refusal| refusal.kind);
            assert_eq!(kind, expect, "{address}");
        }
    }

    #[test]
    fn an_opened_range_opens_that_range_only() {
        let rows = [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.2", "127.0.0.1", false),
            ("10.1.2.3", "10.1.0.0/16", true),
            ("10.2.2.3", "10.1.0.0/16", false),
            ("::ffff:10.1.2.3", "10.1.0.0/16", true),
            ("64:ff9b::a01:203", "10.1.0.0/16", true),
            // All of IPv6 does not open the IPv4 addresses that some of it stands for.
            ("::ffff:127.0.0.1", "::/0", false),
            ("64:ff9b::7f00:1", "::/0", false),
            ("::1", "::/0", true),
            ("fd00::1", "fd00::/8", true),
            ("fe80::1", "fd00::/8", false),
            ("169.254.169.254", "0.0.0.0/0", true),
            ("::1", "0.0.0.0/0", false),
        ];
        for (address, range, expect) in rows {
            let opened = [parse_range(range).unwrap()];
            assert_eq!(judge(address.parse().unwrap(), &opened).is_ok(), expect, "{address} {range}");
        }
    }

    #[test]
    fn a_refusal_names_the_address_and_the_setting() {
        let said = judge("64:ff9b::a9fe:a9fe".parse().unwrap(), &[]).unwrap_err().to_string();
        assert!(said.contains("`64:ff9b::a9fe:a9fe` is a link-local address"), "{said}");
        assert!(said.contains("`--allow-source-cidr 169.254.169.254/32`"), "{said}");
    }

    #[test]
    fn of_a_dns_answer_only_open_addresses_are_connected_to() {
        let addresses = Addresses::default();
        let at = |address: &str| SocketAddr::new(address.parse().unwrap(), 443);
        let mixed = [at("10.0.0.1"), at("1.1.1.1"), at("::1")];
        assert_eq!(addresses.open_among(mixed.into_iter()).unwrap(), [at("1.1.1.1")]);
        let inner = [at("10.0.0.1"), at("127.0.0.1")];
        assert_eq!(addresses.open_among(inner.into_iter()).unwrap_err().address, at("10.0.0.1").ip());
        assert!(addresses.open_among([].into_iter()).unwrap().is_empty());
    }

    #[test]
    fn ranges_are_written_whole() {
        assert_eq!(parse_range("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(parse_range("::1").unwrap().to_string(), "::1/128");
        assert!(parse_range("10.1.2.3/8").unwrap_err().contains("did you mean `10.0.0.0/8`?"));
        for wrong in ["", "10.0.0.0/33", "localhost", "10.0.0.0/8,", "10.0.0.0/"] {
            assert!(parse_range(wrong).unwrap_err().contains("is not a range of addresses"), "{wrong}");
        }
    }
}
