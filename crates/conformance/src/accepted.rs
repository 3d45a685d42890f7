//! Accepted differences between the servers, each with its reason, from `accepted.yaml`.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use regex::Regex;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// `FILE/SCENARIO`, where `*` matches any text.
    pub scenario: String,
    /// `METHOD PATH`, where `*` matches any text.
    pub request: String,
    /// The path in the response, where `*` matches any text.
    pub path: String,
    pub reason: String,
    #[serde(skip)]
    count: AtomicUsize,
}

#[derive(Debug, Default)]
pub struct Accepted(Vec<Entry>);

impl Accepted {
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Self::parse(&text).with_context(|| format!("`{}` is not a list of accepted differences", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self(serde_saphyr::from_str(text)?))
    }

    /// Whether the difference is accepted. Counts its use.
    pub fn accepts(&self, scenario: &str, request: &str, path: &str) -> bool {
        let found =
            self.0.iter().find(|e| fits(&e.scenario, scenario) && fits(&e.request, request) && fits(&e.path, path));
        if let Some(entry) = found {
            entry.count.fetch_add(1, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Every entry with the number of differences it accepted.
    pub fn counts(&self) -> impl Iterator<Item = (&Entry, usize)> {
        self.0.iter().map(|e| (e, e.count.load(Ordering::Relaxed)))
    }
}

/// Whether the text matches a pattern in which `*` matches any text.
pub fn fits(pattern: &str, text: &str) -> bool {
    let parts: Vec<String> = pattern.split('*').map(regex::escape).collect();
    Regex::new(&format!("(?s)^{}$", parts.join(".*"))).is_ok_and(|r| r.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expect) in [
            ("*", "anything", true),
            ("POST */pods", "POST /api/v1/namespaces/a/pods", true),
            ("POST */pods", "POST /api/v1/namespaces/a/pods/b", false),
            ("body.items[*].spec", "body.items[12].spec", true),
            ("body.items[*].spec", "body.items[12].status", false),
        ] {
            assert_eq!(fits(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn every_use_is_counted() {
        let text = "[{scenario: 'a/*', request: 'GET *', path: body.x, reason: r}, {scenario: b, request: '*', path: '*', reason: r}]";
        let accepted = Accepted::parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert!(accepted.accepts("a/one", "GET /x", "body.x"));
        assert!(!accepted.accepts("a/one", "GET /x", "body.y"));
        assert_eq!(accepted.counts().map(|(_, n)| n).collect::<Vec<_>>(), [1, 0]);
    }
}
