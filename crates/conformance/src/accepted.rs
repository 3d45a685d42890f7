//! Differences that are accepted, each with its reason. They stand in one file, `accepted.yaml`.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use regex::Regex;
use serde::Deserialize;

/// One kind of difference that is accepted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// `FILE/SCENARIO`, where `*` stands for anything.
    pub scenario: String,
    /// `METHOD PATH`, where `*` stands for anything.
    pub request: String,
    /// The place in the answer, where `*` stands for anything.
    pub path: String,
    /// Why it is accepted.
    pub reason: String,
    #[serde(skip)]
    count: AtomicUsize,
}

/// All accepted differences.
#[derive(Debug, Default)]
pub struct Accepted(Vec<Entry>);

impl Accepted {
    /// Reads the file.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Self::parse(&text).with_context(|| format!("`{}` is not a list of accepted differences", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self(serde_saphyr::from_str(text)?))
    }

    /// The difference is accepted. Counts it.
    pub fn accepts(&self, scenario: &str, request: &str, path: &str) -> bool {
        let found =
            self.0.iter().find(|e| fits(&e.scenario, scenario) && fits(&e.request, request) && fits(&e.path, path));
        if let Some(entry) = found {
            entry.count.fetch_add(1, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Every entry with how many differences it accepted.
    pub fn counts(&self) -> impl Iterator<Item = (&Entry, usize)> {
        self.0.iter().map(|e| (e, e.count.load(Ordering::Relaxed)))
    }
}

/// The text fits a pattern in which `*` stands for any text.
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
