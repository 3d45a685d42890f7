//! A cluster in memory for one test, reachable over TLS and in process.
#![allow(clippy::unwrap_used, dead_code, reason = "tests; each test file uses a part of it")]

use std::path::{Path, PathBuf};

use knoll_embedded::{Cluster, Options};
use tempfile::TempDir;

/// A cluster and the runtime it lives in. It ends with this value.
pub struct TestCluster {
    runtime: tokio::runtime::Runtime,
    cluster: Option<Cluster>,
    folder: TempDir,
}

impl TestCluster {
    /// A cluster in memory.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// A cluster with these options.
    pub fn with(options: Options) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cluster = runtime.block_on(Cluster::start(options)).unwrap();
        cluster.write_kubeconfig(&folder.path().join("kubeconfig")).unwrap();
        Self { runtime, cluster: Some(cluster), folder }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A folder for the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().unwrap()
    }

    /// Runs a future on the cluster's runtime.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// A client over TLS.
    pub async fn remote(&self) -> kube::Client {
        let file = kube::config::Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await;
        kube::Client::try_from(config.unwrap()).unwrap()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.take() {
            self.runtime.block_on(cluster.stop());
        }
    }
}
