//! The binaries of Kubernetes: from a folder that the user names, or built once from the Go module proxy.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use super::gomod::{self, KubeVersion};
use super::place;
use crate::needs;

/// What every cluster needs.
const CONTROL: &[&str] = &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
/// What a node needs besides.
const NODE: &[&str] = &["kubelet", "kube-proxy"];

/// The folder with every binary that is needed, after building what is missing.
pub fn ensure(version: &KubeVersion, node: bool) -> anyhow::Result<PathBuf> {
    let mut needed: Vec<&str> = CONTROL.to_vec();
    if node {
        needed.extend(NODE);
    }
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
    if needs::find("kubectl").is_none() {
        needed.push("kubectl");
    }
    let home = place::user_cache()?.join("knoll/kube").join(version.to_string());
    let bin = home.join("bin");
    if missing(&bin, &needed).is_empty() {
        return Ok(bin);
    }
    fs::create_dir_all(&bin).with_context(|| format!("cannot make the folder {}", bin.display()))?;
    let _lock = place::lock(&home.join("lock"), "another run builds these binaries")?;
    build(version, &home, &missing(&bin, &needed))?;
    Ok(bin)
}

/// The `kubectl` beside the other binaries, or the one on the PATH.
pub fn kubectl(assets: &Path) -> anyhow::Result<PathBuf> {
    let own = assets.join("kubectl");
    if own.is_file() {
        return Ok(own);
    }
    needs::find("kubectl").context("`kubectl` must be on the PATH: install it")
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

fn build(version: &KubeVersion, home: &Path, wanted: &[&str]) -> anyhow::Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    println!("Building Kubernetes {version} into {}: this is done once", home.join("bin").display());
    if wanted.len() > 4 {
        println!("    (from nothing it takes about 12 minutes on 2 cores, and 3 GB of Go's build cache)");
    }
    let source = GoSource::new(
        home.join("src"),
        "k8s.io/kubernetes",
        &version.tag(),
        &format!("Kubernetes {version}, or set KNOLL_KUBE_ASSETS to a folder that has {}", wanted.join(", ")),
        |theirs| gomod::kubernetes(version, theirs),
    )?;
    let flags = flags(version);
    for name in wanted {
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

/// A Go module of ours that others' programs are built from.
pub struct GoSource {
    folder: PathBuf,
    go: PathBuf,
}

impl GoSource {
    /// Writes the module into `folder`: its `go.mod` follows from the one of the program's module.
    pub fn new(
        folder: PathBuf,
        module: &str,
        version: &str,
        what: &str,
        go_mod: impl FnOnce(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<GoSource> {
        let go = needs::find("go")
            .with_context(|| format!("`go` (1.24 or newer) must be on the PATH: install it to build {what}"))?;
        let source = GoSource { folder, go };
        fs::create_dir_all(&source.folder)
            .with_context(|| format!("cannot make the folder {}", source.folder.display()))?;
        let path = source.folder.join("go.mod");
        if !path.is_file() {
            let begun = Instant::now();
            let theirs = source.download(module, version)?;
            let theirs = fs::read_to_string(&theirs).with_context(|| format!("cannot read {theirs}"))?;
            place::write(&path, go_mod(&theirs)?.as_bytes(), false)?;
            println!("    {:<26} {:>6.1} s", format!("source {version}"), begun.elapsed().as_secs_f64());
        }
        Ok(source)
    }

    /// Downloads a module, and answers where its `go.mod` is.
    fn download(&self, module: &str, version: &str) -> anyhow::Result<String> {
        let output = self
            .command(["mod", "download", "-json", &format!("{module}@{version}")])
            // There is no go.mod here yet, and none of a folder above is meant.
            .env("GOMOD", "off")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {}", self.go.display()))?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match (answer["GoMod"].as_str(), answer["Error"].as_str()) {
            (Some(path), None) if output.status.success() => Ok(path.to_owned()),
            (_, error) => bail!("cannot download {module} {version}: {}", error.unwrap_or("see above")),
        }
    }

    /// Builds a program; it appears at `target` whole or not at all.
    pub fn build(&self, package: &str, flags: &str, target: &Path) -> anyhow::Result<()> {
        let name = target.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        print!("    {name:<26} ");
        std::io::Write::flush(&mut std::io::stdout()).context("cannot write to the terminal")?;
        let begun = Instant::now();
        let new = target.with_extension("new");
        // What it downloads would only tear the lines of the progress apart; what it says matters when it fails.
        let log_path = self.folder.join("build.log");
        let log = fs::File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
        let status = self
            // The module asks for what its programs need as they are built, which is less than all they could need.
            .command(["build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o"])
            .arg(&new)
            .arg(package)
            .env("CGO_ENABLED", "0")
            .stderr(log)
            .status()
            .with_context(|| format!("cannot start {}", self.go.display()))?;
        if !status.success() {
            println!("failed");
            let said = fs::read_to_string(&log_path).unwrap_or_default();
            let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("go: downloading ")).collect();
            bail!("cannot build {package}: go ended with {status} and said\n{}", said.join("\n"));
        }
        fs::rename(&new, target).with_context(|| format!("cannot put {} in place", target.display()))?;
        println!("{:>6.1} s", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn command<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = Command::new(&self.go);
        command.args(arguments).current_dir(&self.folder).env("GOWORK", "off").env_remove("GOFLAGS");
        command
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_version_is_told_to_every_program() {
        let flags = flags(&KubeVersion::parse("1.34.4").unwrap());
        assert!(flags.starts_with("-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 "), "{flags}");
        assert!(flags.contains("-X k8s.io/client-go/pkg/version.gitMinor=34"), "{flags}");
    }
}
