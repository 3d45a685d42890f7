//! The functions and arithmetic operators that expressions may call.

use std::rc::Rc;

use ::cel::common::ast::operators;
use serde_json::Value;

use super::eval::{Answer, Evaluation, Fault};
use super::network::{Cidr, Url, parse_ip};
use super::value::{List, Map, Val};
use super::{text, time};
use crate::quantity::Quantity;
use crate::schema::error::go_float;

/// Calls a function. A method's target comes first among the values.
pub(crate) fn call<'a>(run: &Evaluation<'a>, name: &str, mut values: Vec<Val<'a>>) -> Answer<'a> {
    match (name, values.as_mut_slice()) {
        (operators::LOGICAL_NOT, [Val::Bool(b)]) => Ok(Val::Bool(!*b)),
        (operators::NEGATE, [Val::Int(i)]) => i.checked_neg().map(Val::Int).ok_or_else(overflow),
        (operators::NEGATE, [Val::Double(d)]) => Ok(Val::Double(-*d)),
        (operators::ADD, [a, b]) => add(run, a, b),
        (operators::SUBSTRACT, [a, b]) => subtract(a, b),
        (operators::MULTIPLY, [a, b]) => multiply(a, b),
        (operators::DIVIDE, [a, b]) => divide(a, b),
        (operators::MODULO, [a, b]) => modulo(a, b),
        ("size", [value]) => size(value),
        ("type", [value]) => Ok(Val::Type(value.type_name())),
        ("dyn", [value]) => Ok(value.clone()),
        ("int" | "uint" | "double" | "string" | "bool" | "bytes", [value]) => convert(name, value),
        ("duration" | "timestamp", [value]) => time::convert(name, value),
        ("hasValue", [Val::Optional(inner)]) => Ok(Val::Bool(inner.is_some())),
        ("value", [Val::Optional(inner)]) => match inner {
            Some(value) => Ok((**value).clone()),
            None => Err(Fault::other("optional.none() dereference")),
        },
        ("or", [first @ Val::Optional(_), second @ Val::Optional(_)]) => {
            Ok(if matches!(first, Val::Optional(Some(_))) { first.clone() } else { second.clone() })
        }
        ("orValue", [Val::Optional(inner), other]) => {
            Ok(inner.as_ref().map_or_else(|| other.clone(), |v| (**v).clone()))
        }
        (_, [Val::Str(_), ..]) => match text::call(run, name, &values) {
            Err(Fault::NoSuchOverload) => parse(name, &values),
            answer => answer,
        },
        ("indexOf" | "lastIndexOf", [Val::List(list), wanted]) => {
            run.spend(list.len())?;
            let mut found = -1;
            for (i, item) in list.iter().enumerate() {
                if item?.equals(wanted)? {
                    found = i as i64;
                    if name == "indexOf" {
                        break;
                    }
                }
            }
            Ok(Val::Int(found))
        }
        (_, [Val::List(list), rest @ ..]) => {
            run.spend(list.len())?;
            lists(run, name, list, rest)
        }
        (_, [Val::Duration(_) | Val::Timestamp(_), ..]) => time::call(name, &values),
        (_, [Val::Quantity(q), rest @ ..]) => quantities(name, *q, rest),
        (_, [Val::Url(url)]) => urls(name, url),
        (_, [Val::Ip(_) | Val::Cidr(_), ..]) => networks(name, &values),
        ("isQuantity" | "isURL" | "isIP" | "isCIDR", [_]) => Err(Fault::NoSuchOverload),
        _ => Err(Fault::NoSuchOverload),
    }
}

