//! House rules that no compiler checks.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use crate::progress::root;

/// A file longer than this is more than one concept.
const LONGEST: usize = 800;
/// Words that mean unfinished work.
const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "#[ignore", concat!("TO", "DO"), concat!("FIX", "ME")];
/// File names that say nothing.
const NAMELESS: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager", "misc"];

/// Checks every Rust file of the repository.
pub fn run() -> anyhow::Result<()> {
    let mut faults = Vec::new();
    for folder in ["crates", "xtask"] {
        walk(&root().join(folder), &mut faults)?;
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{}", faults.join("\n"))
}

fn walk(folder: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                walk(&path, faults)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            check(&path, faults)?;
        }
    }
    Ok(())
}

fn check(path: &Path, faults: &mut Vec<String>) -> anyhow::Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let shown = path.strip_prefix(root()).unwrap_or(path).display().to_string();
    let lines = text.lines().count();
    if lines > LONGEST {
        faults.push(format!("{shown}: {lines} lines; split it into one concept a file"));
    }
    if path.file_stem().is_some_and(|stem| NAMELESS.iter().any(|n| stem == *n)) {
        faults.push(format!("{shown}: name the file after what is in it"));
    }
    // A module of unit tests is named by the module that it tests.
    let unit_tests = shown.contains("/src/") && (shown.ends_with("/tests.rs") || shown.contains("/tests/"));
    if !unit_tests && !text.trim_start().starts_with("//!") {
        faults.push(format!("{shown}: begin with a `//!` sentence that says what the module promises"));
    }
    if shown != "xtask/src/tidy.rs" {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
                faults.push(format!("{shown}:{}: `{word}`: finish it", number + 1));
            }
        }
    }
    Ok(())
}
