//! The node: containerd, kubelet and kube-proxy, with everything that they write inside the cluster's folder.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::bail;
use serde_json::{Value, json};

use super::packages::Tools;
use super::pki::{self, NODE_NAME};
use super::place::{self, Place};
use super::process::{self, Program};
use super::record::Record;
use super::version::KubeVersion;
use super::{mounts, network, traces};

/// The node's processes in the order in which they start.
pub const NAMES: &[&str] = &["containerd", "kube-proxy", "kubelet"];

/// The image that holds a pod's namespaces.
pub const PAUSE_IMAGE: &str = "knoll/pause:1";

/// The longest path of a socket that the kernel takes.
const LONGEST_SOCKET: usize = 107;

/// Fails when this machine is a node already, of this or another Kubernetes: kube-proxy and kubelet own chains of the
/// packet filter that have the same names everywhere.
pub fn check_alone(place: &Place) -> anyhow::Result<()> {
    let own: Vec<i32> = NAMES.iter().filter_map(|name| process::running(place, name)).map(|file| file.pid).collect();
    let own_network = fs::read_link("/proc/self/ns/net").ok();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let name = name.trim();
        if !matches!(name, "kubelet" | "kube-proxy") || own.contains(&pid) {
            continue;
        }
        if fs::read_link(entry.path().join("ns/net")).ok() == own_network {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            bail!(
                "this machine is a node already, and can be only one: end {name} (process {pid}) first, for a cluster \
                 of ours with `cargo xtask cluster down --name NAME`; it runs as\n    {command}"
            );
        }
    }
    Ok(())
}

/// Writes the files that the programs read.
pub fn configure(place: &Place, record: &Record, tools: &Tools) -> anyhow::Result<()> {
    let socket = place.text("containerd.sock.ttrpc");
    if socket.len() > LONGEST_SOCKET {
        bail!("the path {socket} is too long for a socket: set KNOLL_CLUSTER_DIR to a shorter one");
    }
    for folder in ["config/cni", "kubelet", "containerd"] {
        fs::create_dir_all(place.path(folder))?;
    }
    for user in ["kubelet", "kube-proxy"] {
        let text = pki::kubeconfig(place, record, user)?;
        place::write(&place.path(&format!("config/{user}.kubeconfig")), text.as_bytes(), true)?;
    }
    place::write(&place.path("config/containerd.toml"), containerd_config(place, tools).as_bytes(), false)?;
    write_json(place, "config/cni/10-knoll.conflist", &cni_config(place, record))?;
    write_json(place, "config/kubelet.json", &kubelet_config(place, record)?)?;
    write_json(place, "config/kube-proxy.json", &proxy_config(place, record)?)
}

fn write_json(place: &Place, inside: &str, value: &Value) -> anyhow::Result<()> {
    place::write(&place.path(inside), serde_json::to_string_pretty(value)?.as_bytes(), false)
}

/// containerd, which must run before the others.
pub fn containerd(place: &Place, tools: &Tools) -> Program {
    Program {
        name: "containerd",
        executable: tools.containerd.server(),
        arguments: vec!["--config".to_owned(), place.text("config/containerd.toml")],
    }
}

pub fn proxy(place: &Place, record: &Record) -> Program {
    Program {
        name: "kube-proxy",
        executable: record.assets.join("kube-proxy"),
        arguments: vec![format!("--config={}", place.text("config/kube-proxy.json"))],
    }
}

pub fn kubelet(place: &Place, record: &Record) -> Program {
    Program {
        name: "kubelet",
        executable: record.assets.join("kubelet"),
        arguments: vec![
            format!("--config={}", place.text("config/kubelet.json")),
            format!("--kubeconfig={}", place.text("config/kubelet.kubeconfig")),
            format!("--root-dir={}", place.text("kubelet")),
            format!("--cert-dir={}", place.text("kubelet/pki")),
            format!("--hostname-override={NODE_NAME}"),
            format!("--node-ip={}", record.gateway),
        ],
    }
}

/// The snapshotter that works where the folder lies: an overlay cannot lie on another one.
pub fn snapshotter(place: &Place) -> &'static str {
    match mounts::file_system(&place.folder).as_deref() {
        Some("overlay") => "native",
        _ => "overlayfs",
    }
}

