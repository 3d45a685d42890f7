//! The hub, as a client in the place of a runner reaches it.

use std::io;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use knoll_api::wire::env;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The address and the certificate of the hub.
pub struct Hub {
    address: String,
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Hub {
    /// The hub that the runner in this pod asks.
    ///
    /// # Panics
    /// If it is no pod of a Run.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let containers: &[Container] = pod.spec.as_ref().map_or(&[], |spec| spec.containers.as_slice());
        let value = |name: &str| {
            let mut variables = containers.iter().flat_map(|container| container.env.iter().flatten());
            variables.find(|variable| variable.name == name).and_then(|variable| variable.value.clone()).unwrap()
        };
        let url = value(env::HUB_URL);
        let address = url.strip_prefix("https://").unwrap().trim_end_matches('/');
        let (host, address) = match address.rsplit_once(':') {
            Some((host, _)) => (host, address.to_owned()),
            None => (address, format!("{address}:443")),
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(value(env::HUB_CA).as_bytes()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        Hub { address, name, connector: TlsConnector::from(Arc::new(config)) }
    }

    /// A connection without TLS.
    ///
    /// # Errors
    /// If the hub does not take it.
    pub async fn connect(&self) -> io::Result<TcpStream> {
        TcpStream::connect(&self.address).await
    }

    /// A connection that is ready for a request.
    ///
    /// # Errors
    /// If the hub does not take it.
    pub async fn secure(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), self.connect().await?).await
    }
}
