//! Unpacks a module's bundle (tar, zstd) below one folder and nowhere else.
//!
//! The author of the module is not trusted: an entry that names a path outside of the folder, directly or through a
//! link, is refused by name and never written.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use tar::EntryType;

/// The largest unpacked size of a bundle in bytes, so that a small bundle cannot fill a disk.
pub(crate) const LARGEST_UNPACKED: u64 = 1024 * 1024 * 1024;

/// The bundle was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream is not tar+zstd.
    #[error("the module's bundle cannot be read: {0}; it must be a tar archive packed with zstd")]
    Format(#[source] io::Error),
    /// The entry's name is absolute or goes upwards.
    #[error("the module's bundle has an entry `{0}` that lies outside of the module; use relative names without `..`")]
    Outside(String),
    /// The link leads out of the module.
    #[error(
        "the module's bundle has a link `{link}` to `{target}`, which is not a file of the module; add the file itself"
    )]
    Link {
        /// The link's own name.
        link: String,
        /// The target of the link.
        target: String,
    },
    /// The entry lies below a link.
    #[error("the module's bundle has an entry `{0}` below a link; name the real folder instead")]
    BelowLink(String),
    /// A device, a pipe or another special file.
    #[error("the module's bundle has an entry `{0}` that is neither a file, a folder nor a link; leave it out")]
    Kind(String),
    /// The unpacked size exceeds the limit.
    #[error("the module's bundle unpacks to more than {} MiB; leave out what the module does not need", LARGEST_UNPACKED / 1024 / 1024)]
    TooLarge,
    /// The file system refused a write.
    #[error("cannot write `{name}` of the module: {source}")]
    Write { name: String, source: io::Error },
}

/// Unpacks `bundle` into the existing `folder`. Only entries whose relative name `keep` accepts are written.
///
/// # Errors
/// If the bundle is damaged or has an entry outside of `folder`.
pub fn unpack(bundle: &[u8], folder: &Path, keep: impl Fn(&Path) -> bool) -> Result<(), Error> {
    let plain = zstd::Decoder::with_buffer(bundle).map_err(Error::Format)?;
    unpack_tar(plain, folder, keep)
}

/// As [`unpack`], for an uncompressed tar archive.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_tar(plain: impl Read, folder: &Path, keep: impl Fn(&Path) -> bool) -> Result<(), Error> {
    let mut archive = tar::Archive::new(plain);
    let mut links = Vec::new();
    let mut size = 0_u64;
    for entry in archive.entries().map_err(Error::Format)? {
        let mut entry = entry.map_err(Error::Format)?;
        let shown = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let name = inside(&entry.path().map_err(Error::Format)?).ok_or_else(|| Error::Outside(shown.clone()))?;
        if name.as_os_str().is_empty() || !keep(&name) {
            continue;
        }
        if links.iter().any(|(link, _): &(PathBuf, PathBuf)| name.starts_with(link)) {
            return Err(Error::BelowLink(shown));
        }
        size = size.saturating_add(entry.size());
        if size > LARGEST_UNPACKED {
            return Err(Error::TooLarge);
        }
        let executable = entry.header().mode().unwrap_or(0o644) & 0o100 != 0;
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {
                write(&folder.join(&name), &mut entry, executable)
                    .map_err(|source| Error::Write { name: shown, source })?;
            }
            EntryType::Directory => {
                fs::create_dir_all(folder.join(&name)).map_err(|source| Error::Write { name: shown, source })?;
            }
            EntryType::Symlink => {
                let target = entry.link_name().map_err(Error::Format)?.unwrap_or_default().into_owned();
                links.push((name, target));
            }
            EntryType::XGlobalHeader | EntryType::XHeader => {}
            _ => return Err(Error::Kind(shown)),
        }
    }
    link_all(folder, links)
}

/// The entry's path below the folder, or `None` if it would lie elsewhere.
pub fn inside(path: &Path) -> Option<PathBuf> {
    let mut name = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(name)
}

fn write(path: &Path, from: &mut impl Read, executable: bool) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mode = if executable { 0o755 } else { 0o644 };
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    io::copy(from, &mut file)?;
    Ok(())
}

