//! The programs of the system that a node needs, and whether this machine can be a node at all.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::runtime::Containerd;
use crate::image::elf;
use crate::needs;

/// Where distributions put the plugins of the pods' network.
const CNI_FOLDERS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// The programs of a node that are not Kubernetes'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// The container runtime.
    pub containerd: Containerd,
    /// What starts a container.
    pub runc: PathBuf,
    /// The folder of the network plugins.
    pub cni: PathBuf,
    /// Packet filter rules.
    pub iptables: PathBuf,
    /// Links and addresses.
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
    if needs::find("apt-get").is_some() {
        return Ok(());
    }
    let missing: Vec<&str> = wanted().into_iter().filter(|(_, there)| there.is_none()).map(|(name, _)| name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("a node needs these packages (names of Debian's), install them: {}", missing.join(", ")))
}

/// The tools, after installing the Debian packages of those that are missing, and building containerd.
pub fn ensure() -> anyhow::Result<Tools> {
    node_possible().map_err(anyhow::Error::msg)?;
    let missing: Vec<&str> = wanted().into_iter().filter(|(_, there)| there.is_none()).map(|(name, _)| name).collect();
    if !missing.is_empty() {
        install(&missing)?;
    }
    Containerd::ensure()?;
    find()
}

/// The tools, all of which must be there.
pub fn find() -> anyhow::Result<Tools> {
    let program = |name: &str| needs::find_system(name).with_context(|| format!("`{name}` is missing: install it"));
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
fn wanted() -> Vec<(&'static str, Option<PathBuf>)> {
    vec![
        ("runc", needs::find_system("runc")),
        ("containernetworking-plugins", cni()),
        ("iptables", needs::find_system("iptables")),
        ("iproute2", needs::find_system("ip")),
        ("busybox-static", busybox()),
    ]
}

fn cni() -> Option<PathBuf> {
    let has_all = |folder: &&Path| ["bridge", "host-local", "loopback"].iter().all(|name| folder.join(name).is_file());
    CNI_FOLDERS.iter().map(Path::new).find(has_all).map(Path::to_owned)
}

/// A busybox that runs where there are no libraries.
pub fn busybox() -> Option<PathBuf> {
    needs::find_system("busybox").filter(|path| elf::check_static(path).is_ok())
}

fn install(packages: &[&str]) -> anyhow::Result<()> {
    println!("Installing Debian packages: {}", packages.join(" "));
    let apt = |arguments: &[&str]| -> anyhow::Result<std::process::Output> {
        Command::new("apt-get")
            .args(["-q", "-y", "-o", "Dpkg::Use-Pty=0"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .context("cannot start apt-get")
    };
    let mut words = vec!["install", "--no-install-recommends"];
    words.extend(packages);
    if apt(&words)?.status.success() {
        return Ok(());
    }
    // On a fresh machine apt does not know where the packages are yet.
    apt(&["update"])?;
    let output = apt(&words)?;
    if !output.status.success() {
        bail!(
            "cannot install {}; apt-get said:\n{}{}",
            packages.join(", "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
