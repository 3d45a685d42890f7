//! Docker archives, written without Docker: one layer, a config and a manifest in a tar. The same input gives the same
//! bytes.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// An image to be written.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Its name and tag.
    pub name: String,
    /// Its files, in the order in which they are unpacked: folders before what is in them.
    pub entries: Vec<Entry>,
    /// The program that runs whatever the arguments are.
    pub entrypoint: Vec<String>,
    /// The arguments when none are given.
    pub command: Vec<String>,
    /// The user that the program runs as, as numbers.
    pub user: String,
    /// The folder that the program starts in.
    pub folder: String,
    /// Variables of the environment: `NAME=value`.
    pub environment: Vec<String>,
}

/// Something in an image, with its path without a leading `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder with its mode.
    Folder(String, u32),
    /// A file that is copied from this machine, with its mode.
    Copy(String, PathBuf, u32),
    /// A file with this text.
    Text(String, String),
    /// A symbolic link and what it points to.
    Link(String, String),
}

impl Image {
    /// Writes the archive; it appears at `target` whole or not at all.
    pub fn write(&self, target: &Path) -> anyhow::Result<()> {
        let (layer, new) = (target.with_extension("layer"), target.with_extension("new"));
        let result = self.write_parts(&layer, &new).and_then(|()| Ok(fs::rename(&new, target)?));
        // Left behind it would only take space.
        let _ = fs::remove_file(&layer);
        result.with_context(|| format!("cannot write the image {} to {}", self.name, target.display()))
    }

    fn write_parts(&self, layer: &Path, new: &Path) -> anyhow::Result<()> {
        let layer_digest = self.write_layer(layer)?;
        let config = self.config(&layer_digest);
        let config_name = format!("{}.json", digest(config.as_bytes()));
        let layer_name = format!("{layer_digest}/layer.tar");
        let manifest = json!([{"Config": config_name, "RepoTags": [self.name], "Layers": [layer_name]}]).to_string();

        let mut archive = Builder::new(BufWriter::new(File::create(new)?));
        append(&mut archive, &config_name, config.as_bytes())?;
        let size = fs::metadata(layer)?.len();
        let mut header = header(EntryType::Regular, 0o644, size);
        archive.append_data(&mut header, &layer_name, BufReader::new(File::open(layer)?))?;
        append(&mut archive, "manifest.json", manifest.as_bytes())?;
        archive.into_inner()?.flush()?;
        Ok(())
    }

    /// Writes the layer and answers its digest.
    fn write_layer(&self, path: &Path) -> anyhow::Result<String> {
        let mut layer = Builder::new(Hashed { inner: BufWriter::new(File::create(path)?), hash: Sha256::new() });
        for entry in &self.entries {
            match entry {
                Entry::Folder(path, mode) => {
                    let mut header = header(EntryType::Directory, *mode, 0);
                    layer.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                Entry::Copy(path, source, mode) => {
                    let read = || format!("cannot read {}", source.display());
                    let file = File::open(source).with_context(read)?;
                    let size = file.metadata().with_context(read)?.len();
                    let mut header = header(EntryType::Regular, *mode, size);
                    layer.append_data(&mut header, path, BufReader::new(file).take(size)).with_context(read)?;
                }
                Entry::Text(path, text) => append(&mut layer, path, text.as_bytes())?,
                Entry::Link(path, target) => {
                    layer.append_link(&mut header(EntryType::Symlink, 0o777, 0), path, target)?;
                }
            }
        }
        let mut hashed = layer.into_inner()?;
        hashed.flush()?;
        Ok(hex(&hashed.hash.finalize()))
    }

    fn config(&self, layer_digest: &str) -> String {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        json!({
            "architecture": architecture,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "Entrypoint": self.entrypoint,
                "Cmd": self.command,
                "User": self.user,
                "WorkingDir": self.folder,
                "Env": self.environment,
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask image"}],
        })
        .to_string()
    }
}

fn append<W: Write>(archive: &mut Builder<W>, path: &str, bytes: &[u8]) -> io::Result<()> {
    let size = u64::try_from(bytes.len()).map_err(io::Error::other)?;
    archive.append_data(&mut header(EntryType::Regular, 0o644, size), path, bytes)
}

/// A header that says nothing about this machine: no owner, no time.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// The SHA-256 of some bytes, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes what passes through.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests;
