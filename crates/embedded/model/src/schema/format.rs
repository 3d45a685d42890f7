//! The string formats that Kubernetes checks. Any other format is documentation only.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use super::duration;

/// A `format` of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the names of the formats")]
pub enum Format {
    BsonObjectId,
    Byte,
    Cidr,
    CreditCard,
    Date,
    DateTime,
    Duration,
    Email,
    HexColor,
    Hostname,
    Ipv4,
    Ipv6,
    Isbn,
    Isbn10,
    Isbn13,
    Mac,
    Password,
    RgbColor,
    Ssn,
    Uri,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
}

impl Format {
    /// The format of that name, if Kubernetes checks it. Dashes do not matter.
    pub fn named(name: &str) -> Option<Self> {
        let plain: String = name.chars().filter(|c| *c != '-').collect();
        Some(match plain.as_str() {
            "bsonobjectid" => Self::BsonObjectId,
            "byte" => Self::Byte,
            "cidr" => Self::Cidr,
            "creditcard" => Self::CreditCard,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            "duration" => Self::Duration,
            "email" => Self::Email,
            "hexcolor" => Self::HexColor,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "isbn" => Self::Isbn,
            "isbn10" => Self::Isbn10,
            "isbn13" => Self::Isbn13,
            "mac" => Self::Mac,
            "password" => Self::Password,
            "rgbcolor" => Self::RgbColor,
            "ssn" => Self::Ssn,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            "uuid3" => Self::Uuid3,
            "uuid4" => Self::Uuid4,
            "uuid5" => Self::Uuid5,
            _ => return None,
        })
    }

    /// Whether `text` is of this format.
    pub fn admits(self, text: &str) -> bool {
        match self {
            Self::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Self::Byte => is_base64(text),
            Self::Cidr => is_cidr(text),
            Self::CreditCard => is_credit_card(text),
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
            Self::Duration => parse_duration(text).is_some(),
            Self::Email => is_email(text),
            Self::HexColor => {
                let digits = text.strip_prefix('#').unwrap_or(text);
                matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
            }
            Self::Hostname => {
                HOSTNAME.is_match(text) && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
            }
            Self::Ipv4 => text.contains('.') && is_ip(text),
            Self::Ipv6 => text.contains(':') && is_ip(text),
            Self::Isbn => is_isbn10(text) || is_isbn13(text),
            Self::Isbn10 => is_isbn10(text),
            Self::Isbn13 => is_isbn13(text),
            Self::Mac => is_mac(text),
            Self::Password => true,
            Self::RgbColor => RGB.is_match(text),
            Self::Ssn => SSN.is_match(text),
            Self::Uri => is_uri(text),
            Self::Uuid => is_uuid(text, None, false),
            Self::Uuid3 => is_uuid(text, Some(b'3'), false),
            Self::Uuid4 => is_uuid(text, Some(b'4'), true),
            Self::Uuid5 => is_uuid(text, Some(b'5'), true),
        }
    }
}

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});
static RGB: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*";
    pattern(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static SSN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));

/// The patterns above are constants and tested; one that did not compile would match nothing.
fn pattern(source: &str) -> Regex {
    Regex::new(source).or_else(|_| Regex::new("[^\\s\\S]")).unwrap_or_else(|e| unreachable!("{e}"))
}

/// Reads a duration in Go's form, or in the looser form (`3 days`) that the `duration` format admits as well.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = duration::parse(text) {
        return Some(nanos);
    }
    const SECOND: i64 = 1_000_000_000;
    // The short names must match exactly; the last one is a prefix, so that plurals match too.
    const UNITS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", SECOND),
        (&["m"], "min", 60 * SECOND),
        (&["h", "hr"], "hour", 3_600 * SECOND),
        (&["d"], "day", 86_400 * SECOND),
        (&["w", "wk"], "week", 7 * 86_400 * SECOND),
    ];
    let mut total: Option<i64> = None;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let tail = &rest[start..];
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let factor: i64 = tail[..digits].parse().ok()?;
        let unit_text = tail[digits..].trim_start();
        let end = unit_text.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(unit_text.len());
        let unit = unit_text[..end].to_lowercase();
        let known = UNITS.iter().find(|(short, long, _)| short.contains(&unit.as_str()) || unit.starts_with(long));
        if let Some((_, _, nanos)) = known {
            total = Some(total.unwrap_or(0).wrapping_add(factor.wrapping_mul(*nanos)));
        }
        rest = &unit_text[end..];
    }
    total
}

fn is_base64(text: &str) -> bool {
    let bytes = text.as_bytes();
    let body = bytes.iter().rev().skip_while(|b| **b == b'=').count();
    !bytes.is_empty()
        && bytes.len().is_multiple_of(4)
        && bytes.len() - body <= 2
        && bytes[..body].iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn is_ip(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok() || sloppy_ipv4(text).is_some()
}

/// Go before 1.17 took leading zeros in IPv4 addresses as decimal, and Kubernetes still does.
fn sloppy_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let max = if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else if sloppy_ipv4(address).is_some() {
        32
    } else {
        return false;
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|bits| bits <= max)
}

pub(crate) fn is_date(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() == 10
        && b[4] == b'-'
        && b[7] == b'-'
        && b.iter().enumerate().all(|(i, c)| matches!(i, 4 | 7) || c.is_ascii_digit())
        && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['t', 'T']) else {
        return false;
    };
    if !is_date(date) {
        return false;
    }
    let b = time.as_bytes();
    let two = |at: usize, max: u8| {
        b.len() >= at + 2
            && b[at].is_ascii_digit()
            && b[at + 1].is_ascii_digit()
            && (b[at] - b'0') * 10 + (b[at + 1] - b'0') <= max
    };
    if !(two(0, 23) && two(3, 59) && two(6, 59) && b[2] == b':' && b[5] == b':') {
        return false;
    }
    let mut zone = &b[8..];
    if zone.first().is_some_and(|c| !matches!(c, b'z' | b'Z' | b'+' | b'-')) {
        let digits = zone[1..].iter().take_while(|c| c.is_ascii_digit()).count();
        if digits == 0 {
            return false;
        }
        zone = &zone[1 + digits..];
    }
    match zone {
        b"z" | b"Z" => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => [h1, h2, m1, m2].iter().all(|c| c.is_ascii_digit()),
        _ => false,
    }
}

