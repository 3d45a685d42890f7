//! Connects to the cluster: kubeconfig, context and namespace.

mod explain;
mod identity;
mod kubeconfig;
mod role;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use knoll_core::approval::Decider;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;

pub use explain::Explain;
pub use identity::ClusterIdentity;
use kubeconfig::{Access, Origin};
pub use role::Role;

use crate::style;

const HEADING: &str = "Connection";

/// The connection flags.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Connection {
    /// The namespace [default: the namespace of the selected workspace, then of the kubeconfig context]
    #[arg(long, short = 'n', env = "KNOLL_NAMESPACE", value_name = "NAMESPACE", help_heading = HEADING)]
    pub namespace: Option<String>,
    /// The kubeconfig context
    #[arg(long, env = "KNOLL_CONTEXT", value_name = "CONTEXT", help_heading = HEADING)]
    pub context: Option<String>,
    /// The kubeconfig [default: $KUBECONFIG, ~/.kube/config, in-cluster configuration, then the embedded cluster]
    #[arg(long, env = "KNOLL_KUBECONFIG", value_name = "FILE", help_heading = HEADING)]
    pub kubeconfig: Option<PathBuf>,
    /// The user to impersonate
    #[arg(long = "as", env = "KNOLL_AS", value_name = "USER", help_heading = HEADING)]
    pub as_user: Option<String>,
    /// The groups to impersonate; repeatable
    #[arg(long = "as-group", env = "KNOLL_AS_GROUP", value_name = "GROUP", value_delimiter = ',', help_heading = HEADING)]
    pub as_group: Vec<String>,
    /// The data directory of the embedded cluster, which is used when no other is configured
    #[arg(long, env = "KNOLL_DATA_DIR", value_name = "DIR", hide = true)]
    pub data_dir: Option<PathBuf>,
    /// The role that the command needs
    #[arg(skip)]
    pub role: Role,
}

impl Connection {
    /// Returns these flags, with those of `outer` as defaults: `knoll -n a runs` equals `knoll runs -n a`.
    #[must_use]
    pub fn or(self, outer: &Connection) -> Connection {
        Connection {
            namespace: self.namespace.or_else(|| outer.namespace.clone()),
            context: self.context.or_else(|| outer.context.clone()),
            kubeconfig: self.kubeconfig.or_else(|| outer.kubeconfig.clone()),
            as_user: self.as_user.or_else(|| outer.as_user.clone()),
            as_group: if self.as_group.is_empty() { outer.as_group.clone() } else { self.as_group },
            data_dir: self.data_dir.or_else(|| outer.data_dir.clone()),
            role: outer.role,
        }
    }
}

/// A configured cluster.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// The namespace of the kubeconfig context.
    pub namespace: String,
    /// The URL of the API server.
    pub server: String,
    pub origin: Origin,
    /// The role that the command needs.
    pub role: Role,
    configured: ClusterIdentity,
    user: Arc<OnceCell<Decider>>,
    /// The bearer token of the kubeconfig; none for other credentials, or when somebody is impersonated.
    token: Option<SecretString>,
}

impl Cluster {
    /// Finds the cluster, and offers to start the embedded one when none is configured. Sends no request.
    pub async fn find(connection: &Connection) -> Result<Self> {
        if kubeconfig::find(connection)?.is_none()
            && style::confirm("No cluster is configured. Start a local one with `knoll up --detach`?")?
        {
            kubeconfig::start(connection)?;
        }
        Self::find_quietly(connection).await
    }

    /// Finds the cluster without prompting.
    pub async fn find_quietly(connection: &Connection) -> Result<Self> {
        let found = kubeconfig::find(connection)?.ok_or(kubeconfig::NoCluster)?;
        let (mut config, origin) = match found {
            Access::InCluster => {
                let config = Config::incluster().context("cannot use the in-cluster configuration")?;
                (config, Origin::InCluster)
            }
            Access::Kubeconfig { config, origin } => {
                check_context(&config, connection.context.as_deref(), &origin)?;
                let options = KubeConfigOptions { context: connection.context.clone(), ..Default::default() };
                let shown = origin.to_string();
                let config = Config::from_custom_kubeconfig(*config, &options)
                    .await
                    .with_context(|| format!("cannot use {shown}"))?;
                (config, origin)
            }
        };
        if connection.as_user.is_none() && !connection.as_group.is_empty() {
            anyhow::bail!("`--as-group` needs `--as USER`");
        }
        if let Some(user) = &connection.as_user {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = Some(connection.as_group.clone()).filter(|groups| !groups.is_empty());
        }
        let namespace = config.default_namespace.clone();
        let configured = ClusterIdentity::configured(&config);
        let token = config.auth_info.token.clone().filter(|_| config.auth_info.impersonate.is_none());
        let client = knoll_operator::client::connect(config).context("cannot connect to the cluster")?;
        let server = configured.server.clone();
        Ok(Self { client, namespace, server, origin, role: connection.role, configured, user: Arc::default(), token })
    }

    /// The bearer token of the user, to sign in elsewhere.
    pub fn token(&self) -> Option<String> {
        self.token.as_ref().map(|token| token.expose_secret().to_owned())
    }

    /// The username of this user in the cluster. Records in another name are refused by the cluster.
    pub async fn user(&self) -> Result<&str> {
        self.decider().await.map(|user| user.name.as_str())
    }

    /// This user as an Approval names them, from one SelfSubjectReview per command.
    pub async fn decider(&self) -> Result<&Decider> {
        let ask = async || {
            let reviews: Api<SelfSubjectReview> = Api::all(self.client.clone());
            let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
            let answer = answer.explain(self, "cannot read your username from the cluster")?;
            let user = answer.status.and_then(|status| status.user_info).and_then(Decider::of);
            user.ok_or_else(|| anyhow!("the cluster returned no username; log in again"))
        };
        self.user.get_or_try_init(ask).await
    }
}

/// Fails with the list of contexts when the requested one does not exist.
fn check_context(config: &Kubeconfig, context: Option<&str>, origin: &Origin) -> Result<()> {
    let Some(context) = context else { return Ok(()) };
    let names: Vec<&str> = config.contexts.iter().map(|context| context.name.as_str()).collect();
    if names.contains(&context) {
        return Ok(());
    }
    anyhow::bail!("context `{context}` not found in {origin}\n  available contexts: {}", names.join(", "))
}
