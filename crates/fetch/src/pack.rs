//! Packs of rules: files of a git repository at one commit, or an artifact of an OCI registry.
//!
//! *Guarantees.* The files are those of the commit or of the manifest that the pack names, and of nothing else. What is read
//! into memory has a limit.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use knoll_api::policy::{GitPack, RulePack};

use crate::{
    Credentials, Error, Settings,
    git::{at, blocking, checkout, remote::Remote},
    limits::Limits,
};

/// The largest pack, all files together: rules that people have written.
pub(crate) const LARGEST_PACK: u64 = 1 << 20;
/// The maximum nesting depth of directories.
const DEEPEST: usize = 32;

/// The texts of a pack by the paths of their files.
pub type Texts = BTreeMap<String, String>;

/// Fetches the files of a pack in a git repository.
///
/// # Errors
/// If the commit cannot be fetched, or has no rules at the path.
pub async fn git_pack(pack: &GitPack, credentials: &Credentials, settings: &Settings) -> Result<Texts, Error> {
    let remote = Remote::new(&pack.url, credentials, settings, Arc::new(Limits::default()))?;
    let commit = at(&remote, &pack.commit)?;
    let path = pack.path.clone().unwrap_or_default();
    blocking(move || {
        let folder = tempfile::tempdir()?;
        let tree = folder.path().join("tree");
        checkout::into(&remote, commit.object, false, &tree)?;
        let of = format!("commit {} of `{}`", commit.hash.get(..12).unwrap_or_default(), remote.shown);
        texts(&tree, path.trim_matches('/'), &of)
    })
    .await
}

/// The files with rules at `path` of a directory.
pub(crate) fn texts(folder: &Path, path: &str, of: &str) -> Result<Texts, Error> {
    let nothing =
        || Error::NoPack { path: if path.is_empty() { ".".to_owned() } else { path.to_owned() }, of: of.to_owned() };
    let folder = folder.canonicalize()?;
    // A symlink in the repository must not lead out of it.
    let real = folder.join(path).canonicalize().ok().filter(|real| real.starts_with(&folder)).ok_or_else(nothing)?;
    let mut files = Vec::new();
    find(&real, 0, &mut files)?;
    let mut found = Texts::new();
    let mut left = LARGEST_PACK;
    for file in files {
        let too_large = || Error::PackTooLarge(of.to_owned());
        left = left.checked_sub(fs::metadata(&file)?.len()).ok_or_else(too_large)?;
        let name = file.strip_prefix(&folder).unwrap_or(&file).display().to_string();
        let text = String::from_utf8(fs::read(&file)?);
        let text = text.map_err(|_| Error::PackText { name: name.clone(), of: of.to_owned() })?;
        found.insert(name, text);
    }
    if found.is_empty() { Err(nothing()) } else { Ok(found) }
}

/// The files with rules at and below `at`. Symlinks are not followed.
fn find(at: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    if at.is_file() {
        let name = at.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if RulePack::is_file_of_rules(&name) {
            found.push(at.to_owned());
        }
        return Ok(());
    }
    if depth > DEEPEST {
        return Ok(());
    }
    for entry in fs::read_dir(at)? {
        let entry = entry?;
        if !entry.file_type()?.is_symlink() {
            find(&entry.path(), depth + 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn rules_are_found_below_a_path_and_nothing_outside_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("tree/a.rego", "package a");
        write("tree/a_test.rego", "package a");
        write("tree/deep/er/b.rego", "package b");
        write("tree/readme.md", "x");
        write("tree/ci.yaml", "x");
        write("tree/c.cel.yaml", "rules: []");
        write("outside.rego", "package outside");
        let tree = folder.path().join("tree");
        std::os::unix::fs::symlink(folder.path().join("outside.rego"), tree.join("link.rego")).unwrap();
        std::os::unix::fs::symlink(folder.path(), tree.join("up")).unwrap();
        let names = |path: &str| texts(&tree, path, "it").map(|found| found.into_keys().collect::<Vec<_>>());
        assert_eq!(names("").unwrap(), ["a.rego", "c.cel.yaml", "deep/er/b.rego"]);
        assert_eq!(names("deep").unwrap(), ["deep/er/b.rego"]);
        assert_eq!(names("deep/er/b.rego").unwrap(), ["deep/er/b.rego"]);
        for path in ["readme.md", "ci.yaml", "nowhere", "up", "link.rego", "../outside.rego"] {
            assert!(matches!(names(path), Err(Error::NoPack { .. })), "{path}");
        }
        write("tree/large.rego", &"#".repeat(1 << 20));
        assert!(matches!(names(""), Err(Error::PackTooLarge(_))));
    }
}
