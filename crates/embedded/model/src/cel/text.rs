//! Functions on strings.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::eval::{Answer, Evaluation, Fault};
use super::functions::show;
use super::value::{List, Map, Val};
use crate::schema::error::go_json;
use crate::schema::pattern::Pattern;

/// Calls a function whose first value is a string.
pub(crate) fn call<'a>(run: &Evaluation<'a>, name: &str, values: &[Val<'a>]) -> Answer<'a> {
    let [Val::Str(text), rest @ ..] = values else {
        return Err(Fault::NoSuchOverload);
    };
    run.spend(text.len() / 10)?;
    match (name, rest) {
        ("contains", [Val::Str(part)]) => Ok(Val::Bool(text.contains(part.as_ref()))),
        ("startsWith", [Val::Str(part)]) => Ok(Val::Bool(text.starts_with(part.as_ref()))),
        ("endsWith", [Val::Str(part)]) => Ok(Val::Bool(text.ends_with(part.as_ref()))),
        ("matches", [Val::Str(pattern)]) => {
            run.spend(text.len() / 4)?;
            with_pattern(run, pattern, |p| Val::Bool(p.is_match(text)))
        }
        ("find", [Val::Str(pattern)]) => {
            run.spend(text.len() / 4)?;
            with_pattern(run, pattern, |p| Val::text(p.find(text).unwrap_or_default()))
        }
        ("findAll", [Val::Str(pattern), limit @ ..]) => {
            run.spend(text.len() / 4)?;
            let limit = match limit {
                [] => usize::MAX,
                [Val::Int(n)] => usize::try_from(*n).unwrap_or(usize::MAX),
                _ => return Err(Fault::NoSuchOverload),
            };
            with_pattern(run, pattern, |p| Val::list(p.find_all(text).take(limit).map(Val::text).collect()))
        }
        ("lowerAscii", []) => Ok(Val::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Val::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Val::text(text.trim())),
        ("charAt", [Val::Int(at)]) => char_at(text, *at),
        ("indexOf" | "lastIndexOf", [Val::Str(part), from @ ..]) => index_of(text, part, from, name == "lastIndexOf"),
        ("replace", [Val::Str(old), Val::Str(new), limit @ ..]) => {
            let replaced = match limit {
                [] => text.replace(old.as_ref(), new),
                [Val::Int(n)] => match usize::try_from(*n) {
                    Ok(n) => text.replacen(old.as_ref(), new, n),
                    Err(_) => text.replace(old.as_ref(), new),
                },
                _ => return Err(Fault::NoSuchOverload),
            };
            run.spend(replaced.len() / 10)?;
            Ok(Val::text(replaced))
        }
        ("split", [Val::Str(separator), limit @ ..]) => {
            let limit = match limit {
                [] => -1,
                [Val::Int(n)] => *n,
                _ => return Err(Fault::NoSuchOverload),
            };
            Ok(Val::list(split(text, separator, limit)))
        }
        ("substring", [Val::Int(start), end @ ..]) => substring(text, *start, end),
        ("format", [Val::List(args)]) => format(run, text, args),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn with_pattern<'a>(run: &Evaluation<'a>, source: &str, use_it: impl FnOnce(&Pattern) -> Val<'a>) -> Answer<'a> {
    if let Some(pattern) = run.program.patterns.get(source) {
        return Ok(use_it(pattern));
    }
    // A pattern that is computed is compiled each time, which is not cheap.
    run.spend(source.len() * 10)?;
    Pattern::compile(source).map(|p| use_it(&p)).map_err(Fault::Other)
}

fn split<'a>(text: &str, separator: &str, limit: i64) -> Vec<Val<'a>> {
    let parts: Vec<&str> = match (usize::try_from(limit), separator) {
        (Ok(0), _) => Vec::new(),
        (Ok(n), "") => {
            let cut = text.char_indices().nth(n - 1).map_or(text.len(), |(i, _)| i);
            let (head, tail) = text.split_at(cut);
            let mut parts = chars(head);
            parts.extend(Some(tail).filter(|t| !t.is_empty()));
            parts
        }
        (Err(_), "") => chars(text),
        (Ok(n), _) => text.splitn(n, separator).collect(),
        (Err(_), _) => text.split(separator).collect(),
    };
    parts.into_iter().map(Val::text).collect()
}

fn chars(text: &str) -> Vec<&str> {
    text.char_indices().map(|(i, c)| &text[i..i + c.len_utf8()]).collect()
}

/// The byte at which the character `at` starts; the end of the text counts as one.
fn offset(text: &str, at: i64) -> Result<usize, Fault> {
    let out = || Fault::Other(format!("index out of range: {at}"));
    let at = usize::try_from(at).map_err(|_| out())?;
    let mut starts = text.char_indices().map(|(i, _)| i).chain(std::iter::once(text.len()));
    starts.nth(at).ok_or_else(out)
}

fn char_at<'a>(text: &str, at: i64) -> Answer<'a> {
    let start = offset(text, at)?;
    Ok(Val::text(text[start..].chars().take(1).collect::<String>()))
}

fn substring<'a>(text: &str, start: i64, end: &[Val<'a>]) -> Answer<'a> {
    let from = offset(text, start)?;
    let to = match end {
        [] => text.len(),
        [Val::Int(end)] if *end < start => {
            return Err(Fault::Other(format!("invalid substring range. start: {start}, end: {end}")));
        }
        [Val::Int(end)] => offset(text, *end)?,
        _ => return Err(Fault::NoSuchOverload),
    };
    Ok(Val::text(&text[from..to]))
}

