//! `cargo xtask generate`: writes the files under `deploy`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use knoll_deploy::File;
use similar::TextDiff;

/// Writes the generated files. With `--check`, only compares them, and fails if one is stale.
fn main() -> anyhow::Result<()> {
    let check = std::env::args().skip(1).any(|word| word == "--check");
    let folder = root()?.join("deploy");
    let files = knoll_deploy::files()?;
    let stray = stray(&folder, &files)?;
    if check {
        return compare(&folder, &files, &stray);
    }
    for File { path: name, text } in &files {
        let path = folder.join(name);
        if read(&path)?.as_deref() != Some(text) {
            let parent = path.parent().unwrap_or(&folder);
            fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            println!("wrote deploy/{name}");
        }
    }
    for name in stray {
        let path = folder.join(&name);
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        println!("removed deploy/{name}");
    }
    Ok(())
}

fn compare(folder: &Path, files: &[File], stray: &[String]) -> anyhow::Result<()> {
    let mut stale = Vec::new();
    for File { path: name, text } in files {
        let there = read(&folder.join(name))?.unwrap_or_default();
        if there != *text {
            let diff = TextDiff::from_lines(there.as_str(), text.as_str());
            let lines = diff.iter_all_changes().filter(|change| change.tag() != similar::ChangeTag::Equal).count();
            stale.push(format!("deploy/{name} ({lines} lines differ)"));
        }
    }
    stale.extend(stray.iter().map(|name| format!("deploy/{name} (nothing makes it)")));
    if !stale.is_empty() {
        bail!("stale: {}; run `cargo xtask generate` and commit what it writes", stale.join(", "));
    }
    Ok(())
}

/// YAML files that are no longer generated.
fn stray(folder: &Path, files: &[File]) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = match fs::read_dir(&next) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("list {}", next.display())),
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            if name.ends_with(".yaml") && !files.iter().any(|file| file.path == name) {
                names.push(name);
            }
        }
    }
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// The root directory of the repository.
fn root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map(Path::to_owned).context("this crate lies in the repository")
}
