//! The Workspace that a directory has selected, stored in `.terraform`, which neither git nor bundles include.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::connect::ClusterIdentity;

const FOLDER: &str = ".terraform";
const FILE: &str = "knoll.json";

/// The selected Workspace of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    pub namespace: String,
    pub workspace: String,
    /// The cluster of the Workspace; unknown in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterIdentity>,
}

impl Choice {
    /// Reads the selection of `folder`, if there is one.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = file(folder);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        let choice = serde_json::from_slice(&text).with_context(|| {
            format!("`{}` is corrupt; select the workspace again with `knoll workspace select NAME`", path.display())
        })?;
        Ok(Some(choice))
    }

    /// Fails if no selection can be stored for `folder`.
    pub fn check_writable(folder: &Path) -> Result<()> {
        let existing = folder.join(FOLDER);
        let place = if existing.exists() { existing } else { folder.to_owned() };
        // The permissions alone do not tell: root may write everywhere, and a file system may still be read-only.
        let probe = tempfile::tempfile_in(&place).map(drop);
        probe.with_context(|| {
            format!(
                "the selected workspace cannot be stored in `{}`; use `-w NAME` instead of a selection, or another directory",
                place.display()
            )
        })
    }

    /// Stores the selection for `folder`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = file(folder);
        let keep = || -> std::io::Result<()> {
            let parent = folder.join(FOLDER);
            if !parent.exists() {
                std::fs::create_dir_all(&parent)?;
                // A new `.terraform` directory gets a `.gitignore`, in case the repository has no rule for it.
                std::fs::write(parent.join(".gitignore"), "*\n")?;
            }
            let temporary = parent.join(format!(".{FILE}"));
            std::fs::write(&temporary, serde_json::to_vec_pretty(self)?)?;
            std::fs::rename(temporary, &path)
        };
        keep().with_context(|| format!("cannot store the selected workspace in `{}`", path.display()))
    }

    /// Removes the selection of `folder`.
    pub fn forget(folder: &Path) -> Result<()> {
        let path = file(folder);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove `{}`", path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Suggests a name for the Workspace of `folder`: the directory's name as a valid Kubernetes name.
#[must_use]
pub fn suggestion(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(50).collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "main".to_owned() } else { plain.to_owned() }
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FOLDER).join(FILE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_choice_is_kept_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Choice::read(folder.path()).unwrap(), None);
        let choice = Choice { namespace: "a".into(), workspace: "net".into(), cluster: None };
        choice.write(folder.path()).unwrap();
        assert_eq!(Choice::read(folder.path()).unwrap(), Some(choice));
        assert_eq!(std::fs::read_to_string(folder.path().join(".terraform/.gitignore")).unwrap(), "*\n");
        Choice::forget(folder.path()).unwrap();
        Choice::forget(folder.path()).unwrap();
        assert_eq!(Choice::read(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_damaged_choice_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(FOLDER)).unwrap();
        std::fs::write(file(folder.path()), "{").unwrap();
        let error = Choice::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("knoll workspace select"), "{error}");
    }

    #[test]
    fn a_choice_that_stays_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(file(folder.path())).unwrap();
        let error = Choice::forget(folder.path()).unwrap_err().to_string();
        assert_eq!(error, format!("cannot remove `{}`", file(folder.path()).display()));
    }

    #[test]
    fn folders_suggest_names() {
        for (folder, name) in [("/x/My_Net", "my-net"), ("/", "main"), ("/x/-a-", "a"), ("/x/日本", "main")] {
            assert_eq!(suggestion(Path::new(folder)), name);
        }
    }
}