/// Creates the links after all files, so that the file system resolves each target: a chain of links can look harmless
/// by its names and still lead out of the folder.
fn link_all(folder: &Path, links: Vec<(PathBuf, PathBuf)>) -> Result<(), Error> {
    let root = folder.canonicalize().map_err(|source| Error::Write { name: ".".into(), source })?;
    let mut made = Vec::with_capacity(links.len());
    for (name, target) in links {
        let refused = || Error::Link { link: name.display().to_string(), target: target.display().to_string() };
        if target.is_absolute() {
            return Err(refused());
        }
        let path = folder.join(&name);
        let write = |source| Error::Write { name: name.display().to_string(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(write)?;
        }
        symlink(&target, &path).map_err(write)?;
        made.push((path, refused()));
    }
    for (path, refused) in made {
        if !path.canonicalize().is_ok_and(|real| real.starts_with(&root)) {
            // The link itself must not stay behind either.
            let _ = fs::remove_file(path);
            return Err(refused);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    enum Item {
        File(&'static str, &'static str),
        Link(&'static str, &'static str),
        Pipe(&'static str),
    }

    fn bundle(items: &[Item]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for item in items {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            let (name, data) = match item {
                Item::File(name, data) => {
                    header.set_size(data.len() as u64);
                    (name, data.as_bytes())
                }
                Item::Link(name, target) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_link_name_literal(target).unwrap();
                    header.set_size(0);
                    (name, &b""[..])
                }
                Item::Pipe(name) => {
                    header.set_entry_type(EntryType::Fifo);
                    header.set_size(0);
                    (name, &b""[..])
                }
            };
            // The builder's own methods refuse bad names, so the name is put into the header by hand.
            let field = &mut header.as_old_mut().name;
            field[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, data).unwrap();
        }
        zstd::encode_all(&tar.into_inner().unwrap()[..], 1).unwrap()
    }

    #[track_caller]
    fn refused(items: &[Item], says: &str) {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("module");
        fs::create_dir(&folder).unwrap();
        let error = unpack(&bundle(items), &folder, |_| true).unwrap_err().to_string();
        assert!(error.contains(says), "`{error}` does not say `{says}`");
        let beside: Vec<_> = fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(beside, ["module"], "something was written outside");
    }

    #[test]
    fn files_folders_and_links_inside_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let items = [
            Item::Link("modules/net/main.tf", "../../main.tf"),
            Item::File("./main.tf", "# main"),
            Item::File("a/b/c.tf", "# c"),
        ];
        unpack(&bundle(&items), folder.path(), |_| true).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("modules/net/main.tf")).unwrap(), "# main");
        assert_eq!(fs::read_to_string(folder.path().join("a/b/c.tf")).unwrap(), "# c");
    }

    #[test]
    fn what_is_not_wanted_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let items = [Item::File("terraform.tfstate", "{}"), Item::File("main.tf", "")];
        unpack(&bundle(&items), folder.path(), |name| name != Path::new("terraform.tfstate")).unwrap();
        assert!(!folder.path().join("terraform.tfstate").exists());
        assert!(folder.path().join("main.tf").exists());
    }

    #[test]
    fn entries_that_lie_outside_are_refused_by_name() {
        refused(&[Item::File("../evil.tf", "x")], "`../evil.tf`");
        refused(&[Item::File("a/../../evil.tf", "x")], "`a/../../evil.tf`");
        refused(&[Item::File("/etc/evil.tf", "x")], "`/etc/evil.tf`");
    }

    #[test]
    fn links_that_lead_outside_are_refused_by_name() {
        refused(&[Item::Link("l", "/etc/passwd")], "`l` to `/etc/passwd`");
        refused(&[Item::Link("l", "../..")], "`l` to `../..`");
        refused(&[Item::Link("l", "nowhere")], "`l` to `nowhere`");
        // By its names alone the second link stays inside; the first one makes it lead out.
        refused(&[Item::File("d/f", ""), Item::Link("d/up", ".."), Item::Link("l", "d/up/..")], "`l` to `d/up/..`");
        refused(&[Item::Link("l", "d"), Item::File("l/f", "x")], "`l/f` below a link");
    }

    #[test]
    fn other_kinds_of_files_and_damaged_bundles_are_refused() {
        refused(&[Item::Pipe("p")], "`p`");
        let folder = tempfile::tempdir().unwrap();
        let error = unpack(b"no archive", folder.path(), |_| true).unwrap_err().to_string();
        assert!(error.contains("must be a tar archive packed with zstd"), "{error}");
    }
}
