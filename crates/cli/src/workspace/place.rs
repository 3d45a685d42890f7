//! Where a command works: the cluster, the namespace, and the Workspace of the current folder.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use knoll_api::Workspace;
use kube::Api;
use kube::api::Resource;
use kube::core::NamespaceResourceScope;

use super::choice::{Choice, suggestion};
use crate::connect::{Cluster, Connection, Explain};

/// The flag that names a Workspace.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct WorkspaceArg {
    /// The workspace [default: the one that this folder uses]
    #[arg(long, short, env = "KNOLL_WORKSPACE", value_name = "WORKSPACE", add = crate::complete::workspaces())]
    pub workspace: Option<String>,
}

/// A cluster and a namespace, and the folder that the command was called in.
#[derive(Clone)]
pub struct Place {
    /// The cluster.
    pub cluster: Cluster,
    /// The namespace.
    pub namespace: String,
    /// The current folder.
    pub folder: PathBuf,
    /// What the folder has chosen.
    pub choice: Option<Choice>,
}

impl Place {
    /// Finds the cluster and the namespace: the flag's, the folder's, the context's.
    pub async fn find(connection: &Connection) -> Result<Self> {
        let folder = std::env::current_dir().context("the current folder is gone; change into another one")?;
        let choice = Choice::read(&folder)?;
        let cluster = Cluster::find(connection).await?;
        let chosen = choice.as_ref().map(|choice| choice.namespace.clone());
        let namespace = connection.namespace.clone().or(chosen).unwrap_or_else(|| cluster.namespace.clone());
        Ok(Self { cluster, namespace, folder, choice })
    }

    /// The objects of a kind in the namespace.
    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// The name of the Workspace: the flag's, or the folder's.
    pub fn workspace_name(&self, flag: &WorkspaceArg) -> Result<String> {
        // The folder's choice is one in a namespace; another namespace may have another one of that name.
        let chosen = self.choice.as_ref().filter(|choice| choice.namespace == self.namespace);
        flag.workspace.clone().or_else(|| chosen.map(|choice| choice.workspace.clone())).ok_or_else(|| {
            anyhow!(
                "this folder uses no workspace in namespace `{}` yet\n  \
                 `knoll workspace new {}` makes one, `knoll workspace select NAME` uses one that is there",
                self.namespace,
                suggestion(&self.folder)
            )
        })
    }

    /// The Workspace itself.
    pub async fn workspace(&self, name: &str) -> Result<Workspace> {
        let found = self.api::<Workspace>().get_opt(name).await;
        let found = found.explain(&self.cluster, &format!("cannot read the workspace `{name}`"))?;
        if found.is_none() {
            self.check_installed().await?;
        }
        found.ok_or_else(|| {
            anyhow!(
                "there is no workspace `{name}` in namespace `{}`\n  \
                 `knoll workspace list` shows those that are there, `knoll workspace new {name}` makes it",
                self.namespace
            )
        })
    }

    /// An object that is not there looks like a kind that is not there: tells the two apart.
    pub async fn check_installed(&self) -> Result<()> {
        let few = kube::api::ListParams::default().limit(1);
        self.api::<Workspace>().list_metadata(&few).await.explain(&self.cluster, "cannot look for Knoll")?;
        Ok(())
    }
}
