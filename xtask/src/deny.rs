//! Checks `deny.toml` against the dependencies of the workspace, without a network.
//!
//! The file has the format of `cargo-deny`, so that this tool can check the same rules and advisories besides. This
//! module knows the settings that the file uses and refuses others, so that no rule is silently ignored.

mod licence;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table};

use crate::progress::{cargo, root};

/// The settings that this check knows, by section. Those of `advisories` and `graph` are for `cargo-deny` alone.
const SETTINGS: &[(&str, &[&str])] = &[
    ("advisories", &["version", "yanked", "ignore"]),
    ("bans", &["multiple-versions", "wildcards", "deny", "skip"]),
    ("graph", &["all-features"]),
    ("licenses", &["version", "allow", "private"]),
    ("sources", &["unknown-registry", "unknown-git"]),
];

/// Crates of this workspace that do no I/O, and the crates that therefore must not be among their dependencies.
const PURE: &[&str] = &["knoll-api", "knoll-core"];
const IMPURE: &[&str] = &["hyper", "rustls", "tokio"];

/// Checks the file and the dependencies of this workspace.
pub fn run() -> anyhow::Result<()> {
    let path = root().join("deny.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rules = Rules::parse(&text).context("deny.toml")?;
    // Tests have built the workspace, or are about to: cargo has every crate.
    let output = cargo().args(["metadata", "--format-version", "1", "--locked"]).output();
    let output = output.context("cannot start `cargo metadata`")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let graph = Graph::parse(&serde_json::from_slice(&output.stdout).context("`cargo metadata` printed no JSON")?)?;
    let mut faults = rules.faults(&graph);
    faults.extend(impure(&graph, PURE));
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

/// The rules of `deny.toml`.
#[derive(Debug, Default)]
struct Rules {
    licences: BTreeSet<String>,
    /// Each is `name` or `name@version`.
    banned: BTreeSet<String>,
    /// `name@version` that may exist beside another version.
    skipped: BTreeSet<String>,
}

impl Rules {
    fn parse(text: &str) -> anyhow::Result<Rules> {
        let document: DocumentMut = text.parse().context("it is not TOML")?;
        for (section, item) in document.iter() {
            let known = SETTINGS.iter().find(|(name, _)| *name == section);
            let (_, known) = known.with_context(|| format!("`{section}` is not checked by `cargo xtask test`"))?;
            for (setting, _) in item.as_table().into_iter().flat_map(Table::iter) {
                if !known.contains(&setting) {
                    bail!("`{section}.{setting}` is not checked by `cargo xtask test`");
                }
            }
        }
        for (section, setting) in
            [("bans", "multiple-versions"), ("sources", "unknown-registry"), ("sources", "unknown-git")]
        {
            if at(&document, section, setting).and_then(Item::as_str) != Some("deny") {
                bail!("`{section}.{setting}` must be \"deny\"");
            }
        }
        let licences = at(&document, "licenses", "allow").and_then(Item::as_array);
        let licences = licences.context("`licenses.allow` must be a list")?;
        Ok(Rules {
            licences: licences.iter().filter_map(|licence| licence.as_str().map(str::to_owned)).collect(),
            banned: crates(at(&document, "bans", "deny"))?,
            skipped: crates(at(&document, "bans", "skip"))?,
        })
    }

    fn faults(&self, graph: &Graph) -> Vec<String> {
        let mut faults = Vec::new();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for package in &graph.packages {
            let Package { name, version, licence, source } = package;
            let exact = format!("{name}@{version}");
            versions.entry(name).or_default().insert(version);
            if !licence::allowed(licence, &self.licences) {
                faults.push(format!("{exact}: its licence `{licence}` is not in `licenses.allow`"));
            }
            if self.banned.contains(name) || self.banned.contains(&exact) {
                faults.push(format!("{exact}: it is in `bans.deny`"));
            }
            if source.as_ref().is_some_and(|source| !source.starts_with("registry+")) {
                faults.push(format!("{exact}: it does not come from the registry"));
            }
        }
        for (name, versions) in versions {
            let counted: Vec<&str> =
                versions.into_iter().filter(|version| !self.skipped.contains(&format!("{name}@{version}"))).collect();
            if counted.len() > 1 {
                let versions = counted.join(", ");
                faults.push(format!("{name}: there are several versions ({versions}): use one, or add to `bans.skip`"));
            }
        }
        let exact: BTreeSet<String> = graph.packages.iter().map(|p| format!("{}@{}", p.name, p.version)).collect();
        for skipped in self.skipped.difference(&exact) {
            faults.push(format!("{skipped}: remove it from `bans.skip`, nothing depends on it"));
        }
        faults
    }
}

fn at<'a>(document: &'a DocumentMut, section: &str, setting: &str) -> Option<&'a Item> {
    document.get(section)?.get(setting)
}

