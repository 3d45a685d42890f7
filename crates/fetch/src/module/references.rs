//! Finds the local modules that a module refers to: `source = "./..."` or `"../..."` in its `module` blocks.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hcl_edit::structure::Body;
use serde_json::Value;

/// The largest configuration file that is searched for modules. Terraform itself reads a larger one.
const LARGEST_FILE: u64 = 16 << 20;

/// The directory `root` and those of all local modules that it refers to, directly or indirectly; if `within` is given,
/// only those inside of it.
///
/// Missing directories and invalid HCL files are left for terraform to report.
#[must_use]
pub fn closure(root: &Path, within: Option<&Path>) -> BTreeSet<PathBuf> {
    let mut known = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        if known.insert(folder.clone()) {
            let sources = sources(&folder, within).into_iter();
            let local = sources.filter_map(|source| folder.join(source).canonicalize().ok());
            let inside = |folder: &PathBuf| within.is_none_or(|within| folder.starts_with(within));
            open.extend(local.filter(|folder| folder.is_dir() && inside(folder)));
        }
    }
    known
}

/// Whether a directory contains a terraform configuration; if `within` is given, one that lies inside of it.
#[must_use]
pub fn has_configuration(folder: &Path, within: Option<&Path>) -> bool {
    files(folder).any(|path| regular(&path, within).is_some())
}

fn sources(folder: &Path, within: Option<&Path>) -> Vec<String> {
    files(folder)
        .filter_map(|path| {
            let text = read_bounded(&regular(&path, within)?, LARGEST_FILE).ok()?;
            let text = String::from_utf8(text).ok()?;
            Some(if path.extension().is_some_and(|ending| ending == "json") { in_json(&text) } else { in_hcl(&text) })
        })
        .flatten()
        .filter(|source| source.starts_with("./") || source.starts_with("../") || source == "." || source == "..")
        .collect()
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let endings = [".tf", ".tf.json", ".tofu", ".tofu.json"];
    std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).filter(move |path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        endings.iter().any(|ending| name.ends_with(ending))
    })
}

/// The real path of a regular file, or nothing. If `within` is given, a symlink that leads out of it is not followed: a
/// repository could have a link to `/proc/self/pagemap`.
pub(super) fn regular(path: &Path, within: Option<&Path>) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    let inside = within.is_none_or(|within| real.starts_with(within));
    (inside && real.symlink_metadata().is_ok_and(|metadata| metadata.is_file())).then_some(real)
}

/// The content of a file of at most `limit` bytes, whatever size its metadata states: files of `/proc` state none.
pub(super) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    std::fs::File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    Ok(content)
}

/// The sources in a text with a syntax error, so that terraform can tell about that error, and not about a module that was
/// left out.
fn in_lines(text: &str) -> Vec<String> {
    let mut in_module = false;
    let mut found = Vec::new();
    for line in text.lines() {
        in_module |= line.trim_start().starts_with("module ");
        let source = line.split("source").nth(1).filter(|_| in_module);
        let value = source.and_then(|rest| rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"'));
        found.extend(value.and_then(|rest| rest.split_once('"')).map(|(value, _)| value.to_owned()));
        in_module &= !line.trim_end().ends_with('}');
    }
    found
}

fn in_hcl(text: &str) -> Vec<String> {
    let Ok(body) = Body::from_str(text) else { return in_lines(text) };
    body.get_blocks("module")
        .filter_map(|block| block.body.get_attribute("source")?.value.as_str().map(str::to_owned))
        .collect()
}

fn in_json(text: &str) -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            Value::Object(modules) => {
                for module in modules.values() {
                    let bodies = module.as_array().cloned().unwrap_or_else(|| vec![module.clone()]);
                    found.extend(bodies.iter().filter_map(|body| body["source"].as_str().map(str::to_owned)));
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        collect(&value["module"], &mut found);
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn local_sources_are_found_in_both_syntaxes() {
        let hcl = "module \"a\" {\n  source = \"./a\"\n}\nmodule \"b\" { source = \"hashicorp/b\" }\nresource \"x\" \"y\" { source = \"./no\" }\n";
        assert_eq!(in_hcl(hcl), ["./a", "hashicorp/b"]);
        assert_eq!(in_hcl("module {"), Vec::<String>::new());
        let broken = "module \"a\" {\n  count  = 1\n  source = \"../a\"\n}\nresource \"x\" \"y\" {\n  source = \"./no\"\n}\nmodule \"b\" { source = \"./b\" }\nlocals { x = \n";
        assert_eq!(in_hcl(broken), ["../a", "./b"], "a syntax error hid the local modules");
        let json = r#"{"module": {"a": {"source": "./a"}, "b": [{"source": "../b"}]}}"#;
        assert_eq!(in_json(json), ["./a", "../b"]);
        assert_eq!(in_json(r#"{"module": [{"a": {"source": "./a"}}]}"#), ["./a"]);
    }

    #[test]
    fn modules_of_modules_are_found_once() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for (path, text) in [
            ("root/main.tf", "module \"a\" { source = \"../shared/a\" }"),
            ("shared/a/main.tf", "module \"b\" { source = \"../b\" }"),
            ("shared/b/main.tf", "module \"a\" { source = \"../a\" }\nmodule \"gone\" { source = \"../gone\" }"),
        ] {
            let path = home.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let found: Vec<_> = closure(&home.join("root"), None).into_iter().collect();
        assert_eq!(found, [home.join("root"), home.join("shared/a"), home.join("shared/b")]);
    }
}
