//! A whole embedded cluster: store, API server and upkeep, in a data folder or in memory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use knoll_kube_apiserver::{
    ApiError, Authority, Config, Identity, KeyError, ListenError, Listening, Server, StaticTokens, Tokens, listen,
    start_controllers,
};
use knoll_kube_store::{self as store, Store, Write};

/// The name of the only node.
pub const NODE: &str = "knoll";
/// Where the cluster's own keys are kept in the store: under a name that no resource has, so no request reaches it.
const KEYS: &str = "~keys//cluster";

/// How to start a cluster.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The folder that holds the cluster. `None`: it lives in memory and ends with the process.
    pub data_dir: Option<PathBuf>,
    /// The port of 127.0.0.1 (0: any that is free).
    pub port: u16,
    /// Pods are placed on the node as they are created.
    pub place_pods: bool,
}

/// A cluster that runs.
pub struct Cluster {
    pub server: Server,
    pub addr: SocketAddr,
    keys: Keys,
    listening: Listening,
    stop: CancellationToken,
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data folder cannot be used.
    #[error("cannot use the data folder `{}`: {source}", path.display())]
    Folder { path: PathBuf, source: std::io::Error },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The signing key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The port cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The cluster's keys in the store are not readable.
    #[error("the cluster's keys in the store are damaged: {0}")]
    Keys(#[from] serde_json::Error),
    /// The first objects could not be created.
    #[error("the cluster's first objects could not be created: {0}")]
    Upkeep(#[from] ApiError),
}

/// What must survive a restart so that kubeconfigs and tokens stay good.
#[derive(Clone, Serialize, Deserialize)]
struct Keys {
    ca_cert: String,
    ca_key: String,
    signing_key: String,
    admin_token: String,
}

impl Keys {
    fn generate() -> Result<Self, Error> {
        let authority = Authority::generate()?;
        let random: [u8; 32] = rand::random();
        let signing_key = STANDARD.encode(Tokens::generate()?);
        let admin_token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random);
        Ok(Self { ca_cert: authority.cert, ca_key: authority.key, signing_key, admin_token })
    }

    async fn load(store: &Store) -> Result<Self, Error> {
        if let Some(entry) = store.get(KEYS)? {
            return Ok(serde_json::from_slice(&entry.value)?);
        }
        let keys = Self::generate()?;
        let value = Bytes::from(serde_json::to_vec(&keys)?);
        store.write(Write::Create { key: KEYS.to_owned(), value }).await?;
        Ok(keys)
    }
}

impl Cluster {
    /// Starts a cluster. When this returns, its API is ready.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let store = match &options.data_dir {
            Some(dir) => {
                create_private(dir)?;
                Store::open(&dir.join("knoll.db"), store::Options::default())?
            }
            None => Store::memory(),
        };
        let keys = Keys::load(&store).await?;
        let stop = CancellationToken::new();
        let signing = STANDARD.decode(&keys.signing_key).unwrap_or_default();
        let server = Server::new(Config {
            store,
            tokens: Tokens::new(&signing)?,
            static_tokens: StaticTokens::new(vec![(keys.admin_token.clone(), Identity::admin("knoll-admin"))]),
            ca_pem: keys.ca_cert.clone(),
            node: options.place_pods.then(|| NODE.to_owned()),
            stop: stop.clone(),
        });
        start_controllers(&server).await?;
        let authority = Authority { cert: keys.ca_cert.clone(), key: keys.ca_key.clone() };
        let listening = listen(server.clone(), &authority, options.port, stop.clone()).await?;
        Ok(Self { server, addr: listening.addr, keys, listening, stop })
    }

    /// A cluster in memory, on a free port.
    pub async fn memory() -> Result<Self, Error> {
        Self::start(Options::default()).await
    }

    /// A client that talks to the API server in process.
    pub fn client(&self) -> kube::Client {
        self.server.client("default")
    }

    pub fn kubeconfig(&self) -> String {
        let ca = STANDARD.encode(&self.keys.ca_cert);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "knoll",
            "clusters": [{"name": "knoll", "cluster": {
                "server": format!("https://{}", self.addr), "certificate-authority-data": ca,
            }}],
            "users": [{"name": "knoll-admin", "user": {"token": self.keys.admin_token}}],
            "contexts": [{"name": "knoll", "context": {"cluster": "knoll", "user": "knoll-admin"}}],
        });
        // A kubeconfig is YAML, and JSON is YAML.
        serde_json::to_string_pretty(&config).unwrap_or_default()
    }

    /// Writes the kubeconfig, readable by its owner only.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        write_private(path, self.kubeconfig().as_bytes())
            .map_err(|source| Error::Folder { path: path.to_owned(), source })
    }

    /// Ends all requests and closes the store.
    pub async fn stop(self) {
        self.stop.cancel();
        self.listening.finished().await;
        self.server.store().clone().close().await;
    }
}

/// Makes a folder that only its owner can look into.
fn create_private(dir: &Path) -> Result<(), Error> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| Error::Folder { path: dir.to_owned(), source })
}

/// Writes a file that only its owner can read, in one step.
fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt;
    let temporary = path.with_extension("tmp");
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}