fn index_of<'a>(text: &str, part: &str, from: &[Val<'a>], last: bool) -> Answer<'a> {
    let from = match from {
        [] => None,
        [Val::Int(n)] => Some(offset(text, *n)?),
        _ => return Err(Fault::NoSuchOverload),
    };
    let found = match (last, from) {
        (false, from) => {
            let from = from.unwrap_or(0);
            text[from..].find(part).map(|i| i + from)
        }
        (true, None) => text.rfind(part),
        // The match may start at the limit, and then goes beyond it.
        (true, Some(limit)) => {
            let end = text.len().min(limit + part.len());
            let end = (end..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
            text[..end].rfind(part).filter(|i| *i <= limit)
        }
    };
    Ok(Val::Int(found.map_or(-1, |i| text[..i].chars().count() as i64)))
}

/// Joins a list of strings.
pub(crate) fn join<'a>(list: &List<'a>, separator: &[Val<'a>]) -> Answer<'a> {
    let separator = match separator {
        [] => Cow::Borrowed(""),
        [Val::Str(s)] => s.clone(),
        _ => return Err(Fault::NoSuchOverload),
    };
    let mut out = String::new();
    for (i, item) in list.iter().enumerate() {
        let Val::Str(part) = item? else {
            return Err(Fault::NoSuchOverload);
        };
        if i > 0 {
            out.push_str(&separator);
        }
        out.push_str(&part);
    }
    Ok(Val::text(out))
}

/// `'%s is %d'.format([...])`.
fn format<'a>(run: &Evaluation<'a>, template: &str, args: &List<'a>) -> Answer<'a> {
    let mut out = String::new();
    let mut next = 0;
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix('%') {
            out.push('%');
            rest = tail;
            continue;
        }
        let mut precision = None;
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            precision = tail[..end].parse::<usize>().ok().filter(|p| *p <= 100);
            rest = &tail[end..];
        }
        let Some(verb) = rest.chars().next() else {
            return Err(Fault::other("unexpected end of format string"));
        };
        rest = &rest[verb.len_utf8()..];
        if next >= args.len() {
            return Err(Fault::Other(format!("index {next} out of range")));
        }
        let value = args.get(next)?;
        next += 1;
        write_verb(&mut out, verb, precision, &value)?;
        run.spend(1 + out.len() / 100)?;
    }
    out.push_str(rest);
    Ok(Val::text(out))
}

