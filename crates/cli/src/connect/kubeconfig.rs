//! Finds the kubeconfig in the same places as kubectl, then that of `knoll up`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use kube::config::{Kubeconfig, KubeconfigError};

use super::Connection;

/// No kubeconfig was found.
#[derive(Debug, thiserror::Error)]
#[error(
    "no cluster is configured: no `--kubeconfig`, no $KUBECONFIG, no ~/.kube/config, and no local cluster of `knoll up`\n  \
     `knoll up --detach` starts a local cluster"
)]
pub struct NoCluster;

/// How the cluster is reached.
pub enum Access {
    /// With the service account of this process's pod.
    InCluster,
    Kubeconfig {
        config: Box<Kubeconfig>,
        origin: Origin,
    },
}

/// Where the configuration was found.
#[derive(Clone, Debug)]
pub enum Origin {
    InCluster,
    /// `--kubeconfig`.
    Flag(PathBuf),
    /// `$KUBECONFIG`.
    Environment,
    /// `~/.kube/config`.
    Home(PathBuf),
    /// The data directory of `knoll up`.
    Up(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::InCluster => f.write_str("the in-cluster configuration"),
            Origin::Flag(path) | Origin::Home(path) => write!(f, "the kubeconfig `{}`", path.display()),
            Origin::Environment => f.write_str("the kubeconfig in $KUBECONFIG"),
            Origin::Up(path) => write!(f, "the kubeconfig of `knoll up`, `{}`,", path.display()),
        }
    }
}

/// Checks each location in order.
pub fn find(connection: &Connection) -> Result<Option<Access>> {
    if let Some(path) = &connection.kubeconfig {
        let config = read(path)?;
        if config.contexts.is_empty() {
            bail!("the kubeconfig `{}` has no cluster; use another one with `--kubeconfig FILE`", path.display());
        }
        return Ok(Some(found(config, Origin::Flag(path.clone()))));
    }
    if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
        let config = Kubeconfig::from_env().map_err(told).context("cannot read the kubeconfig in $KUBECONFIG")?;
        match config.filter(|config| !config.contexts.is_empty()) {
            Some(config) => return Ok(Some(found(config, Origin::Environment))),
            // Any other cluster would not be the one that the user means.
            None => bail!("the kubeconfig in $KUBECONFIG has no cluster; set it to another file, or unset it"),
        }
    }
    let home = std::env::home_dir().map(|home| home.join(".kube").join("config"));
    if let Some(path) = home.filter(|path| path.is_file()) {
        let config = read(&path)?;
        if !config.contexts.is_empty() {
            return Ok(Some(found(config, Origin::Home(path))));
        }
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|value| !value.is_empty()) {
        return Ok(Some(Access::InCluster));
    }
    match up(connection).filter(|path| path.is_file()) {
        Some(path) => Ok(Some(found(read(&path)?, Origin::Up(path)))),
        None => Ok(None),
    }
}

/// Starts the embedded cluster with `knoll up --detach`.
pub fn start(connection: &Connection) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this executable")?;
    let mut command = Command::new(program);
    command.args(["up", "--detach"]).stdin(Stdio::null());
    // The messages of `knoll up` go to standard error, because standard output belongs to this command.
    command.stdout(std::io::stderr());
    if let Some(folder) = &connection.data_dir {
        command.arg("--data-dir").arg(folder);
    }
    let status = command.status().context("cannot start `knoll up`")?;
    if !status.success() {
        bail!("`knoll up` did not start a cluster");
    }
    Ok(())
}

/// The kubeconfig that `knoll up` writes.
fn up(connection: &Connection) -> Option<PathBuf> {
    let folder = match &connection.data_dir {
        Some(folder) => folder.clone(),
        None => std::env::home_dir()?.join(".knoll"),
    };
    Some(folder.join("kubeconfig"))
}

fn found(config: Kubeconfig, origin: Origin) -> Access {
    Access::Kubeconfig { config: Box::new(config), origin }
}

fn read(path: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(path)
        .map_err(told)
        .with_context(|| format!("cannot read the kubeconfig `{}`", path.display()))
}

/// The error with the path as users write it.
fn told(error: KubeconfigError) -> anyhow::Error {
    match error {
        KubeconfigError::ReadConfig(error, path) => anyhow!("`{}`: {error}", path.display()),
        error => error.into(),
    }
}
