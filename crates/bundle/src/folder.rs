//! Packs a directory of the user's machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::pack::{Bundle, File, Files, PackError, pack};

/// Why a folder cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A link leads out of the folder.
    #[error(
        "the link `{}` leads to `{}`, which is not a file of the folder; copy the file, or leave the link out",
        link.display(), target.display()
    )]
    Link { link: PathBuf, target: PathBuf },
    /// A file name is not valid UTF-8.
    #[error("the name of the file `{}` is no UTF-8 text; rename it", .0.display())]
    Name(PathBuf),
    /// The directory contains no module.
    #[error("there is no `*.tf`, `*.tofu` or `*.tf.json` file in `{}`; go to the folder of a module", .0.display())]
    NoModule(PathBuf),
    /// The files cannot be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// Packs `folder`, the root of a module. Files of terraform and of version control are left out, and so are the
/// relative paths for which `leave_out` is true.
///
/// # Errors
/// If a file cannot be read or must not be packed.
pub fn pack_folder(folder: &Path, leave_out: impl Fn(&Path) -> bool) -> Result<Bundle, FolderError> {
    let read = |path: &Path| {
        let path = path.to_owned();
        move |source| FolderError::Read { path, source }
    };
    let root = folder.canonicalize().map_err(read(folder))?;
    let mut files: Files = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let path = root.join(&below);
        for entry in fs::read_dir(&path).map_err(read(&path))? {
            let entry = entry.map_err(read(&path))?;
            let (name, path) = (below.join(entry.file_name()), entry.path());
            if is_left_behind(&name) || leave_out(&name) {
                continue;
            }
            let kind = entry.file_type().map_err(read(&path))?;
            if kind.is_dir() {
                folders.push(name);
                continue;
            }
            let text = name.to_str().ok_or_else(|| FolderError::Name(name.clone()))?.to_owned();
            if kind.is_symlink() {
                files.insert(text, link(&root, &name, &path)?);
            } else if kind.is_file() {
                let content = fs::read(&path).map_err(read(&path))?;
                let mode = entry.metadata().map_err(read(&path))?.permissions().mode();
                files.insert(text, File::Plain { content, executable: mode & 0o100 != 0 });
            }
            // Sockets and pipes are no files of a module.
        }
    }
    let is_module = |name: &String| {
        !name.contains('/') && [".tf", ".tofu", ".tf.json", ".tofu.json"].iter().any(|end| name.ends_with(end))
    };
    if !files.keys().any(is_module) {
        return Err(FolderError::NoModule(folder.to_owned()));
    }
    Ok(pack(&files)?)
}

/// A link is packed as a link if its target is packed as well.
fn link(root: &Path, name: &Path, path: &Path) -> Result<File, FolderError> {
    let target = fs::read_link(path).map_err(|source| FolderError::Read { path: path.to_owned(), source })?;
    let refused = || FolderError::Link { link: name.to_owned(), target: target.clone() };
    let real = path.canonicalize().map_err(|_| refused())?;
    if target.is_absolute() || !real.starts_with(root) {
        return Err(refused());
    }
    let target = target.to_str().ok_or_else(|| FolderError::Name(name.to_owned()))?.to_owned();
    Ok(File::Link { target })
}

/// Whether a path is no part of a module: terraform's downloads and states, and the history of version control.
fn is_left_behind(name: &Path) -> bool {
    let last = name.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let at_root = name.components().count() == 1;
    let anywhere = [".git", ".terraform", ".hg", ".svn"];
    let state = ["terraform.tfstate", "terraform.tfstate.d", ".terraform.tfstate.lock.info", "crash.log"];
    anywhere.contains(&last) || (at_root && (state.contains(&last) || last.starts_with("terraform.tfstate.")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_folder_comes_out_as_it_was_without_what_terraform_left() {
        let from = folder(&[
            ("main.tf", "# main"),
            ("modules/net/main.tf", "# net"),
            ("run.sh", "echo"),
            (".terraform/providers/x", "binary"),
            (".git/config", ""),
            ("terraform.tfstate", "{}"),
            ("terraform.tfstate.backup", "{}"),
            (".terraform.lock.hcl", "# lock"),
            ("secret.auto.tfvars", "left out"),
        ]);
        fs::set_permissions(from.path().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("../../main.tf", from.path().join("modules/net/link.tf")).unwrap();
        let bundle = pack_folder(from.path(), |name| name == Path::new("secret.auto.tfvars")).unwrap();

        let to = tempfile::tempdir().unwrap();
        crate::unpack(&bundle.bytes, to.path(), |_| true).unwrap();
        let read = |name: &str| fs::read_to_string(to.path().join(name)).ok();
        assert_eq!(read("main.tf").as_deref(), Some("# main"));
        assert_eq!(read("modules/net/link.tf").as_deref(), Some("# main"));
        assert_eq!(read(".terraform.lock.hcl").as_deref(), Some("# lock"));
        assert_eq!(fs::metadata(to.path().join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        for name in [".terraform/providers/x", ".git/config", "terraform.tfstate", "secret.auto.tfvars"] {
            assert_eq!(read(name), None, "{name}");
        }
        assert_eq!(pack_folder(to.path(), |_| false).unwrap(), bundle, "packed again, it is the same bundle");
    }

    #[test]
    fn what_cannot_be_packed_is_named() {
        let outside = folder(&[("main.tf", "")]);
        symlink("/etc/hostname", outside.path().join("host")).unwrap();
        let error = pack_folder(outside.path(), |_| false).unwrap_err().to_string();
        assert!(error.contains("`host` leads to `/etc/hostname`"), "{error}");
        let empty = folder(&[("README.md", "")]);
        let error = pack_folder(empty.path(), |_| false).unwrap_err().to_string();
        assert!(error.contains("go to the folder of a module"), "{error}");
        assert!(pack_folder(&empty.path().join("nowhere"), |_| false).unwrap_err().to_string().contains("nowhere"));
    }
}
