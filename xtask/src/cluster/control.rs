//! The control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, set up as on a user's cluster:
//! RBAC, the default admission plugins, an audit log, certificates for everyone.

use serde_json::json;

use super::pki;
use super::place::{self, Place};
use super::process::Program;
use super::record::Record;
use super::version::KubeVersion;

/// The network of the Services.
const SERVICE_NETWORK: &str = "10.96.0.0/16";

/// The control plane in the order in which it starts.
pub const NAMES: &[&str] = &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Writes the files that the programs read.
pub fn configure(place: &Place, record: &Record) -> anyhow::Result<()> {
    place::write(&place.kubeconfig(), pki::kubeconfig(place, record, "admin")?.as_bytes(), true)?;
    for user in ["kube-controller-manager", "kube-scheduler"] {
        let text = pki::kubeconfig(place, record, user)?;
        place::write(&place.path(&format!("config/{user}.kubeconfig")), text.as_bytes(), true)?;
    }
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        // A line when a request is answered is enough; one when it arrives would double the log.
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    });
    place::write(&place.path("config/audit-policy.json"), serde_json::to_string_pretty(&policy)?.as_bytes(), false)
}

/// The programs in the order in which they start.
pub fn programs(place: &Place, record: &Record) -> anyhow::Result<Vec<Program>> {
    Ok(vec![
        etcd(place, record)?,
        apiserver(place, record)?,
        controller_manager(place, record)?,
        scheduler(place, record)?,
    ])
}

fn etcd(place: &Place, record: &Record) -> anyhow::Result<Program> {
    let client = format!("https://127.0.0.1:{}", record.port("etcd")?);
    let peer = format!("https://127.0.0.1:{}", record.port("etcd-peer")?);
    let pki = |file: &str| place.text(&format!("pki/{file}"));
    Ok(Program {
        name: "etcd",
        executable: record.assets.join("etcd"),
        arguments: vec![
            "--name=knoll".to_owned(),
            format!("--data-dir={}", place.text("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=knoll={peer}"),
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", pki("etcd-ca.crt")),
            format!("--cert-file={}", pki("etcd.crt")),
            format!("--key-file={}", pki("etcd.key")),
            "--peer-client-cert-auth".to_owned(),
            format!("--peer-trusted-ca-file={}", pki("etcd-ca.crt")),
            format!("--peer-cert-file={}", pki("etcd.crt")),
            format!("--peer-key-file={}", pki("etcd.key")),
            "--log-level=warn".to_owned(),
        ],
    })
}

fn apiserver(place: &Place, record: &Record) -> anyhow::Result<Program> {
    let pki = |file: &str| place.text(&format!("pki/{file}"));
    // Pods reach the API at the bridge's address; without a node there is nobody but this machine to listen to.
    let bind = if record.node { "0.0.0.0" } else { "127.0.0.1" };
    let gates =
        KubeVersion::parse(&record.kube_version)?.image_volumes().map(|gate| format!("--feature-gates={gate}=true"));
    Ok(Program {
        name: "kube-apiserver",
        executable: record.assets.join("kube-apiserver"),
        arguments: [
            format!("--bind-address={bind}"),
            format!("--advertise-address={}", record.gateway),
            format!("--secure-port={}", record.port("kube-apiserver")?),
            format!("--tls-cert-file={}", pki("kube-apiserver.crt")),
            format!("--tls-private-key-file={}", pki("kube-apiserver.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--etcd-servers=https://127.0.0.1:{}", record.port("etcd")?),
            format!("--etcd-cafile={}", pki("etcd-ca.crt")),
            format!("--etcd-certfile={}", pki("apiserver-to-etcd.crt")),
            format!("--etcd-keyfile={}", pki("apiserver-to-etcd.key")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki("service-accounts.pub")),
            format!("--service-account-signing-key-file={}", pki("service-accounts.key")),
            format!("--service-cluster-ip-range={SERVICE_NETWORK}"),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!("--kubelet-certificate-authority={}", pki("ca.crt")),
            format!("--kubelet-client-certificate={}", pki("apiserver-to-kubelet.crt")),
            format!("--kubelet-client-key={}", pki("apiserver-to-kubelet.key")),
            format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            format!("--proxy-client-cert-file={}", pki("front-proxy.crt")),
            format!("--proxy-client-key-file={}", pki("front-proxy.key")),
            format!("--audit-policy-file={}", place.text("config/audit-policy.json")),
            format!("--audit-log-path={}", place.text("logs/audit.log")),
            "--audit-log-maxsize=100".to_owned(),
            // Enough for all tests: the operator's role is compared with the whole log.
            "--audit-log-maxbackup=9".to_owned(),
        ]
        .into_iter()
        .chain(gates)
        .collect(),
    })
}

fn controller_manager(place: &Place, record: &Record) -> anyhow::Result<Program> {
    let pki = |file: &str| place.text(&format!("pki/{file}"));
    let mut arguments = watcher(place, record, "kube-controller-manager")?;
    arguments.extend([
        format!("--root-ca-file={}", pki("ca.crt")),
        format!("--service-account-private-key-file={}", pki("service-accounts.key")),
        format!("--cluster-signing-cert-file={}", pki("ca.crt")),
        format!("--cluster-signing-key-file={}", pki("ca.key")),
        "--use-service-account-credentials=true".to_owned(),
    ]);
    let name = "kube-controller-manager";
    Ok(Program { name, executable: record.assets.join(name), arguments })
}

fn scheduler(place: &Place, record: &Record) -> anyhow::Result<Program> {
    let name = "kube-scheduler";
    Ok(Program { name, executable: record.assets.join(name), arguments: watcher(place, record, name)? })
}

/// What the two programs that only watch the API have in common.
fn watcher(place: &Place, record: &Record, name: &str) -> anyhow::Result<Vec<String>> {
    let kubeconfig = place.text(&format!("config/{name}.kubeconfig"));
    Ok(vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", record.port(name)?),
        // There is one of each, and waiting for a lease would only make the start slower.
        "--leader-elect=false".to_owned(),
    ])
}
