//! A server of the S3 protocol on loopback, with a folder for its bucket. It checks signatures.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const NAME: &str = "backups";
const KEY: &str = "knoll-test";
const SECRET: &str = "not-secret-at-all";

/// A bucket that can be cut off.
pub struct Bucket {
    folder: TempDir,
    port: u16,
    server: Option<Runtime>,
}

impl Bucket {
    /// Starts the server on a port of its own.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(NAME)).unwrap();
        let mut bucket = Bucket { folder, port: 0, server: None };
        bucket.back();
        bucket
    }

    /// Nothing answers any more, and open connections break.
    pub fn cut(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
    }

    /// The server answers again, on the same port and with what it had.
    pub fn back(&mut self) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        // The socket of the last server may still be closing.
        let deadline = std::time::Instant::now() + crate::TIMEOUT;
        let listener = loop {
            match std::net::TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(error) => assert!(std::time::Instant::now() < deadline, "cannot listen on {address}: {error}"),
            }
            std::thread::yield_now();
        };
        listener.set_nonblocking(true).unwrap();
        self.port = listener.local_addr().unwrap().port();
        let mut service = S3ServiceBuilder::new(FileSystem::new(self.folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        // A runtime of its own ends with everything that it serves.
        let server = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        server.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        self.server = Some(server);
    }

    /// The address of a prefix in the bucket.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{NAME}/{prefix}")
    }

    /// The variables with which a client finds the server and signs its requests.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let variables = [
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_ENDPOINT", &endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ALLOW_HTTP", "true"),
        ];
        variables.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    /// Where the objects of a prefix lie as files.
    pub fn folder(&self, prefix: &str) -> PathBuf {
        self.folder.path().join(NAME).join(prefix)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.cut();
    }
}
