//! Which Workspace a folder uses: kept in `.terraform`, which neither git nor a bundle takes along.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The folder that terraform keeps its own things in.
const FOLDER: &str = ".terraform";
const FILE: &str = "knoll.json";

/// The Workspace of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub workspace: String,
}

impl Choice {
    /// The choice of `folder`, if one was made.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = file(folder);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        let choice = serde_json::from_slice(&text).with_context(|| {
            format!("`{}` is damaged; choose again with `knoll workspace select NAME`", path.display())
        })?;
        Ok(Some(choice))
    }

    /// Keeps the choice for `folder`.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = file(folder);
        let keep = || -> std::io::Result<()> {
            let parent = folder.join(FOLDER);
            if !parent.exists() {
                std::fs::create_dir_all(&parent)?;
                // Whoever has no rule for terraform's folder yet gets one.
                std::fs::write(parent.join(".gitignore"), "*\n")?;
            }
            let temporary = parent.join(format!(".{FILE}"));
            std::fs::write(&temporary, serde_json::to_vec_pretty(self)?)?;
            std::fs::rename(temporary, &path)
        };
        keep().with_context(|| format!("cannot keep the choice in `{}`", path.display()))
    }

    /// Forgets the choice of `folder`.
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

/// The name that a Workspace for `folder` could have: the folder's own, as Kubernetes takes names.
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
        let choice = Choice { namespace: "a".into(), workspace: "net".into() };
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
