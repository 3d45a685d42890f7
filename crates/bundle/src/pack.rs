//! Packs files deterministically: the same files give the same bytes.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Component, Path};

use knoll_api::Digest;
use sha2::{Digest as _, Sha256};

use crate::unpack::LARGEST_UNPACKED;

/// The largest size of a packed bundle in bytes. Its ConfigMaps would be too many otherwise.
pub const LARGEST: usize = 50 * 1024 * 1024;

/// Files cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A file name leads out of the module.
    #[error("the module has a file `{0}`, which lies outside of it; use relative names without `..`")]
    Outside(String),
    /// The bundle is too large to be stored in the cluster.
    #[error(
        "the packed module has {} MiB, and a bundle may have {} MiB; exclude files that it does not need in `.terraformignore` (the largest file is `{largest}`)",
        size.div_ceil(1024 * 1024), LARGEST / 1024 / 1024
    )]
    TooLarge {
        /// The packed size in bytes.
        size: usize,
        largest: String,
    },
    /// The archive cannot be written.
    #[error("cannot pack the module: {0}")]
    Archive(#[from] io::Error),
}

/// A file of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// A file with its content.
    Plain {
        content: Vec<u8>,
        /// Whether it may be executed.
        executable: bool,
    },
    /// A symbolic link to another file of the module.
    Link {
        /// The target, relative to the folder of the link.
        target: String,
    },
}

impl File {
    /// A file that is executable if it begins with `#!`.
    #[must_use]
    pub fn new(content: impl Into<Vec<u8>>) -> Self {
        let content = content.into();
        let executable = content.starts_with(b"#!");
        File::Plain { content, executable }
    }

    fn size(&self) -> usize {
        match self {
            File::Plain { content, .. } => content.len(),
            File::Link { .. } => 0,
        }
    }
}

/// The files of a module by their paths, which are relative and separated by `/`.
pub type Files = BTreeMap<String, File>;

/// The packed files of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The digest of the uncompressed archive, so that it does not depend on the version of zstd.
    pub digest: Digest,
    /// The tar archive, compressed with zstd.
    pub bytes: Vec<u8>,
}

/// Packs the files of a module.
///
/// # Errors
/// If a name leads out of the module, or if the bundle is too large.
pub fn pack(files: &Files) -> Result<Bundle, PackError> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, file) in files {
        let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || name.is_empty() || name.ends_with('/') {
            return Err(PackError::Outside(name.clone()));
        }
        let mut header = tar::Header::new_gnu();
        // Nothing of where and when it was packed goes into it.
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        match file {
            File::Plain { content, executable } => {
                header.set_size(content.len() as u64);
                header.set_mode(if *executable { 0o755 } else { 0o644 });
                archive.append_data(&mut header, name, content.as_slice())?;
            }
            File::Link { target } => {
                header.set_size(0);
                header.set_mode(0o777);
                header.set_entry_type(tar::EntryType::Symlink);
                archive.append_link(&mut header, name, target)?;
            }
        }
    }
    let archive = archive.into_inner()?;
    let bytes = zstd::encode_all(&archive[..], zstd::DEFAULT_COMPRESSION_LEVEL)?;
    if bytes.len() > LARGEST {
        let largest = files.iter().max_by_key(|(_, file)| file.size());
        let largest = largest.map(|(name, _)| name.clone()).unwrap_or_default();
        return Err(PackError::TooLarge { size: bytes.len(), largest });
    }
    Ok(Bundle { digest: Digest::of(&archive), bytes })
}

/// Packs text files, such as those of a Run's inline source.
///
/// # Errors
/// As [`pack`].
pub fn pack_texts(files: &BTreeMap<String, String>) -> Result<Bundle, PackError> {
    pack(&files.iter().map(|(name, text)| (name.clone(), File::new(text.as_bytes()))).collect())
}

/// The digest of a bundle's packed bytes.
///
/// # Errors
/// If they cannot be decompressed.
pub fn digest_of(bytes: &[u8]) -> io::Result<Digest> {
    let mut hash = Sha256::new();
    let mut plain = zstd::Decoder::with_buffer(bytes)?.take(LARGEST_UNPACKED);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match plain.read(&mut buffer)? {
            0 => return Ok(Digest::from_hash(hash.finalize().into())),
            count => hash.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn files(names: &[&str]) -> Files {
        names.iter().map(|name| ((*name).to_owned(), File::new(name.as_bytes()))).collect()
    }

    #[test]
    fn the_same_files_are_the_same_bundle() {
        let bundle = pack(&files(&["main.tf", "modules/net/main.tf"])).unwrap();
        assert_eq!(bundle, pack(&files(&["modules/net/main.tf", "main.tf"])).unwrap());
        assert_ne!(bundle.digest, pack(&files(&["main.tf"])).unwrap().digest);
        // It is written into objects that outlive this version: another one must not find another digest.
        let one = pack_texts(&BTreeMap::from([("main.tf".to_owned(), "locals {}\n".to_owned())])).unwrap();
        assert_eq!(one.digest.as_str(), "sha256:a22bde61370866bf704b11519b06e2749224d957b1363d64915b44d629149d66");
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["../x.tf", "a/../../x.tf", "/etc/x.tf", "", ".", "a/"] {
            let error = pack(&files(&[name])).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }

    #[test]
    fn a_long_name_is_packed_too() {
        let name = format!("{}/main.tf", "long".repeat(60));
        assert!(pack(&files(&[&name])).is_ok());
    }

    #[test]
    fn what_is_too_large_names_its_largest_file() {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .take(LARGEST / 8 + 1024)
        .flatten()
        .collect();
        let files = Files::from([("main.tf".into(), File::new("")), ("image.bin".into(), File::new(noise))]);
        let error = pack(&files).unwrap_err().to_string();
        assert!(error.contains("`image.bin`") && error.contains("may have 50 MiB"), "{error}");
    }
}
