//! The binaries of Kubernetes: from a folder that the user names, or built once from the Go module proxy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::version::KubeVersion;
use super::{KUBE_VERSION, place};
use crate::go::{self, GoSource, module};
use crate::tools;

/// What every cluster needs.
const CONTROL: &[&str] = &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
/// What a node needs besides.
const NODE: &[&str] = &["kubelet", "kube-proxy"];

/// The folder with every binary that is needed, after building what is missing.
pub fn ensure(version: &KubeVersion, node: bool) -> anyhow::Result<PathBuf> {
    let mut needed = needed(node);
    if let Some(folder) = folder_of("KNOLL_KUBE_ASSETS")? {
        let missing = missing(&folder, &needed);
        if !missing.is_empty() {
            bail!(
                "KNOLL_KUBE_ASSETS is set, and {} lacks {}: put them there, or unset it to have them built",
                folder.display(),
                missing.join(", ")
            );
        }
        return Ok(folder);
    }
    // Kubebuilder's folder usually has an API server only.
    if let Some(folder) = folder_of("KUBEBUILDER_ASSETS")?
        && missing(&folder, &needed).is_empty()
    {
        return Ok(folder);
    }
    // The one on the PATH serves as well, and saves a minute of building.
    if tools::find("kubectl").is_none() {
        needed.push("kubectl");
    }
    let home = home(version)?;
    let bin = home.join("bin");
    if missing(&bin, &needed).is_empty() {
        return Ok(bin);
    }
    fs::create_dir_all(&bin).with_context(|| format!("cannot make the folder {}", bin.display()))?;
    let _lock = place::lock(&home.join("lock"), "another task downloads or builds Kubernetes")?;
    build(version, &home, &missing(&bin, &needed))?;
    Ok(bin)
}

fn needed(node: bool) -> Vec<&'static str> {
    let node = if node { NODE } else { &[] };
    CONTROL.iter().chain(node).copied().collect()
}

/// Whether every binary is there or can be built; if not, what the user can do.
pub fn possible(node: bool) -> Result<(), String> {
    let named = |variable| std::env::var_os(variable).is_some_and(|folder| !folder.is_empty());
    let cached =
        || home(&KubeVersion::parse(KUBE_VERSION)?).map(|home| missing(&home.join("bin"), &needed(node)).is_empty());
    if named("KNOLL_KUBE_ASSETS") || named("KUBEBUILDER_ASSETS") || go::find().is_some() || cached().unwrap_or(false) {
        return Ok(());
    }
    Err("Kubernetes is built from source once: install `go` (1.24 or newer), or set KNOLL_KUBE_ASSETS to a folder with its \
         binaries"
        .to_owned())
}

/// The `kubectl` beside the other binaries, or the one on the PATH.
pub fn kubectl(assets: &Path) -> anyhow::Result<PathBuf> {
    let own = assets.join("kubectl");
    if own.is_file() {
        return Ok(own);
    }
    tools::find("kubectl").context("`kubectl` must be on the PATH: install it")
}

/// The folder in the user's cache for a version of Kubernetes: `bin` with its programs, `src` to build them.
pub fn home(version: &KubeVersion) -> anyhow::Result<PathBuf> {
    Ok(place::user_cache()?.join("knoll/kube").join(version.to_string()))
}

fn folder_of(variable: &str) -> anyhow::Result<Option<PathBuf>> {
    let Some(folder) = std::env::var_os(variable).filter(|folder| !folder.is_empty()) else {
        return Ok(None);
    };
    Ok(Some(std::path::absolute(PathBuf::from(folder)).with_context(|| format!("cannot use {variable}"))?))
}

fn missing<'a>(folder: &Path, needed: &[&'a str]) -> Vec<&'a str> {
    needed.iter().filter(|name| !folder.join(name).is_file()).copied().collect()
}

/// Builds programs of Kubernetes from the Go module proxy.
pub fn build(version: &KubeVersion, home: &Path, programs: &[&str]) -> anyhow::Result<()> {
    if programs.is_empty() {
        return Ok(());
    }
    println!("Building Kubernetes {version} into {}: this is done once", home.join("bin").display());
    if programs.len() > 4 {
        println!("    (from nothing it takes about 12 minutes on 2 cores, and 3 GB of Go's build cache)");
    }
    let source = GoSource::new(
        home.join("src"),
        "k8s.io/kubernetes",
        &version.tag(),
        &format!("Kubernetes {version}, or set KNOLL_KUBE_ASSETS to a folder that has {}", programs.join(", ")),
        |theirs| module::kubernetes(version, theirs),
    )?;
    let flags = flags(version);
    for name in programs {
        let package = match *name {
            "etcd" => "go.etcd.io/etcd/server/v3".to_owned(),
            name => format!("k8s.io/kubernetes/cmd/{name}"),
        };
        source.build(&package, &flags, &home.join("bin").join(name))?;
    }
    Ok(())
}

/// Tells the programs which version they are, as the build of a release does.
fn flags(version: &KubeVersion) -> String {
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [
            ("gitVersion", version.tag()),
            ("gitMajor", "1".to_owned()),
            ("gitMinor", version.minor.to_string()),
            ("gitTreeState", "clean".to_owned()),
        ] {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_program_is_built_with_its_version() {
        let flags = flags(&KubeVersion::parse("1.34.4").unwrap());
        assert!(flags.starts_with("-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 "), "{flags}");
        assert!(flags.contains("-X k8s.io/client-go/pkg/version.gitMinor=34"), "{flags}");
    }
}
