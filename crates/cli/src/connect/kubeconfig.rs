//! Finds the kubeconfig as kubectl does, and that of `knoll up` when there is no other.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use kube::config::Kubeconfig;

use super::Connection;

/// There is no cluster.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no cluster: no `--kubeconfig`, no $KUBECONFIG, no ~/.kube/config, and no `knoll up` here\n  \
     `knoll up --detach` starts a cluster on this machine in a second"
)]
pub struct NoCluster;

/// What was found.
pub enum Found {
    /// This process runs in a pod.
    InCluster,
    /// A kubeconfig.
    Kubeconfig {
        /// What it says.
        config: Box<Kubeconfig>,
        /// Where it was.
        origin: Origin,
    },
}

/// Where the way to the cluster was found.
#[derive(Clone, Debug)]
pub enum Origin {
    /// In the files of a pod.
    InCluster,
    /// In a file that a flag names.
    Flag(PathBuf),
    /// In `$KUBECONFIG`.
    Environment,
    /// In the usual place.
    Home(PathBuf),
    /// In the folder of `knoll up`.
    Up(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::InCluster => f.write_str("the pod's own access"),
            Origin::Flag(path) | Origin::Home(path) => write!(f, "the kubeconfig `{}`", path.display()),
            Origin::Environment => f.write_str("the kubeconfig of $KUBECONFIG"),
            Origin::Up(path) => write!(f, "the kubeconfig of `knoll up`, `{}`,", path.display()),
        }
    }
}

/// Looks in each place in turn.
pub fn find(connection: &Connection) -> Result<Option<Found>> {
    if let Some(path) = &connection.kubeconfig {
        let config = read(path)?;
        if config.contexts.is_empty() {
            bail!("the kubeconfig `{}` names no cluster; name another one with `--kubeconfig FILE`", path.display());
        }
        return Ok(Some(found(config, Origin::Flag(path.clone()))));
    }
    if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
        let config = Kubeconfig::from_env().context("cannot read the kubeconfig of $KUBECONFIG")?;
        if let Some(config) = config.filter(|config| !config.contexts.is_empty()) {
            return Ok(Some(found(config, Origin::Environment)));
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
        return Ok(Some(Found::InCluster));
    }
    match up(connection).filter(|path| path.is_file()) {
        Some(path) => Ok(Some(found(read(&path)?, Origin::Up(path)))),
        None => Ok(None),
    }
}

/// Starts the cluster of `knoll up`, as the user would.
pub fn start(connection: &Connection) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(["up", "--detach"]).stdin(Stdio::null());
    // What it says is for people, and this command may have an output of its own.
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

/// The file that `knoll up` writes.
fn up(connection: &Connection) -> Option<PathBuf> {
    let folder = match &connection.data_dir {
        Some(folder) => folder.clone(),
        None => std::env::home_dir()?.join(".knoll"),
    };
    Some(folder.join("kubeconfig"))
}

fn found(config: Kubeconfig, origin: Origin) -> Found {
    Found::Kubeconfig { config: Box::new(config), origin }
}

fn read(path: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(path).with_context(|| format!("cannot read the kubeconfig `{}`", path.display()))
}
