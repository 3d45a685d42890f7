//! Terraform as a person runs it: `init`, `plan` and `apply` in a folder of their own.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, bail};
use futures::future::try_join_all;
use tempfile::TempDir;
use tokio::process::Command;

/// A module to be applied again and again, each time in a new folder.
pub struct Bare {
    folder: TempDir,
    module: String,
}

impl Bare {
    /// Prepares the place.
    pub fn new(module: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for terraform")?;
        std::fs::write(folder.path().join("terraformrc"), "")?;
        Ok(Self { folder, module: module.to_owned() })
    }

    /// Applies it once; how long that took, in seconds.
    pub async fn once(&self) -> anyhow::Result<f64> {
        let place = self.place()?;
        let begun = Instant::now();
        self.apply(place.path()).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Applies it so many times at once.
    pub async fn crowd(&self, count: usize) -> anyhow::Result<f64> {
        let places = (0..count).map(|_| self.place()).collect::<anyhow::Result<Vec<_>>>()?;
        let begun = Instant::now();
        try_join_all(places.iter().map(|place| self.apply(place.path()))).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn place(&self) -> anyhow::Result<TempDir> {
        let place = tempfile::tempdir_in(self.folder.path())?;
        std::fs::write(place.path().join("main.tf"), &self.module)?;
        Ok(place)
    }

    async fn apply(&self, place: &Path) -> anyhow::Result<()> {
        let steps: [&[&str]; 3] =
            [&["init", "-input=false"], &["plan", "-input=false", "-out=plan"], &["apply", "-input=false", "plan"]];
        for words in steps {
            // The same settings that Knoll gives to it; without the first, it looks for a newer version of itself.
            let output = Command::new("terraform")
                .args(words)
                .current_dir(place)
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