fn write_verb(out: &mut String, verb: char, precision: Option<usize>, value: &Val<'_>) -> Result<(), Fault> {
    let as_float = match value {
        Val::Double(d) => Some(*d),
        Val::Int(i) => Some(*i as f64),
        Val::Uint(u) => Some(*u as f64),
        _ => None,
    };
    let bad = || {
        let kind = value.type_name();
        Fault::Other(format!("error during formatting: no formatting function for %{verb} and type {kind}"))
    };
    _ = match (verb, value) {
        ('s', Val::List(_) | Val::Map(_)) => write!(out, "{}", collection(value)?),
        ('s', Val::Null) => write!(out, "null"),
        ('s', value) => write!(out, "{}", show(value)),
        ('d', Val::Int(i)) => write!(out, "{i}"),
        ('d', Val::Uint(u)) => write!(out, "{u}"),
        ('d', Val::Double(d)) => write!(out, "{}", crate::schema::error::go_float(*d)),
        ('f', _) => write!(out, "{:.*}", precision.unwrap_or(6), as_float.ok_or_else(bad)?),
        ('e', _) => {
            let text = format!("{:.*e}", precision.unwrap_or(6), as_float.ok_or_else(bad)?);
            match text.split_once('e') {
                Some((mantissa, exponent)) => {
                    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
                    write!(out, "{mantissa}e{sign}{digits:0>2}")
                }
                None => write!(out, "{text}"),
            }
        }
        ('b', Val::Bool(b)) => write!(out, "{}", u8::from(*b)),
        ('b', Val::Int(i)) => write!(out, "{}{:b}", if *i < 0 { "-" } else { "" }, i.unsigned_abs()),
        ('b', Val::Uint(u)) => write!(out, "{u:b}"),
        ('o', Val::Int(i)) => write!(out, "{}{:o}", if *i < 0 { "-" } else { "" }, i.unsigned_abs()),
        ('o', Val::Uint(u)) => write!(out, "{u:o}"),
        ('x', Val::Int(i)) => write!(out, "{}{:x}", if *i < 0 { "-" } else { "" }, i.unsigned_abs()),
        ('X', Val::Int(i)) => write!(out, "{}{:X}", if *i < 0 { "-" } else { "" }, i.unsigned_abs()),
        ('x', Val::Uint(u)) => write!(out, "{u:x}"),
        ('X', Val::Uint(u)) => write!(out, "{u:X}"),
        ('x', Val::Str(s)) => s.bytes().try_for_each(|b| write!(out, "{b:02x}")),
        ('X', Val::Str(s)) => s.bytes().try_for_each(|b| write!(out, "{b:02X}")),
        ('x', Val::Bytes(b)) => b.iter().try_for_each(|b| write!(out, "{b:02x}")),
        ('X', Val::Bytes(b)) => b.iter().try_for_each(|b| write!(out, "{b:02X}")),
        ('d' | 'b' | 'o' | 'x' | 'X', _) => return Err(bad()),
        _ => {
            return Err(Fault::Other(format!("unrecognized formatting clause \"{verb}\"")));
        }
    };
    Ok(())
}

/// Lists and maps inside a formatted text: strings are quoted there.
fn collection(value: &Val<'_>) -> Result<String, Fault> {
    Ok(match value {
        Val::List(list) => {
            let parts: Result<Vec<_>, _> = list.iter().map(|item| collection(&item?)).collect();
            format!("[{}]", parts?.join(", "))
        }
        Val::Map(map @ (Map::Json(_) | Map::Made(_))) => {
            let mut parts = Vec::new();
            for key in map.keys() {
                let value = map.get(&key)?.unwrap_or(Val::Null);
                parts.push(format!("{}: {}", collection(&key)?, collection(&value)?));
            }
            parts.sort();
            format!("{{{}}}", parts.join(", "))
        }
        Val::Str(s) => go_json(&s.as_ref().into()),
        other => show(other),
    })
}
