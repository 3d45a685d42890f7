//! Bare terraform: `init`, `plan` and `apply` in a new directory.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, bail};
use futures::future::try_join_all;
use tempfile::TempDir;
use tokio::process::Command;

/// A module that is applied repeatedly, each time in a new directory.
pub struct Bare {
    folder: TempDir,
    module: String,
}

impl Bare {
    pub fn new(module: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a directory for terraform")?;
        std::fs::write(folder.path().join("terraformrc"), "")?;
        Ok(Self { folder, module: module.to_owned() })
    }

    /// Applies the module once. Returns the duration in seconds.
    pub async fn once(&self) -> anyhow::Result<f64> {
        let directory = self.directory()?;
        let begun = Instant::now();
        self.apply(directory.path()).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Applies the module several times concurrently.
    pub async fn crowd(&self, count: usize) -> anyhow::Result<f64> {
        let places = (0..count).map(|_| self.directory()).collect::<anyhow::Result<Vec<_>>>()?;
        let begun = Instant::now();
        try_join_all(places.iter().map(|directory| self.apply(directory.path()))).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn directory(&self) -> anyhow::Result<TempDir> {
        let directory = tempfile::tempdir_in(self.folder.path())?;
        std::fs::write(directory.path().join("main.tf"), &self.module)?;
        Ok(directory)
    }

    async fn apply(&self, directory: &Path) -> anyhow::Result<()> {
        let steps: [&[&str]; 3] =
            [&["init", "-input=false"], &["plan", "-input=false", "-out=plan"], &["apply", "-input=false", "plan"]];
        for words in steps {
            // The same settings as in a Run. Without the first, terraform checks for a newer version.
            let output = Command::new("terraform")
                .args(words)
                .current_dir(directory)
                .env("CHECKPOINT_DISABLE", "1")
                .env("TF_IN_AUTOMATION", "1")
                .env("TF_CLI_CONFIG_FILE", self.folder.path().join("terraformrc"))
                .stdin(Stdio::null())
                .output()
                .await
                .context("cannot start `terraform`")?;
            if !output.status.success() {
                bail!("`terraform {}` failed: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
            }
        }
        Ok(())
    }
}
