//! The hub's certificate. Its authority is Knoll's own; the pod of a Run tells it to the runner.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knoll_api::names::label;
use kube::api::PostParams;
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const SECRET: &str = "knoll-hub-tls";
const CA: &str = "ca.crt";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const NAMES: &str = "names";

/// The hub has no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot make the hub's certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("cannot use the hub's certificate: {0}; delete the Secret `{SECRET}` to have a new one made")]
    Use(String),
    #[error("cannot store the hub's certificate in the Secret `{SECRET}`: {}", knoll_storage::message_of(.0))]
    Keep(#[from] kube::Error),
}

/// A certificate with its key and its authority, all PEM.
#[derive(Clone)]
pub struct Tls {
    ca: String,
    certificate: String,
    key: String,
}

impl Tls {
    /// A new certificate for these host names and addresses.
    ///
    /// # Errors
    /// If a name is not a valid DNS name or address.
    pub fn generate(names: &[String]) -> Result<Self, Error> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::new(Vec::new())?;
        ca.distinguished_name.push(DnType::CommonName, "Knoll hub authority");
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_pem = ca.self_signed(&ca_key)?.pem();
        // The authority signs this one certificate, and its key is forgotten.
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, "Knoll hub");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Tls { ca: ca_pem, certificate, key: key.serialize_pem() })
    }

    /// The certificate that all replicas share: the one in the Secret in `namespace`, or a new one that is stored there.
    ///
    /// # Errors
    /// If the Secret can neither be read nor written.
    pub async fn shared(client: &Client, namespace: &str, names: &[String]) -> Result<Self, Error> {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        loop {
            let known = api.get_opt(SECRET).await?;
            if let Some(tls) = known.as_ref().and_then(|secret| Tls::read(secret, names)) {
                return Ok(tls);
            }
            let tls = Tls::generate(names)?;
            let mut secret = tls.secret(names);
            let written = match known {
                None => api.create(&PostParams::default(), &secret).await,
                Some(known) => {
                    secret.metadata.resource_version = known.metadata.resource_version;
                    api.replace(SECRET, &PostParams::default(), &secret).await
                }
            };
            match written {
                Ok(_) => return Ok(tls),
                // Another replica was faster; its certificate serves as well.
                Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The certificate of the authority, with which runners verify the hub.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca
    }

    pub(crate) fn server_config(&self) -> Result<Arc<rustls::ServerConfig>, Error> {
        let unusable = |error: &dyn std::fmt::Display| Error::Use(error.to_string());
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unusable(&error))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| unusable(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| unusable(&error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn read(secret: &Secret, names: &[String]) -> Option<Self> {
        let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
        let same = text(NAMES)? == names.join(",");
        same.then_some(Tls { ca: text(CA)?, certificate: text(CERTIFICATE)?, key: text(KEY)? })
    }

    fn secret(&self, names: &[String]) -> Secret {
        let data = [(CA, &self.ca), (CERTIFICATE, &self.certificate), (KEY, &self.key), (NAMES, &names.join(","))]
            .map(|(key, value)| (key.to_owned(), ByteString(value.clone().into_bytes())));
        Secret {
            metadata: ObjectMeta {
                name: Some(SECRET.to_owned()),
                labels: Some(BTreeMap::from([(label::MANAGED_BY.to_owned(), label::MANAGED_BY_KNOLL.to_owned())])),
                ..ObjectMeta::default()
            },
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(BTreeMap::from(data)),
            ..Secret::default()
        }
    }
}
