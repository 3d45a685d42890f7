//! kubectl in the user's cache: a release, or built from the Go module proxy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::download::{Checksum, Downloader, with_suffix};
use crate::cluster::{self, KUBE_VERSION, KubeVersion};
use crate::go;

/// The SHA-256 of kubectl 1.34.4, by operating system and architecture.
const PINNED: &[(&str, &str, &str)] = &[
    ("linux", "amd64", "d50c359d95e0841eaad08ddc27c7be37cba8fdccfba5c8e2ded65e121ff112db"),
    ("linux", "arm64", "5b982c0644ab1e27780246b9085a5886651b4a7ed86243acbb2bacc1bea01dda"),
];
const PINNED_VERSION: &str = "1.34.4";

/// The program, after downloading or building it where the cache does not have it.
pub fn ensure() -> anyhow::Result<PathBuf> {
    let version = KubeVersion::parse(KUBE_VERSION)?;
    let home = cluster::kube_home(&version)?;
    let target = home.join("bin/kubectl");
    if target.is_file() {
        return Ok(target);
    }
    let bin = home.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot create the folder {}", bin.display()))?;
    let _lock = cluster::lock(&home.join("lock"), "another task downloads or builds Kubernetes")?;
    if target.is_file() {
        return Ok(target);
    }
    println!("==> kubectl {version} into {}: this is done once", bin.display());
    match release(&target) {
        Ok(()) => println!("    downloaded"),
        Err(error) if go::find().is_some() => {
            println!("    {error:#}");
            println!("    building it instead (about 2 minutes on 2 cores)");
            cluster::build_binaries(&version, &home, &["kubectl"])?;
        }
        Err(error) => {
            return Err(error.context("install `kubectl`, or `go` (1.24 or newer) to build it here"));
        }
    }
    Ok(target)
}

fn release(target: &Path) -> anyhow::Result<()> {
    let downloader = Downloader::find().context("there is no `curl` and no `wget` to download kubectl with")?;
    let pinned = platform().and_then(|(system, machine)| {
        PINNED.iter().find(|row| (row.0, row.1) == (system, machine)).filter(|_| PINNED_VERSION == KUBE_VERSION)
    });
    let (system, machine, sum) = pinned.context("no checksum of kubectl is pinned for this machine")?;
    let url = format!("https://dl.k8s.io/release/v{KUBE_VERSION}/bin/{system}/{machine}/kubectl");
    let download = with_suffix(target, "download");
    downloader.fetch(&url, Checksum::Pinned(sum), &download)?;
    let bytes = fs::read(&download).with_context(|| format!("cannot read {}", download.display()))?;
    write_program(target, &bytes)?;
    fs::remove_file(&download).with_context(|| format!("cannot remove {}", download.display()))
}

/// This machine, in the words of Go's releases.
pub fn platform() -> Option<(&'static str, &'static str)> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        _ => return None,
    };
    match std::env::consts::OS {
        "linux" => Some(("linux", machine)),
        "macos" => Some(("darwin", machine)),
        _ => None,
    }
}

/// Writes a program that can be started, complete or not at all.
pub fn write_program(target: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let new = with_suffix(target, "new");
    fs::write(&new, bytes)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&new, target))
        .with_context(|| format!("cannot write {}", target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_pinned_for_the_version_that_is_used() {
        assert_eq!(PINNED_VERSION, KUBE_VERSION, "look up the checksums of the new version");
        for (_, _, sum) in PINNED {
            assert!(sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit()), "{sum}");
        }
    }
}
