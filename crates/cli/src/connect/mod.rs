//! The way to the cluster: which kubeconfig, which context, which namespace.

mod explain;
mod kubeconfig;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use explain::Explain;
use kubeconfig::{Found, Origin};

use crate::style;

const HEADING: &str = "Connection";

/// The flags that say where the cluster is.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Connection {
    /// The namespace [default: that of the folder's workspace, then that of the kubeconfig's context]
    #[arg(long, short = 'n', env = "KNOLL_NAMESPACE", value_name = "NAMESPACE", help_heading = HEADING)]
    pub namespace: Option<String>,
    /// The kubeconfig's context
    #[arg(long, env = "KNOLL_CONTEXT", value_name = "CONTEXT", help_heading = HEADING)]
    pub context: Option<String>,
    /// The kubeconfig [default: $KUBECONFIG, ~/.kube/config, the pod's own access, then that of `knoll up`]
    #[arg(long, env = "KNOLL_KUBECONFIG", value_name = "FILE", help_heading = HEADING)]
    pub kubeconfig: Option<PathBuf>,
    /// The folder of `knoll up`, whose cluster is used when there is no other
    #[arg(long, env = "KNOLL_DATA_DIR", value_name = "DIR", hide = true)]
    pub data_dir: Option<PathBuf>,
}

impl Connection {
    /// These flags, and those of `outer` where these say nothing: `knoll -n a runs` is `knoll runs -n a`.
    #[must_use]
    pub fn or(self, outer: &Connection) -> Connection {
        Connection {
            namespace: self.namespace.or_else(|| outer.namespace.clone()),
            context: self.context.or_else(|| outer.context.clone()),
            kubeconfig: self.kubeconfig.or_else(|| outer.kubeconfig.clone()),
            data_dir: self.data_dir.or_else(|| outer.data_dir.clone()),
        }
    }
}

/// A cluster that can be asked.
#[derive(Clone)]
pub struct Cluster {
    /// The client.
    pub client: Client,
    /// The namespace that the context names.
    pub namespace: String,
    /// The address of the API server.
    pub server: String,
    origin: Origin,
}

impl Cluster {
    /// Finds the cluster, and offers to start one when there is none. Nothing is asked of it yet.
    pub async fn find(connection: &Connection) -> Result<Self> {
        if kubeconfig::find(connection)?.is_none()
            && style::confirm("There is no cluster here. Start one with `knoll up --detach`?")?
        {
            kubeconfig::start(connection)?;
        }
        Self::find_quietly(connection).await
    }

    /// Finds the cluster, without a question.
    pub async fn find_quietly(connection: &Connection) -> Result<Self> {
        let found = kubeconfig::find(connection)?.ok_or(kubeconfig::NoCluster)?;
        let (config, origin) = match found {
            Found::InCluster => {
                let config = Config::incluster().context("the pod's own access to the cluster cannot be used")?;
                (config, Origin::InCluster)
            }
            Found::Kubeconfig { config, origin } => {
                check_context(&config, connection.context.as_deref(), &origin)?;
                let options = KubeConfigOptions { context: connection.context.clone(), ..Default::default() };
                let shown = origin.to_string();
                let config = Config::from_custom_kubeconfig(*config, &options)
                    .await
                    .with_context(|| format!("{shown} cannot be used"))?;
                (config, origin)
            }
        };
        let (namespace, server) = (config.default_namespace.clone(), config.cluster_url.to_string());
        let client = knoll_operator::client::connect(config).context("the cluster cannot be reached")?;
        Ok(Self { client, namespace, server: server.trim_end_matches('/').to_owned(), origin })
    }
}

/// A context that is not there is named beside those that are.
fn check_context(config: &Kubeconfig, wanted: Option<&str>, origin: &Origin) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let names: Vec<&str> = config.contexts.iter().map(|context| context.name.as_str()).collect();
    if names.contains(&wanted) {
        return Ok(());
    }
    anyhow::bail!("there is no context `{wanted}` in {origin}\n  it has: {}", names.join(", "))
}
