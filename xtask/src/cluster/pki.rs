//! The keys of a cluster: three authorities, what they sign, and the key of service account tokens.
//!
//! They are made once, in a folder that appears whole, and stay for as long as the cluster does.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

use super::place::{self, Place};
use super::record::Record;

/// The address of the Service `kubernetes`, the first of the Services' network.
const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The name of the only node.
pub const NODE_NAME: &str = "knoll";

/// A certificate: who it is for, and who signs it.
struct Leaf {
    file: &'static str,
    authority: &'static str,
    user: &'static str,
    groups: &'static [&'static str],
    /// The names and addresses of a server; a client has none.
    hosts: Vec<String>,
}

/// Makes the keys when there are none yet.
pub fn ensure(place: &Place, record: &Record) -> anyhow::Result<()> {
    let folder = place.path("pki");
    if folder.is_dir() {
        return Ok(());
    }
    let new = place.path("pki.new");
    if new.exists() {
        fs::remove_dir_all(&new).with_context(|| format!("cannot remove {}", new.display()))?;
    }
    make(&new, record).context("cannot make the cluster's keys")?;
    fs::rename(&new, &folder).with_context(|| format!("cannot make the folder {}", folder.display()))
}

fn make(folder: &Path, record: &Record) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let gateway = record.gateway.to_string();
    let leaves = leaves(&gateway);
    for authority in ["ca", "etcd-ca", "front-proxy-ca"] {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, format!("knoll {authority}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        write_pair(folder, authority, &params.self_signed(&key)?.pem(), &key)?;
        let issuer = Issuer::new(params, key);
        for leaf in leaves.iter().filter(|leaf| leaf.authority == authority) {
            let key = KeyPair::generate()?;
            let certificate = params_of(leaf)?.signed_by(&key, &issuer)?;
            write_pair(folder, leaf.file, &certificate.pem(), &key)?;
        }
    }
    let tokens = KeyPair::generate()?;
    place::write(&folder.join("service-accounts.key"), tokens.serialize_pem().as_bytes(), true)?;
    place::write(&folder.join("service-accounts.pub"), tokens.public_key_pem().as_bytes(), false)
}

fn leaves(gateway: &str) -> Vec<Leaf> {
    let client = |file, user, groups| Leaf { file, authority: "ca", user, groups, hosts: Vec::new() };
    let hosts = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>();
    let service = KUBERNETES_SERVICE.to_string();
    let apiserver = hosts(&[
        "localhost",
        "127.0.0.1",
        gateway,
        &service,
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]);
    vec![
        client("admin", "admin", &["system:masters"]),
        client("apiserver-to-kubelet", "kube-apiserver", &["system:masters"]),
        client("kube-controller-manager", "system:kube-controller-manager", &[]),
        client("kube-scheduler", "system:kube-scheduler", &[]),
        client("kubelet", "system:node:knoll", &["system:nodes"]),
        client("kube-proxy", "system:kube-proxy", &[]),
        Leaf { file: "kube-apiserver", authority: "ca", user: "kube-apiserver", groups: &[], hosts: apiserver },
        Leaf {
            file: "kubelet-server",
            authority: "ca",
            user: "kubelet",
            groups: &[],
            hosts: hosts(&[NODE_NAME, gateway, "127.0.0.1"]),
        },
        Leaf {
            file: "etcd",
            authority: "etcd-ca",
            user: "etcd",
            groups: &[],
            hosts: hosts(&["localhost", "127.0.0.1"]),
        },
        Leaf {
            file: "apiserver-to-etcd",
            authority: "etcd-ca",
            user: "kube-apiserver",
            groups: &[],
            hosts: Vec::new(),
        },
        Leaf {
            file: "front-proxy",
            authority: "front-proxy-ca",
            user: "front-proxy-client",
            groups: &[],
            hosts: Vec::new(),
        },
    ]
}

fn params_of(leaf: &Leaf) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(leaf.hosts.clone())?;
    params.distinguished_name.push(DnType::CommonName, leaf.user);
    for group in leaf.groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // The peers of etcd are servers and clients to each other with one certificate.
    params.extended_key_usages = match leaf.hosts.is_empty() {
        true => vec![ExtendedKeyUsagePurpose::ClientAuth],
        false => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    };
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn write_pair(folder: &Path, name: &str, certificate: &str, key: &KeyPair) -> anyhow::Result<()> {
    place::write(&folder.join(format!("{name}.crt")), certificate.as_bytes(), false)?;
    place::write(&folder.join(format!("{name}.key")), key.serialize_pem().as_bytes(), true)
}

/// A kubeconfig for the holder of a certificate, with everything in it so that it can be copied elsewhere.
pub fn kubeconfig(place: &Place, record: &Record, certificate: &str) -> anyhow::Result<String> {
    let data = |file: &str| -> anyhow::Result<String> {
        let path = place.path("pki").join(file);
        Ok(STANDARD.encode(fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?))
    };
    let port = record.port("kube-apiserver")?;
    // JSON is YAML, and needs no other library.
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "knoll",
        "contexts": [{"name": "knoll", "context": {"cluster": "knoll", "user": certificate}}],
        "clusters": [{"name": "knoll", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority-data": data("ca.crt")?,
        }}],
        "users": [{"name": certificate, "user": {
            "client-certificate-data": data(&format!("{certificate}.crt"))?,
            "client-key-data": data(&format!("{certificate}.key"))?,
        }}],
    });
    Ok(serde_json::to_string_pretty(&config)?)
}