/// Calls a function whose name has a namespace, such as `optional.of`.
pub(crate) fn namespaced<'a>(run: &Evaluation<'a>, namespace: &str, name: &str, values: Vec<Val<'a>>) -> Answer<'a> {
    match (namespace, name, values.as_slice()) {
        ("optional", "none", []) => Ok(Val::Optional(None)),
        ("optional", "of", [value]) => Ok(Val::Optional(Some(Rc::new(value.clone())))),
        ("optional", "ofNonZeroValue", [value]) => {
            Ok(Val::Optional(if is_zero(value) { None } else { Some(Rc::new(value.clone())) }))
        }
        ("sets", _, [Val::List(a), Val::List(b)]) => {
            run.spend(a.len().saturating_mul(b.len()))?;
            let subset = |a: &List<'a>, b: &List<'a>| -> Result<bool, Fault> {
                for item in a.iter() {
                    if !b.contains(&item?)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            match name {
                "contains" => subset(b, a).map(Val::Bool),
                "equivalent" => Ok(Val::Bool(subset(a, b)? && subset(b, a)?)),
                "intersects" => {
                    for item in a.iter() {
                        if b.contains(&item?)? {
                            return Ok(Val::Bool(true));
                        }
                    }
                    Ok(Val::Bool(false))
                }
                _ => Err(Fault::NoSuchOverload),
            }
        }
        ("ip", "isCanonical", [Val::Str(text)]) => {
            let ip = parse_ip(text).map_err(Fault::Other)?;
            Ok(Val::Bool(ip.to_string() == text.as_ref()))
        }
        ("strings", "quote", [Val::Str(text)]) => Ok(Val::text(crate::schema::error::go_quote(text))),
        _ => Err(Fault::NoSuchOverload),
    }
}

/// Functions that read a string as something else.
fn parse<'a>(name: &str, values: &[Val<'a>]) -> Answer<'a> {
    let [Val::Str(text)] = values else {
        return Err(Fault::NoSuchOverload);
    };
    let bad_quantity =
        || Fault::other("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
    match name {
        "isQuantity" => Ok(Val::Bool(Quantity::parse(text).is_some())),
        "quantity" => Quantity::parse(text).map(Val::Quantity).ok_or_else(bad_quantity),
        "isURL" => Ok(Val::Bool(Url::parse(text).is_some())),
        "url" => match Url::parse(text) {
            Some(url) => Ok(Val::Url(Rc::new(url))),
            None => {
                let quoted = crate::schema::error::go_quote(text);
                let detail =
                    format!("URL parse error during conversion from string: parse {quoted}: invalid URI for request");
                Err(Fault::Other(detail))
            }
        },
        "isIP" => Ok(Val::Bool(parse_ip(text).is_ok())),
        "ip" => parse_ip(text).map(Val::Ip).map_err(Fault::Other),
        "isCIDR" => Ok(Val::Bool(Cidr::parse(text).is_ok())),
        "cidr" => Cidr::parse(text).map(Val::Cidr).map_err(Fault::Other),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn overflow() -> Fault {
    Fault::other("integer overflow")
}

fn add<'a>(run: &Evaluation<'a>, a: &mut Val<'a>, b: &mut Val<'a>) -> Answer<'a> {
    Ok(match (a, b) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_add(*b).ok_or_else(overflow)?),
        (Val::Uint(a), Val::Uint(b)) => {
            Val::Uint(a.checked_add(*b).ok_or_else(|| Fault::other("unsigned integer overflow"))?)
        }
        (Val::Double(a), Val::Double(b)) => Val::Double(*a + *b),
        (Val::Str(a), Val::Str(b)) => {
            run.spend((a.len() + b.len()) / 10)?;
            let mut joined = std::mem::take(a).into_owned();
            joined.push_str(b);
            Val::text(joined)
        }
        (Val::Bytes(a), Val::Bytes(b)) => {
            run.spend((a.len() + b.len()) / 10)?;
            Val::Bytes(a.iter().chain(b.iter()).copied().collect())
        }
        (Val::List(a), Val::List(b)) => {
            run.spend(a.len() + b.len())?;
            Val::list(a.iter().chain(b.iter()).collect::<Result<_, _>>()?)
        }
        (a, b) => return time::add(a, b),
    })
}

fn subtract<'a>(a: &Val<'a>, b: &Val<'a>) -> Answer<'a> {
    Ok(match (a, b) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_sub(*b).ok_or_else(overflow)?),
        (Val::Uint(a), Val::Uint(b)) => {
            Val::Uint(a.checked_sub(*b).ok_or_else(|| Fault::other("unsigned integer overflow"))?)
        }
        (Val::Double(a), Val::Double(b)) => Val::Double(a - b),
        (a, b) => return time::subtract(a, b),
    })
}

