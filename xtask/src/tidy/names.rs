//! Names of files, modules and types: words of the field, and each public type once in its crate.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// Names that say nothing about the content.
const NAMELESS: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager", "misc"];

/// Module names that nobody would search for.
const BANNED_MODULES: &[&str] = &["forsake", "tell", "kept", "said", "look", "wanted", "fate", "parts", "homeless"];
/// Names of types and constants that nobody would search for.
const BANNED_NAMES: &[&str] = &["Pen", "Mood", "Halt", "Briefly", "LONG_LEASH"];

/// Modules that still have a banned name. This list only shrinks.
const TOLERATED_MODULES: &[&str] = &[];
/// Types and constants that still have a banned name. This list only shrinks.
const TOLERATED_NAMES: &[&str] = &[];
/// Names that every module may use again: the errors of a module, the arguments of a command.
const CONVENTIONAL: &[&str] = &["Args", "Arguments", "Error"];
/// Public types that still exist more than once in a crate, as `crate folder`, `type`. This list only shrinks.
const TOLERATED_DUPLICATES: &[(&str, &str)] = &[];

/// Faults of all names. An exception that is no longer needed is a fault too.
pub fn faults(sources: &[Source]) -> Vec<String> {
    let mut faults: Vec<String> = sources.iter().filter_map(nameless).collect();
    faults.extend(tolerating(banned_modules(sources), TOLERATED_MODULES.iter().map(|name| (*name).to_owned())));
    faults.extend(tolerating(banned_names(sources), TOLERATED_NAMES.iter().map(|name| (*name).to_owned())));
    let duplicates = TOLERATED_DUPLICATES.iter().map(|(package, name)| format!("{package} {name}"));
    faults.extend(tolerating(duplicate_types(sources), duplicates));
    faults
}

/// The faults without those that are tolerated, and the exceptions without a fault. Faults are by the name that an
/// exception names.
fn tolerating(mut found: BTreeMap<String, String>, tolerated: impl Iterator<Item = String>) -> Vec<String> {
    let mut faults = Vec::new();
    for name in tolerated {
        if found.remove(&name).is_none() {
            faults.push(format!("xtask/src/tidy/names.rs: remove `{name}` from the exceptions, it is not needed"));
        }
    }
    faults.extend(found.into_values());
    faults
}

fn nameless(source: &Source) -> Option<String> {
    let name = module(&source.path);
    NAMELESS.contains(&name).then(|| format!("{}: name the file after its content", source.path))
}

/// The module that a file is: its name, or that of its folder for `mod.rs`.
fn module(path: &str) -> &str {
    let path = path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix(".rs")).unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

fn banned_modules(sources: &[Source]) -> BTreeMap<String, String> {
    let modules = sources.iter().filter(|source| BANNED_MODULES.contains(&module(&source.path)));
    modules
        .map(|source| {
            (source.path.clone(), format!("{}: use a module name that engineers of the field know", source.path))
        })
        .collect()
}

fn banned_names(sources: &[Source]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for source in sources {
        for (_, name) in declared(&source.text).filter(|(_, name)| BANNED_NAMES.contains(name)) {
            let fault = format!("{}: `{name}`: use a name that engineers of the field know", source.path);
            found.insert(format!("{} {name}", source.package), fault);
        }
    }
    found
}

fn duplicate_types(sources: &[Source]) -> BTreeMap<String, String> {
    let mut types: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.contains("/src/")) {
        for (_, name) in declared(&source.text).filter(|(public, name)| *public && !CONVENTIONAL.contains(name)) {
            types.entry((&source.package, name)).or_default().insert(&source.path);
        }
    }
    let duplicates = types.into_iter().filter(|(_, paths)| paths.len() > 1);
    duplicates
        .map(|((package, name), paths)| {
            let paths: Vec<&str> = paths.into_iter().collect();
            (
                format!("{package} {name}"),
                format!("`{name}` is a public type in {}: give each its own name", paths.join(", ")),
            )
        })
        .collect()
}

/// The types and constants that a file declares, and whether they are public.
fn declared(text: &str) -> impl Iterator<Item = (bool, &str)> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let (public, line) = match line.strip_prefix("pub ") {
            Some(rest) => (true, rest),
            None => {
                (false, line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub(super) ")).unwrap_or(line))
            }
        };
        let keywords = ["struct ", "enum ", "trait ", "type ", "const "];
        let keyword = keywords.iter().find(|keyword| line.starts_with(**keyword))?;
        let rest = &line[keyword.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        // Only types are compared: a constant belongs to its module.
        Some((public && *keyword != "const ", &rest[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn a_public_type_exists_once_in_its_crate() {
        let check = |text: &str, other: &str| {
            let sources =
                [source("crates/a/src/x.rs", "crates/a", text), source("crates/a/src/y.rs", "crates/a", other)];
            duplicate_types(&sources).len()
        };
        assert_eq!(check("pub struct Queue;", "pub enum Queue {}"), 1);
        assert_eq!(check("pub struct Queue<T>(T);", "pub(crate) struct Queue;"), 0);
        assert_eq!(check("pub struct Queue;", "pub struct Queues;"), 0);
        assert_eq!(check("pub const A: u8 = 1;", "pub const A: u8 = 1;"), 0);
        let elsewhere = [source("a/src/x.rs", "a", "pub struct X;"), source("b/src/x.rs", "b", "pub struct X;")];
        assert_eq!(duplicate_types(&elsewhere).len(), 0);
    }

    #[test]
    fn banned_words_are_found() {
        let sources = [
            source("crates/a/src/fate.rs", "crates/a", "struct Mood;"),
            source("crates/a/src/look/mod.rs", "crates/a", "const LONG_LEASH: u8 = 1;"),
            source("crates/a/src/outlook.rs", "crates/a", "struct Pencil;"),
        ];
        assert_eq!(banned_modules(&sources).len(), 2);
        assert_eq!(banned_names(&sources).len(), 2);
    }

    #[test]
    fn an_exception_that_is_not_needed_goes() {
        let found = BTreeMap::from([("a".to_owned(), "a fault".to_owned()), ("b".to_owned(), "b fault".to_owned())]);
        let faults = tolerating(found, ["a", "c"].map(str::to_owned).into_iter());
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("remove `c`") && faults[1] == "b fault", "{faults:?}");
    }
}