/// The crates of a list like `[{ crate = "name@version", reason = "..." }]`. Each needs a reason.
fn crates(list: Option<&Item>) -> anyhow::Result<BTreeSet<String>> {
    let Some(list) = list else { return Ok(BTreeSet::new()) };
    let list = list.as_array().context("a list of crates must be an array")?;
    list.iter()
        .map(|row| {
            let text = |name: &str| row.as_inline_table()?.get(name)?.as_str();
            let name = text("crate").context("an entry of a list needs `crate`")?;
            text("reason").with_context(|| format!("`{name}` needs a `reason`"))?;
            Ok(name.to_owned())
        })
        .collect()
}

/// The resolved dependencies of the workspace.
#[derive(Debug, Default)]
struct Graph {
    packages: Vec<Package>,
    /// The names of the packages that each package depends on, without dependencies for tests.
    edges: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    licence: String,
    /// None for a crate of this workspace.
    source: Option<String>,
}

impl Graph {
    fn parse(metadata: &Value) -> anyhow::Result<Graph> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let mut graph = Graph::default();
        let mut names = BTreeMap::new();
        for package in metadata["packages"].as_array().context("`cargo metadata` names no packages")? {
            let name = text(&package["name"]).context("a package has no name")?;
            names.insert(text(&package["id"]).unwrap_or_default(), name.clone());
            graph.packages.push(Package {
                name,
                version: text(&package["version"]).unwrap_or_default(),
                licence: text(&package["license"]).unwrap_or_default(),
                source: text(&package["source"]),
            });
        }
        for node in metadata["resolve"]["nodes"].as_array().context("`cargo metadata` resolved nothing")? {
            let name = |id: &Value| names.get(id.as_str()?).cloned();
            let Some(from) = name(&node["id"]) else { continue };
            let edges = graph.edges.entry(from).or_default();
            for dependency in node["deps"].as_array().into_iter().flatten() {
                let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
                if kinds.any(|kind| kind["kind"].is_null()) {
                    edges.extend(name(&dependency["pkg"]));
                }
            }
        }
        Ok(graph)
    }

    /// A chain of dependencies from one package to another.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![vec![from.to_owned()]];
        while let Some(path) = waiting.pop() {
            let last = path.last()?.clone();
            if last == to {
                return Some(path);
            }
            if seen.insert(last.clone()) {
                for next in self.edges.get(&last).into_iter().flatten() {
                    waiting.push(path.iter().cloned().chain([next.clone()]).collect());
                }
            }
        }
        None
    }
}