fn multiply<'a>(a: &Val<'a>, b: &Val<'a>) -> Answer<'a> {
    Ok(match (a, b) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_mul(*b).ok_or_else(overflow)?),
        (Val::Uint(a), Val::Uint(b)) => {
            Val::Uint(a.checked_mul(*b).ok_or_else(|| Fault::other("unsigned integer overflow"))?)
        }
        (Val::Double(a), Val::Double(b)) => Val::Double(a * b),
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn divide<'a>(a: &Val<'a>, b: &Val<'a>) -> Answer<'a> {
    let zero = || Fault::other("division by zero");
    Ok(match (a, b) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => return Err(zero()),
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_div(*b).ok_or_else(overflow)?),
        (Val::Uint(a), Val::Uint(b)) => Val::Uint(a / b),
        (Val::Double(a), Val::Double(b)) => Val::Double(a / b),
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn modulo<'a>(a: &Val<'a>, b: &Val<'a>) -> Answer<'a> {
    Ok(match (a, b) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => {
            return Err(Fault::other("modulus by zero"));
        }
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_rem(*b).ok_or_else(overflow)?),
        (Val::Uint(a), Val::Uint(b)) => Val::Uint(a % b),
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn size<'a>(value: &Val<'a>) -> Answer<'a> {
    let count = match value {
        Val::Str(s) => s.chars().count(),
        Val::Bytes(b) => b.len(),
        Val::List(list) => list.len(),
        Val::Map(map) => map.len(),
        _ => return Err(Fault::NoSuchOverload),
    };
    Ok(Val::Int(count as i64))
}

fn convert<'a>(to: &str, value: &Val<'a>) -> Answer<'a> {
    let range = || Fault::other("range error converting to integer");
    Ok(match (to, value) {
        ("int", Val::Int(i)) => Val::Int(*i),
        ("int", Val::Uint(u)) => Val::Int(i64::try_from(*u).map_err(|_| overflow())?),
        ("int", Val::Double(d)) if *d > -9.3e18 && *d < 9.2e18 => Val::Int(*d as i64),
        ("int", Val::Double(_)) => return Err(overflow()),
        ("int", Val::Str(s)) => Val::Int(s.parse().map_err(|_| range())?),
        ("int", Val::Timestamp(t)) => Val::Int(t.as_second()),
        ("int", Val::Duration(nanos)) => Val::Int(*nanos),
        ("uint", Val::Uint(u)) => Val::Uint(*u),
        ("uint", Val::Int(i)) => Val::Uint(u64::try_from(*i).map_err(|_| overflow())?),
        ("uint", Val::Double(d)) if *d >= 0.0 && *d < 1.8e19 => Val::Uint(*d as u64),
        ("uint", Val::Double(_)) => return Err(overflow()),
        ("uint", Val::Str(s)) => Val::Uint(s.parse().map_err(|_| range())?),
        ("double", Val::Double(d)) => Val::Double(*d),
        ("double", Val::Int(i)) => Val::Double(*i as f64),
        ("double", Val::Uint(u)) => Val::Double(*u as f64),
        ("double", Val::Str(s)) => Val::Double(s.parse().map_err(|_| {
            let quoted = crate::schema::error::go_quote(s);
            Fault::Other(format!("strconv.ParseFloat: parsing {quoted}: invalid syntax"))
        })?),
        ("bool", Val::Bool(b)) => Val::Bool(*b),
        ("bool", Val::Str(s)) => match s.as_ref() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Val::Bool(true),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Val::Bool(false),
            other => {
                let quoted = crate::schema::error::go_quote(other);
                return Err(Fault::Other(format!("strconv.ParseBool: parsing {quoted}: invalid syntax")));
            }
        },
        ("bytes", Val::Bytes(b)) => Val::Bytes(b.clone()),
        ("bytes", Val::Str(s)) => Val::Bytes(s.as_bytes().into()),
        ("string", Val::Str(s)) => Val::Str(s.clone()),
        ("string", Val::Bytes(b)) => match std::str::from_utf8(b) {
            Ok(s) => Val::text(s),
            Err(_) => {
                return Err(Fault::other("invalid UTF-8 in bytes, cannot convert to string"));
            }
        },
        ("string", Val::Duration(nanos)) => Val::text(format!("{}s", *nanos as f64 / 1e9)),
        (
            "string",
            Val::Ip(_) | Val::Cidr(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Timestamp(_),
        ) => Val::text(show(value)),
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn lists<'a>(run: &Evaluation<'a>, name: &str, list: &List<'a>, rest: &[Val<'a>]) -> Answer<'a> {
    match (name, rest) {
        ("isSorted", []) => {
            for i in 1..list.len() {
                if list.get(i - 1)?.compare(&list.get(i)?)?.is_some_and(std::cmp::Ordering::is_gt) {
                    return Ok(Val::Bool(false));
                }
            }
            Ok(Val::Bool(true))
        }
        ("sum", []) => {
            let mut total = None;
            for item in list.iter() {
                let mut item = item?;
                total = Some(match total {
                    None if matches!(item, Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_)) => item,
                    None => return Err(Fault::NoSuchOverload),
                    Some(mut total) => add(run, &mut total, &mut item)?,
                });
            }
            Ok(total.unwrap_or(Val::Int(0)))
        }
        ("min" | "max", []) => extreme(list, name == "max", name),
        ("join", separator) => text::join(list, separator),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn extreme<'a>(list: &List<'a>, largest: bool, name: &str) -> Answer<'a> {
    let mut best: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = item?;
        let better = match &best {
            None => true,
            Some(best) => item.compare(best)?.is_some_and(|o| if largest { o.is_gt() } else { o.is_lt() }),
        };
        if better {
            best = Some(item);
        }
    }
    best.ok_or_else(|| Fault::Other(format!("{name} called on empty list")))
}

