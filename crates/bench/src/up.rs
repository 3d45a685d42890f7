//! `knoll up` in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub struct Up {
    knoll: PathBuf,
    pub folder: PathBuf,
}

impl Up {
    pub fn new(knoll: &Path, name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("knoll-bench-{name}-{}", std::process::id()));
        Self { knoll: knoll.to_owned(), folder }
    }

    pub fn start(&self) -> anyhow::Result<()> {
        self.call(&["up", "--detach", "--port", "0"])
    }

    pub fn stop(&self) -> anyhow::Result<()> {
        self.call(&["down"])
    }

    /// Stops it and deletes its folder.
    pub fn remove(&self) -> anyhow::Result<()> {
        self.stop()?;
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }

    fn call(&self, words: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.knoll);
        let status = command.args(words).env("KNOLL_DATA_DIR", &self.folder).status().context("cannot start knoll")?;
        if !status.success() {
            bail!("`knoll {}` ended with {status}", words.join(" "));
        }
        Ok(())
    }

    pub async fn client(&self) -> anyhow::Result<Client> {
        let file = Kubeconfig::read_from(self.folder.join("kubeconfig"))?;
        Ok(Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)?)
    }
}
