//! URLs, IP addresses and networks in CEL expressions.

use std::fmt::{self, Display};
use std::net::IpAddr;

use crate::schema::format;

/// An absolute URL or an absolute path, in its parts.
#[derive(Debug)]
pub(crate) struct Url {
    pub text: String,
    pub scheme: String,
    pub host: String,
    pub path: String,
    pub query: String,
}

impl Url {
    pub fn parse(text: &str) -> Option<Self> {
        if !format::is_uri(text) {
            return None;
        }
        // A fragment never reaches a server, so a request URI keeps it as part of what it follows.
        let (before, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, rest) = if before.starts_with('/') { ("", before) } else { before.split_once(':')? };
        let (host, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
            Some(authority) => authority.split_at(authority.find('/').unwrap_or(authority.len())),
            None => ("", rest),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        Some(Self {
            text: text.to_owned(),
            scheme: scheme.to_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    /// The host without its port.
    pub fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default(),
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    pub fn port(&self) -> &str {
        let after = self.host.rsplit_once(']').map_or(self.host.as_str(), |(_, rest)| rest);
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// Every value of every key of the query.
    pub fn queries(&self) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (unescape(key), unescape(value));
            match found.iter_mut().find(|(k, _)| *k == key) {
                Some((_, values)) => values.push(value),
                None => found.push((key, vec![value])),
            }
        }
        found
    }
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = text.get(i + 1..i + 3).filter(|_| bytes[i] == b'%').and_then(|h| u8::from_str_radix(h, 16).ok());
        match (hex, bytes[i]) {
            (Some(byte), _) => {
                out.push(byte);
                i += 2;
            }
            (None, b'+') => out.push(b' '),
            (None, byte) => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Reads an IP address, without zones, leading zeros or IPv4 in IPv6.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let bad = |why: &str| format!("IP Address {} parse error during conversion from string: {why}", quoted(text));
    let ip: IpAddr = text.parse().map_err(|_| bad("unable to parse IP"))?;
    match ip {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(bad("IPv4-mapped IPv6 address is not allowed")),
        ip => Ok(ip),
    }
}

fn quoted(text: &str) -> String {
    crate::schema::error::go_quote(text)
}

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub ip: IpAddr,
    pub bits: u8,
}

impl Cidr {
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("network address parse error during conversion from string: {}", quoted(text));
        let (address, bits) = text.split_once('/').ok_or_else(bad)?;
        let ip = parse_ip(address).map_err(|_| bad())?;
        let digits = bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
        let bits: u8 = bits.parse().map_err(|_| bad())?;
        let max = if ip.is_ipv4() { 32 } else { 128 };
        if digits && bits <= max { Ok(Self { ip, bits }) } else { Err(bad()) }
    }

    /// The network with all bits cleared that do not count.
    pub fn masked(self) -> Self {
        let ip = match self.ip {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
        };
        Self { ip, bits: self.bits }
    }

    pub fn contains_ip(self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.ip.is_ipv4() && Self { ip, bits: self.bits }.masked().ip == self.masked().ip
    }

    pub fn contains(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains_ip(other.ip)
    }
}

impl Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}
