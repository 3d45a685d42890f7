//! The programs of the system that a node needs, and whether this machine can be a node at all.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::runtime::Containerd;
use crate::image::elf;
use crate::tools;

/// Where distributions put the plugins of the pods' network.
const CNI_FOLDERS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// The programs of a node that are not Kubernetes'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    pub containerd: Containerd,
    /// What starts a container.
    pub runc: PathBuf,
    /// The folder of the network plugins.
    pub cni: PathBuf,
    pub iptables: PathBuf,
    pub ip: PathBuf,
    /// A shell and its tools in one static file.
    pub busybox: PathBuf,
}

/// Whether a node can run on this machine; if not, what is needed.
pub fn node_possible() -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Err("a node needs Linux: without `--node` the control plane runs here too".to_owned());
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("a node needs root (namespaces, mounts, a bridge): run as root, or leave out `--node`".to_owned());
    }
    super::assets::possible(true)?;
    if tools::find_system("apt-get").is_some() {
        return Ok(());
    }
    let missing: Vec<&str> =
        packages().into_iter().filter(|(_, there)| there.is_none()).map(|(name, _)| name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("a node needs these packages (names of Debian's), install them: {}", missing.join(", ")))
}

/// The tools, after installing the Debian packages of those that are missing, and building containerd.
pub fn ensure() -> anyhow::Result<Tools> {
    node_possible().map_err(anyhow::Error::msg)?;
    let missing: Vec<&str> =
        packages().into_iter().filter(|(_, there)| there.is_none()).map(|(name, _)| name).collect();
    if !missing.is_empty() {
        tools::install(&missing)?;
    }
    Containerd::ensure()?;
    find()
}

/// The tools, all of which must be there.
pub fn find() -> anyhow::Result<Tools> {
    let program = |name: &str| tools::find_system(name).with_context(|| format!("`{name}` is missing: install it"));
    Ok(Tools {
        containerd: Containerd::find()?,
        runc: program("runc")?,
        cni: cni().context("the CNI plugins are missing: install `containernetworking-plugins`")?,
        iptables: program("iptables")?,
        ip: program("ip")?,
        busybox: busybox().context("a static busybox is missing: install `busybox-static`")?,
    })
}

/// The package of each tool, and where the tool is if it is there.
fn packages() -> Vec<(&'static str, Option<PathBuf>)> {
    vec![
        ("runc", tools::find_system("runc")),
        ("containernetworking-plugins", cni()),
        ("iptables", tools::find_system("iptables")),
        ("iproute2", tools::find_system("ip")),
        ("busybox-static", busybox()),
    ]
}

fn cni() -> Option<PathBuf> {
    let has_all = |folder: &&Path| ["bridge", "host-local", "loopback"].iter().all(|name| folder.join(name).is_file());
    CNI_FOLDERS.iter().map(Path::new).find(has_all).map(Path::to_owned)
}

/// A busybox that runs where there are no libraries.
pub fn busybox() -> Option<PathBuf> {
    tools::find_system("busybox").filter(|path| elf::check_static(path).is_ok())
}
