//! House rules that no compiler checks. CONTRIBUTING.md has them in words.

mod docs;
mod names;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::progress::root;

/// A file longer than this holds more than one concept.
const LONGEST: usize = 800;
/// Words that mean unfinished work.
const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "#[ignore", concat!("TO", "DO"), concat!("FIX", "ME")];

/// One Rust file of the repository.
struct Source {
    /// Its path in the repository, with `/`.
    path: String,
    /// The folder of its crate in the repository.
    package: String,
    text: String,
}

/// Checks every Rust file of the repository.
pub fn run() -> anyhow::Result<()> {
    let mut sources = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(&root().join(folder), folder, &mut sources)?;
    }
    let mut faults: Vec<String> = sources.iter().flat_map(file).collect();
    faults.extend(names::faults(&sources));
    faults.extend(docs::faults(&sources));
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

/// Reads the Rust files below a folder. `package` is the crate that the folder belongs to.
fn collect(folder: &Path, package: &str, sources: &mut Vec<Source>) -> anyhow::Result<()> {
    let shown = |path: &Path| path.strip_prefix(root()).unwrap_or(path).display().to_string();
    let package = if folder.join("Cargo.toml").is_file() { shown(folder) } else { package.to_owned() };
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, &package, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            sources.push(Source { path: shown(&path), package: package.clone(), text });
        }
    }
    Ok(())
}

/// Faults of one file: its length, its first line, unfinished work.
fn file(source: &Source) -> Vec<String> {
    let Source { path, text, .. } = source;
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > LONGEST {
        faults.push(format!("{path}: {lines} lines: split it into one concept a file"));
    }
    // A module of unit tests is described by the module that it tests.
    let unit_tests = path.contains("/src/") && (path.ends_with("/tests.rs") || path.contains("/tests/"));
    // The README of a crate can be its documentation.
    let documented = ["//!", "#![doc = include_str!("].iter().any(|start| text.trim_start().starts_with(start));
    if !unit_tests && !documented {
        faults.push(format!("{path}: begin with a `//!` sentence that says what the module promises"));
    }
    if path != "xtask/src/tidy.rs" {
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
                faults.push(format!("{path}:{}: `{word}`: finish it", number + 1));
            }
        }
    }
    faults
}

#[cfg(test)]
fn source(path: &str, package: &str, text: &str) -> Source {
    Source { path: path.to_owned(), package: package.to_owned(), text: text.to_owned() }
}
