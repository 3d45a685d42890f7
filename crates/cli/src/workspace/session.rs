//! The cluster, the namespace and the current directory that a command works with.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use knoll_api::Workspace;
use knoll_storage::Storage;
use kube::Api;
use kube::api::Resource;
use kube::core::NamespaceResourceScope;

use super::choice::{Choice, suggestion};
use crate::connect::{Cluster, Connection, Explain};

/// The `--workspace` flag.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct WorkspaceArg {
    /// The workspace [default: the one selected in this directory]
    #[arg(long, short, env = "KNOLL_WORKSPACE", value_name = "WORKSPACE", add = crate::complete::workspaces())]
    pub workspace: Option<String>,
}

/// The cluster, the namespace and the directory of a command.
#[derive(Clone)]
pub struct Session {
    pub cluster: Cluster,
    pub namespace: String,
    pub folder: PathBuf,
    /// The Workspace selected in the directory.
    pub choice: Option<Choice>,
}

impl Session {
    /// The way to what Knoll keeps, with the user's permissions.
    pub fn storage(&self) -> Storage {
        Storage::new(self.cluster.client.clone())
    }

    /// Finds the cluster and the namespace. The flag comes before the directory's selection, which comes before the
    /// context.
    pub async fn find(connection: &Connection) -> Result<Self> {
        let folder =
            std::env::current_dir().context("the current directory no longer exists; change into another one")?;
        let choice = Choice::read(&folder)?;
        let cluster = Cluster::find(connection).await?;
        let chosen = choice.as_ref().map(|choice| choice.namespace.clone());
        let namespace = connection.namespace.clone().or(chosen).unwrap_or_else(|| cluster.namespace.clone());
        Ok(Self { cluster, namespace, folder, choice })
    }

    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// The name of the Workspace: that of the flag, or the selected one.
    pub fn workspace_name(&self, flag: &WorkspaceArg) -> Result<String> {
        // The selection is bound to a namespace; another namespace may have another Workspace of that name.
        let chosen = self.choice.as_ref().filter(|choice| choice.namespace == self.namespace);
        flag.workspace.clone().or_else(|| chosen.map(|choice| choice.workspace.clone())).ok_or_else(|| {
            anyhow!(
                "no workspace of namespace `{}` is selected in this directory\n  \
                 create one with `knoll workspace new {}`, or select one with `knoll workspace select NAME`",
                self.namespace,
                suggestion(&self.folder)
            )
        })
    }

    pub async fn workspace(&self, name: &str) -> Result<Workspace> {
        let found = self.api::<Workspace>().get_opt(name).await;
        let found = found.explain(&self.cluster, &format!("cannot read workspace `{name}`"))?;
        if found.is_none() {
            self.check_installed().await?;
        }
        found.ok_or_else(|| {
            anyhow!(
                "workspace `{name}` not found in namespace `{}`\n  \
                 list workspaces with `knoll workspace list`, or create it with `knoll workspace new {name}`",
                self.namespace
            )
        })
    }

    /// Fails if Knoll is not installed. The API server answers 404 both for a missing object and for a missing kind.
    pub async fn check_installed(&self) -> Result<()> {
        let few = kube::api::ListParams::default().limit(1);
        self.api::<Workspace>()
            .list_metadata(&few)
            .await
            .explain(&self.cluster, "cannot check whether Knoll is installed")?;
        Ok(())
    }
}