fn is_email(text: &str) -> bool {
    // A display name may come first, with the address in angle brackets.
    let address = match text.rsplit_once('<') {
        Some((_, rest)) => match rest.trim_end().strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let atom = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    let dotted = |s: &str| !s.is_empty() && s.split('.').all(|part| !part.is_empty() && part.chars().all(atom));
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || dotted(local)) && (dotted(domain) || (domain.starts_with('[') && domain.ends_with(']')))
}

fn is_mac(text: &str) -> bool {
    let hex = |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    for separator in [':', '-'] {
        let parts: Vec<&str> = text.split(separator).collect();
        if matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|p| hex(p, 2)) {
            return true;
        }
    }
    let parts: Vec<&str> = text.split('.').collect();
    matches!(parts.len(), 3 | 4 | 10) && parts.iter().all(|p| hex(p, 4))
}

fn is_uuid(text: &str, version: Option<u8>, variant: bool) -> bool {
    let mut rest = text.as_bytes();
    for (i, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 && rest.first() == Some(&b'-') {
            rest = &rest[1..];
        }
        if rest.len() < len || !rest[..len].iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        if i == 2 && version.is_some_and(|v| rest[0] != v) {
            return false;
        }
        if i == 3 && variant && !matches!(rest[0].to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b') {
            return false;
        }
        rest = &rest[len..];
    }
    rest.is_empty()
}

/// A URI as a request line may carry it: absolute, or a path from the root.
pub(crate) fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return valid_percent(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let scheme_ok = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    if !scheme_ok || !valid_percent(rest) {
        return false;
    }
    let Some(authority) = rest.strip_prefix("//") else {
        return true;
    };
    let host = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if let Some(v6) = host.strip_prefix('[') {
        return v6.split_once(']').is_some_and(|(address, port)| {
            address.parse::<Ipv6Addr>().is_ok()
                && (port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit())))
        });
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    !name.contains([' ', '"', '<', '>', '\\', '^', '`', '{', '}', '|']) && port.bytes().all(|b| b.is_ascii_digit())
}

fn valid_percent(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or_default().as_bytes();
    path.iter()
        .enumerate()
        .all(|(i, b)| *b != b'%' || path.get(i + 1..i + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit)))
}

fn is_isbn10(text: &str) -> bool {
    let plain: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'-' | b' ')).collect();
    plain.len() == 10
        && plain[..9].iter().all(u8::is_ascii_digit)
        && (plain[9].is_ascii_digit() || plain[9] == b'X')
        && plain
            .iter()
            .enumerate()
            .map(|(i, b)| (i as u32 + 1) * if *b == b'X' { 10 } else { u32::from(b - b'0') })
            .sum::<u32>()
            .is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let plain: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'-' | b' ')).collect();
    plain.len() == 13
        && plain.iter().all(u8::is_ascii_digit)
        && plain
            .iter()
            .enumerate()
            .map(|(i, b)| u32::from(b - b'0') * if i % 2 == 0 { 1 } else { 3 })
            .sum::<u32>()
            .is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_digit).map(|b| b - b'0').collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, d)| {
            let doubled = u32::from(*d) * if i % 2 == 1 { 2 } else { 1 };
            if doubled > 9 { doubled - 9 } else { doubled }
        })
        .sum();
    (13..=16).contains(&digits.len()) && sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn formats_admit_what_kubernetes_admits() {
        let rows: &[(&str, &[&str], &[&str])] = &[
            (
                "date-time",
                &["2024-01-02T03:04:05Z", "2024-01-02t03:04:05.123+01:00"],
                &["2024-01-02", "2024-13-02T03:04:05Z", "2024-01-02T24:00:00Z", "x", ""],
            ),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-9"]),
            ("duration", &["90s", "3 days", "1h"], &["x", "", "5"]),
            ("byte", &["YQ==", "YWJj"], &["", "YQ=", "Y*=="]),
            ("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "::1"]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "g::"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33"]),
            ("uri", &["http://a/b?c#d", "/x", "urn:a:b", "https://[::1]:80/"], &["", "a/b", "http://a b/"]),
            ("email", &["a@b.c", "N <a@b>"], &["a", "@b", "a@"]),
            ("hostname", &["a.example", "web", "a-b.example.com"], &["-a.example", "a..b", "web-1", "a.b"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000"], &["123"]),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("mac", &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23"]),
            ("isbn", &["978-0321751041", "0321751043"], &["1"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
            ("rgbcolor", &["rgb(255,0, 1)"], &["rgb(256,0,1)"]),
            ("hexcolor", &["#FFF", "aabbcc"], &["#ab"]),
            ("ssn", &["111-22-3333"], &["11-22-3333"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["5"]),
            ("password", &[""], &[]),
        ];
        for (name, good, bad) in rows {
            let format = Format::named(name).unwrap();
            for text in *good {
                assert!(format.admits(text), "{name}: {text}");
            }
            for text in *bad {
                assert!(!format.admits(text), "{name}: {text}");
            }
        }
        assert_eq!(Format::named("int32"), None);
        // Known to Kubernetes, but not enforced by 1.34.
        assert_eq!(Format::named("k8s-short-name"), None);
    }
}