/// Dependencies through which a pure crate could do I/O.
fn impure(graph: &Graph, pure: &[&str]) -> Vec<String> {
    let pairs = pure.iter().flat_map(|pure| IMPURE.iter().map(move |impure| (pure, impure)));
    pairs
        .filter_map(|(pure, impure)| graph.path(pure, impure))
        .map(|path| format!("{}: it must do no I/O, and depends on {}", path[0], path.join(" > ")))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    const RULES: &str = r#"
[bans]
multiple-versions = "deny"
deny = [{ crate = "chrono", reason = "jiff" }]
skip = [{ crate = "syn@1.0.0", reason = "old" }]
[licenses]
allow = ["MIT"]
[sources]
unknown-registry = "deny"
unknown-git = "deny"
"#;

    fn graph(packages: &[(&str, &str, &str, Option<&str>)]) -> Graph {
        let package = |(name, version, licence, source): &(&str, &str, &str, Option<&str>)| Package {
            name: (*name).to_owned(),
            version: (*version).to_owned(),
            licence: (*licence).to_owned(),
            source: source.map(str::to_owned),
        };
        Graph { packages: packages.iter().map(package).collect(), edges: BTreeMap::new() }
    }

    #[track_caller]
    fn check(packages: &[(&str, &str, &str, Option<&str>)], expected: &[&str]) {
        let syn = ("syn", "1.0.0", "MIT", Some("registry+x"));
        let packages: Vec<_> = packages.iter().copied().chain([syn]).collect();
        let faults = Rules::parse(RULES).unwrap().faults(&graph(&packages));
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn rules() {
        let registry = Some("registry+x");
        check(&[("a", "1.0.0", "MIT", registry), ("knoll", "0.1.0", "MIT", None)], &[]);
        check(&[("a", "1.0.0", "GPL-3.0", registry)], &["a@1.0.0: its licence `GPL-3.0`"]);
        check(&[("a", "1.0.0", "", registry)], &["its licence ``"]);
        check(&[("a", "1.0.0", "MIT", Some("git+x"))], &["does not come from the registry"]);
        check(&[("chrono", "0.4.0", "MIT", registry)], &["`bans.deny`"]);
        check(&[("a", "1.0.0", "MIT", registry), ("a", "2.0.0", "MIT", registry)], &["a: there are several versions"]);
        check(&[("syn", "2.0.0", "MIT", registry)], &[]);
        check(&[("syn", "2.0.0", "MIT", registry), ("syn", "3.0.0", "MIT", registry)], &["syn: there are several"]);
    }

    #[test]
    fn an_exception_that_is_not_needed_goes() {
        let faults = Rules::parse(RULES).unwrap().faults(&graph(&[]));
        assert!(faults[0].contains("remove it from `bans.skip`"), "{faults:?}");
    }

    #[test]
    fn settings_that_are_not_checked_are_refused() {
        let wrong = [
            RULES.replace("[sources]", "[sources]\nallow-git = []"),
            RULES.replace("[licenses]", "[output]\n[licenses]"),
            RULES.replace("unknown-git = \"deny\"", ""),
            RULES.replace("multiple-versions = \"deny\"", "multiple-versions = \"warn\""),
            RULES.replace(", reason = \"old\"", ""),
        ];
        for text in wrong {
            assert!(Rules::parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pure_crate_reaches_nothing_that_does_io() {
        let metadata = |kind: Value| {
            json!({
                "packages": [
                    {"id": "1", "name": "knoll-core", "version": "0.1.0"},
                    {"id": "2", "name": "kube-client", "version": "5.0.0"},
                    {"id": "3", "name": "tokio", "version": "1.0.0"},
                ],
                "resolve": {"nodes": [
                    {"id": "1", "deps": [{"pkg": "2", "dep_kinds": [{"kind": kind}]}]},
                    {"id": "2", "deps": [{"pkg": "3", "dep_kinds": [{"kind": null}]}]},
                    {"id": "3", "deps": []},
                ]},
            })
        };
        let faults = impure(&Graph::parse(&metadata(Value::Null)).unwrap(), &["knoll-core"]);
        assert_eq!(faults, ["knoll-core: it must do no I/O, and depends on knoll-core > kube-client > tokio"]);
        assert_eq!(impure(&Graph::parse(&metadata(json!("dev"))).unwrap(), &["knoll-core"]), Vec::<String>::new());
    }
}
