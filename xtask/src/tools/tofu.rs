//! OpenTofu in the user's cache: a release, or built from the Go module proxy.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::download::{Checksum, Downloader, with_suffix};
use crate::cluster::{lock, user_cache};
use crate::go::{self, GoSource, module};

/// The pinned version. It is the one that the operator uses where a Workspace names none.
pub const VERSION: &str = "1.10.10";

const MODULE: &str = "github.com/opentofu/opentofu";
const RELEASES: &str = "https://github.com/opentofu/opentofu/releases/download";

fn home() -> anyhow::Result<PathBuf> {
    Ok(user_cache()?.join("knoll/tofu").join(VERSION))
}

/// The program, if it is in the cache.
pub fn cached() -> anyhow::Result<Option<PathBuf>> {
    Ok(Some(home()?.join("bin/tofu")).filter(|path| path.is_file()))
}

/// The program, after downloading or building it where the cache does not have it.
pub fn ensure() -> anyhow::Result<PathBuf> {
    if let Some(path) = cached()? {
        return Ok(path);
    }
    let home = home()?;
    let bin = home.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot create the folder {}", bin.display()))?;
    let _lock = lock(&home.join("lock"), "another task downloads or builds OpenTofu")?;
    if let Some(path) = cached()? {
        return Ok(path);
    }
    println!("==> OpenTofu {VERSION} into {}: this is done once", bin.display());
    let target = bin.join("tofu");
    match release(&target) {
        Ok(()) => println!("    downloaded"),
        Err(error) if go::find().is_some() => {
            println!("    {error:#}");
            println!("    building it instead (about 3 minutes on 2 cores)");
            build(&home, &target)?;
        }
        Err(error) => {
            return Err(error.context(
                "install `terraform` (1.5 or newer) or `tofu` (1.6 or newer), or `go` (1.24 or newer) to build OpenTofu here",
            ));
        }
    }
    Ok(target)
}

/// Downloads the release for this machine.
///
/// Its checksum is the one that the release publishes: the source code pins the version and not yet the sum.
fn release(target: &Path) -> anyhow::Result<()> {
    let downloader = Downloader::find().context("there is no `curl` and no `wget` to download OpenTofu with")?;
    let platform = super::kubectl::platform().context("there is no release of OpenTofu for this machine")?;
    let file = format!("tofu_{VERSION}_{}_{}.tar.gz", platform.0, platform.1);
    let (url, list) =
        (format!("{RELEASES}/v{VERSION}/{file}"), format!("{RELEASES}/v{VERSION}/tofu_{VERSION}_SHA256SUMS"));
    let archive = with_suffix(target, "tar.gz");
    downloader.fetch(&url, Checksum::Published { list: &list, file: &file }, &archive)?;
    let bytes = fs::read(&archive).with_context(|| format!("cannot read {}", archive.display()))?;
    unpack(&bytes, "tofu", target)?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

/// Writes one program of a `tar.gz` archive to `target`, complete or not at all.
fn unpack(archive: &[u8], program: &str, target: &Path) -> anyhow::Result<()> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    for entry in archive.entries().context("cannot read the archive")? {
        let mut entry = entry.context("cannot read the archive")?;
        if entry.path().context("cannot read the archive")?.as_ref() == Path::new(program) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).context("cannot read the archive")?;
            return super::kubectl::write_program(target, &bytes);
        }
    }
    anyhow::bail!("the archive has no `{program}`")
}

fn build(home: &Path, target: &Path) -> anyhow::Result<()> {
    let tag = format!("v{VERSION}");
    let source = GoSource::new(home.join("src"), MODULE, &tag, &format!("OpenTofu {VERSION}"), |original| {
        module::program("tofu", MODULE, &tag, original)
    })?;
    source.build(&format!("{MODULE}/cmd/tofu"), &format!("-s -w -X {MODULE}/version.dev=no"), target)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_program_of_an_archive_can_be_started() {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, text) in [("LICENSE", "terms"), ("tofu", "program")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        let archive = archive.into_inner().unwrap().finish().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("tofu");
        unpack(&archive, "tofu", &target).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "program");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(unpack(&archive, "terraform", &target).is_err());
        assert!(unpack(b"not an archive", "tofu", &target).is_err());
    }
}