fn quantities<'a>(name: &str, q: Quantity, rest: &[Val<'a>]) -> Answer<'a> {
    let too_large = || Fault::other("quantity is too large");
    let other = match rest {
        [] => None,
        [Val::Quantity(other)] => Some(*other),
        [Val::Int(i)] if matches!(name, "add" | "sub") => Some(Quantity::whole(*i)),
        _ => return Err(Fault::NoSuchOverload),
    };
    Ok(match (name, other) {
        ("sign", None) => Val::Int(q.sign()),
        ("isInteger", None) => Val::Bool(q.integer().is_some()),
        ("asInteger", None) => Val::Int(q.integer().ok_or_else(|| Fault::other("cannot convert value to integer"))?),
        ("asApproximateFloat", None) => Val::Double(q.float()),
        ("add", Some(other)) => Val::Quantity(q.add(other).ok_or_else(too_large)?),
        ("sub", Some(other)) => Val::Quantity(q.sub(other).ok_or_else(too_large)?),
        ("compareTo", Some(other)) => Val::Int(q.cmp(&other) as i64),
        ("isGreaterThan", Some(other)) => Val::Bool(q > other),
        ("isLessThan", Some(other)) => Val::Bool(q < other),
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn urls<'a>(name: &str, url: &Url) -> Answer<'a> {
    Ok(match name {
        "getScheme" => Val::text(&url.scheme),
        "getHost" => Val::text(&url.host),
        "getHostname" => Val::text(url.hostname()),
        "getPort" => Val::text(url.port()),
        "getEscapedPath" => Val::text(&url.path),
        "getQuery" => {
            let entry = |(key, values): (String, Vec<String>)| {
                (Val::text(key), Val::list(values.into_iter().map(Val::text).collect()))
            };
            Val::Map(Map::Made(Rc::new(url.queries().into_iter().map(entry).collect())))
        }
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn networks<'a>(name: &str, values: &[Val<'a>]) -> Answer<'a> {
    let as_ip = |value: &Val<'a>| match value {
        Val::Ip(ip) => Ok(*ip),
        Val::Str(text) => parse_ip(text).map_err(Fault::Other),
        _ => Err(Fault::NoSuchOverload),
    };
    let as_cidr = |value: &Val<'a>| match value {
        Val::Cidr(cidr) => Ok(*cidr),
        Val::Str(text) => Cidr::parse(text).map_err(Fault::Other),
        _ => Err(Fault::NoSuchOverload),
    };
    Ok(match (name, values) {
        ("family", [Val::Ip(ip)]) => Val::Int(if ip.is_ipv4() { 4 } else { 6 }),
        ("isUnspecified", [Val::Ip(ip)]) => Val::Bool(ip.is_unspecified()),
        ("isLoopback", [Val::Ip(ip)]) => Val::Bool(ip.is_loopback()),
        ("isLinkLocalMulticast", [Val::Ip(ip)]) => Val::Bool(match ip {
            std::net::IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
            std::net::IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
        }),
        ("isLinkLocalUnicast", [Val::Ip(ip)]) => Val::Bool(match ip {
            std::net::IpAddr::V4(v4) => v4.is_link_local(),
            std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
        }),
        ("isGlobalUnicast", [Val::Ip(ip)]) => {
            let link_local = match ip {
                std::net::IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
                std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
            };
            Val::Bool(!(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local))
        }
        ("ip", [Val::Cidr(cidr)]) => Val::Ip(cidr.ip),
        ("masked", [Val::Cidr(cidr)]) => Val::Cidr(cidr.masked()),
        ("prefixLength", [Val::Cidr(cidr)]) => Val::Int(cidr.bits.into()),
        ("containsIP", [Val::Cidr(cidr), other]) => Val::Bool(cidr.contains_ip(as_ip(other)?)),
        ("containsCIDR", [Val::Cidr(cidr), other]) => Val::Bool(cidr.contains(as_cidr(other)?)),
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null | Val::Optional(None) => true,
        Val::Bool(b) => !b,
        Val::Int(i) => *i == 0,
        Val::Uint(u) => *u == 0,
        Val::Double(d) => *d == 0.0,
        Val::Str(s) => s.is_empty(),
        Val::Bytes(b) => b.is_empty(),
        Val::List(list) => list.len() == 0,
        Val::Map(map) => map.len() == 0,
        Val::Duration(nanos) => *nanos == 0,
        _ => false,
    }
}

/// A value in a message.
pub(crate) fn show(value: &Val<'_>) -> String {
    match value {
        Val::Str(s) => s.to_string(),
        Val::Double(d) => go_float(*d),
        other => match other.json() {
            Value::String(s) => s,
            json => crate::schema::error::go_json(&json),
        },
    }
}