fn containerd_config(place: &Place, tools: &Tools) -> String {
    // A string of JSON is a string of TOML.
    let text = |path: &Path| Value::from(path.to_string_lossy()).to_string();
    let inside = |path: &str| text(&place.path(path));
    let snapshotter = snapshotter(place);
    format!(
        r#"version = 2
root = {root}
state = {state}
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]

[grpc]
  address = {socket}

[plugins."io.containerd.internal.v1.opt"]
  path = {opt}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Everything that is mounted for a pod lies in the state folder, where `down` finds it.
  netns_mounts_under_state_dir = true
  # Machines of CI often lack CAP_SYS_RESOURCE, without which no process may be made less likely to be killed.
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {cni}
    conf_dir = {cni_config}

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      runtime_path = {shim}

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = {runc}
        Root = {runc_root}
        SystemdCgroup = false
"#,
        root = inside("containerd/root"),
        state = inside("containerd/state"),
        socket = inside("containerd.sock"),
        opt = inside("containerd/opt"),
        cni = text(&tools.cni),
        cni_config = inside("config/cni"),
        shim = text(&tools.containerd.shim()),
        runc = text(&tools.runc),
        runc_root = inside("containerd/runc"),
    )
}

fn cni_config(place: &Place, record: &Record) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "knoll",
        "plugins": [{
            "type": "bridge",
            "bridge": record.bridge,
            "isGateway": true,
            // One rule for the whole network does it (network.rs), which is quicker than one for each pod.
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": place.text("containerd/addresses"),
                "ranges": [[{"subnet": record.pod_network(), "gateway": record.gateway}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

fn kubelet_config(place: &Place, record: &Record) -> anyhow::Result<Value> {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": record.gateway,
        "port": record.port("kubelet")?,
        "healthzPort": record.port("kubelet-healthz")?,
        "readOnlyPort": 0,
        "tlsCertFile": place.path("pki/kubelet-server.crt"),
        "tlsPrivateKeyFile": place.path("pki/kubelet-server.key"),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": place.path("pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": format!("unix://{}", place.text("containerd.sock")),
        "volumePluginDir": place.path("kubelet/volume-plugins"),
        "podLogsDir": place.path("logs/pods"),
        "maxPods": 250,
        // The folder lies in whatever cgroup the user's shell is in, which cannot be divided any further.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        // No image could be pulled again, and a full disk of a developer's is no reason to end pods.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
    });
    // Without an address of a DNS server the kubelet complains of it in an event for every pod, several times.
    config["clusterDNS"] = name_servers(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default()).into();
    let version = KubeVersion::parse(&record.kube_version)?;
    // Since 1.35 a kubelet refuses the older kind of cgroups unless it is told to; the setting is known since 1.31.
    if version.minor >= 31 {
        config["failCgroupV1"] = false.into();
    }
    if let Some(gate) = version.image_volumes() {
        config["featureGates"][gate] = true.into();
    }
    if let Some(gate) = version.resize() {
        // Without a cgroup for each pod, a kubelet that can resize pods ends when a pod with requests goes while it starts
        // (issue 137993 of kubernetes/kubernetes): nobody starts it again here.
        config["featureGates"][gate] = false.into();
    }
    Ok(config)
}

/// The name servers of this machine that pods can reach too.
fn name_servers(resolver: &str) -> Vec<String> {
    let servers = resolver.lines().filter_map(|line| line.strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok());
    servers.filter(|server| !server.is_loopback()).map(|server| server.to_string()).collect()
}

fn proxy_config(place: &Place, record: &Record) -> anyhow::Result<Value> {
    // Where packets between ports of a bridge do not pass the packet filter, the answer of a pod on the same bridge
    // would bypass it and come from an address that nobody asked. Then answers are made to go by way of the host.
    let passes = fs::read_to_string("/proc/sys/net/bridge/bridge-nf-call-iptables").is_ok_and(|v| v.trim() == "1");
    Ok(json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": record.gateway,
        "hostnameOverride": NODE_NAME,
        "clusterCIDR": record.pod_network(),
        "clientConnection": {"kubeconfig": place.path("config/kube-proxy.kubeconfig")},
        "healthzBindAddress": format!("127.0.0.1:{}", record.port("kube-proxy")?),
        "metricsBindAddress": format!("127.0.0.1:{}", record.port("kube-proxy-metrics")?),
        "iptables": {"masqueradeAll": !passes},
        // The limits of the machine's connection table are its owner's.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }))
}

/// Takes away what the node left on the machine, once its processes have ended.
pub fn remove(place: &Place, record: &Record, tools: &Tools) -> anyhow::Result<()> {
    mounts::unmount_all(&place.folder)?;
    traces::remove(place);
    network::remove(tools, record)?;
    // Every pod is gone, and with them the use of their addresses.
    let addresses = place.path("containerd/addresses");
    if addresses.exists() {
        fs::remove_dir_all(&addresses)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_given_the_name_servers_that_they_can_reach() {
        let resolver =
            "# nameserver 9.9.9.9\nsearch a.b\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\n";
        assert_eq!(name_servers(resolver), ["10.0.0.2"]);
    }
}
