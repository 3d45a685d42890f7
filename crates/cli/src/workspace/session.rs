//! The cluster, the namespace and the current directory that a command works with.

use std::convert::Infallible;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Namespace;
use knoll_api::Workspace;
use knoll_storage::Storage;
use kube::Api;
use kube::api::Resource;
use kube::core::NamespaceResourceScope;

use super::choice::{Choice, suggestion};
use crate::connect::{Cluster, Connection, Explain};
use crate::style;

/// The `--workspace` flag.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct WorkspaceArg {
    /// The workspace [default: the one selected in this directory]
    #[arg(long, short, env = "KNOLL_WORKSPACE", value_name = "WORKSPACE", add = crate::complete::workspaces(), value_parser = crate::workspace::plain_name::<knoll_api::Workspace>)]
    pub workspace: Option<String>,
}

/// The cluster, the namespace and the directory of a command.
#[derive(Clone)]
pub struct Session {
    pub cluster: Cluster,
    pub namespace: String,
    pub folder: PathBuf,
    /// The Workspace selected in the directory, if it is one of this cluster.
    pub choice: Option<Choice>,
    /// The Workspace selected in the directory, if it is one of another cluster.
    elsewhere: Option<Choice>,
}

impl Session {
    /// The way to what Knoll keeps, with the user's permissions.
    pub fn storage(&self) -> Storage {
        Storage::new(self.cluster.client.clone())
    }

    /// Finds the cluster and the namespace. The flag comes before the directory's selection, which comes before the
    /// context.
    pub async fn find(connection: &Connection) -> Result<Self> {
        Self::with(connection, Cluster::find(connection)).await
    }

    /// The same without prompting.
    pub async fn find_quietly(connection: &Connection) -> Result<Self> {
        Self::with(connection, Cluster::find_quietly(connection)).await
    }

    async fn with(connection: &Connection, cluster: impl Future<Output = Result<Cluster>>) -> Result<Self> {
        let folder =
            std::env::current_dir().context("the current directory no longer exists; change into another one")?;
        let choice = Choice::read(&folder)?;
        let cluster = cluster.await?;
        let is_here = match choice.as_ref().and_then(|choice| choice.cluster.as_ref()) {
            Some(known) => cluster.is(known).await,
            None => true,
        };
        let (choice, elsewhere) = if is_here { (choice, None) } else { (None, choice) };
        let chosen = choice.as_ref().map(|choice| choice.namespace.clone());
        let namespace = connection.namespace.clone().or(chosen).unwrap_or_else(|| cluster.namespace.clone());
        Ok(Self { cluster, namespace, folder, choice, elsewhere })
    }

    #[must_use]
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client.clone(), &self.namespace)
    }

    /// Selects a Workspace of this cluster and namespace in the directory.
    pub async fn select(&self, workspace: &str) -> Result<()> {
        let cluster = self.cluster.identity().await.explain(&self.cluster, "cannot identify the cluster")?;
        let (namespace, workspace) = (self.namespace.clone(), workspace.to_owned());
        Choice { namespace, workspace, cluster: Some(cluster) }.write(&self.folder)
    }

    /// The name of the Workspace: that of the flag, or the selected one. A selection in another cluster is used only if the
    /// user agrees.
    pub fn workspace_name(&self, flag: &WorkspaceArg) -> Result<String> {
        if let (None, Some(Choice { workspace, cluster: Some(other), .. })) = (&flag.workspace, &self.elsewhere) {
            let (here, there) = (&self.cluster.server, &other.server);
            if here == there {
                bail!(
                    "this directory uses workspace `{workspace}` of an earlier cluster at {here}: the one of today is another \
                     cluster at the same address\n  \
                     `knoll workspace select {workspace}` selects the workspace of this one, as after `knoll restore`"
                );
            }
            let question = format!(
                "This directory uses workspace `{workspace}` of another cluster, {there}. Use workspace `{workspace}` in \
                 namespace `{}` of {here}?",
                self.namespace
            );
            if style::confirm(&question)? {
                return Ok(workspace.clone());
            }
            bail!(
                "this directory uses workspace `{workspace}` of another cluster, {there}, and {} leads to {here}\n  \
                 use the kubeconfig of that cluster, or select a workspace of this one with `knoll workspace select NAME`",
                self.cluster.origin
            );
        }
        self.known_workspace_name(flag).ok_or_else(|| {
            // The commands work in the same namespace, wherever its name has come from.
            let flag = if self.namespace == self.cluster.namespace { String::new() } else { format!(" -n {}", self.namespace) };
            anyhow!(
                "no workspace of namespace `{}` is selected in this directory\n  \
                 create one with `knoll workspace new {}{flag}`, or select one with `knoll workspace select NAME{flag}`",
                self.namespace,
                suggestion(&self.folder)
            )
        })
    }

    /// What is wrong with the namespace, if it does not exist.
    pub async fn missing_namespace(&self) -> Option<anyhow::Error> {
        let namespaces = Api::<Namespace>::all(self.cluster.client.clone());
        // A user who may not read namespaces is not told.
        let is_missing = namespaces.get_metadata_opt(&self.namespace).await.is_ok_and(|found| found.is_none());
        let name = &self.namespace;
        is_missing.then(|| anyhow!("namespace `{name}` not found\n  `kubectl create namespace {name}` creates it"))
    }

    /// The name of the Workspace, if it is known without a question.
    pub fn known_workspace_name(&self, flag: &WorkspaceArg) -> Option<String> {
        // The selection is bound to a namespace; another namespace may have another Workspace of that name.
        let chosen = self.choice.as_ref().filter(|choice| choice.namespace == self.namespace);
        flag.workspace.clone().or_else(|| chosen.map(|choice| choice.workspace.clone()))
    }

    pub async fn workspace(&self, name: &str) -> Result<Workspace> {
        let found = self.api::<Workspace>().get_opt(name).await;
        let found = found.explain(&self.cluster, &format!("cannot read workspace `{name}`"))?;
        if found.is_none() {
            self.check_installed().await?;
        }
        if found.is_none()
            && let Some(error) = self.missing_namespace().await
        {
            return Err(error);
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

/// The name of an object that may be written as kubectl prints it: `run.knoll.dev/NAME` or `run/NAME`.
#[allow(clippy::unnecessary_wraps, reason = "clap asks for a result")]
pub fn plain_name<K: Resource<DynamicType = ()>>(text: &str) -> Result<String, Infallible> {
    let (singular, plural) = (K::kind(&()).to_lowercase(), K::plural(&()).to_lowercase());
    let suffix = format!(".{}", K::group(&()));
    let is_kind = |kind: &str| {
        let kind = kind.strip_suffix(&suffix).unwrap_or(kind);
        kind == singular || kind == plural
    };
    Ok(text.split_once('/').filter(|(kind, _)| is_kind(kind)).map_or(text, |(_, name)| name).to_owned())
}

#[cfg(test)]
mod tests {
    use knoll_api::Run;

    use super::*;

    #[test]
    fn names_are_read_as_kubectl_prints_them() {
        for text in ["net", "run/net", "runs/net", "run.knoll.dev/net", "runs.knoll.dev/net"] {
            assert_eq!(plain_name::<Run>(text).as_deref(), Ok("net"));
        }
        for text in ["workspace/net", "run.other.dev/net", "a/b"] {
            assert_eq!(plain_name::<Run>(text).as_deref(), Ok(text));
        }
    }
}
