//! Writes the files of one commit to a directory.
//!
//! The content of a repository is not trusted. Names that lead outside are refused, every file is written to a new
//! path, and symlinks are created last, so that no file is ever written through one.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use gix::{
    ObjectId, Repository,
    objs::tree::EntryKind,
    remote::{Direction, fetch::Shallow},
};

use super::{remote::Remote, submodules};
use crate::{Error, limits::LARGEST_OBJECT};

/// The maximum nesting depth of directories.
const DEEPEST: usize = 64;

/// Fetches a commit, or the tag that points to it, and writes its files to `folder`, which is created.
pub(crate) fn into(remote: &Remote, object: ObjectId, with_submodules: bool, folder: &Path) -> Result<(), Error> {
    let home = tempfile::tempdir()?;
    let repository = match remote.folder() {
        Some(folder) => gix::open_opts(folder, options()).map_err(|error| remote.failed(&error))?,
        None => fetch(remote, object, home.path())?,
    };
    let mut found = Deferred { links: Vec::new(), submodules: Vec::new() };
    let tree = root(&repository, object)
        .ok_or_else(|| Error::NoRef { url: remote.shown.clone(), what: format!("commit `{object}`") })?;
    write(remote, &repository, tree, folder, Path::new(""), &mut found)?;
    // Symlinks could redirect files of submodules, so they are created after all files.
    if with_submodules {
        submodules::into(remote, folder, &found.submodules)?;
    }
    for (path, target) in found.links {
        symlink(target, path)?;
    }
    Ok(())
}

/// Options without the configuration of the machine. An object is not unpacked if it is too large.
fn options() -> gix::open::Options {
    gix::open::Options::isolated().config_overrides([format!("gitoxide.objects.allocLimit={LARGEST_OBJECT}")])
}

/// The tree of a commit, or of the commit that a tag points to.
fn root(repository: &Repository, object: ObjectId) -> Option<ObjectId> {
    Some(repository.find_object(object).ok()?.peel_to_tree().ok()?.id)
}

/// Fetches only that object, or all branches and tags if the server does not allow it.
fn fetch(remote: &Remote, object: ObjectId, home: &Path) -> Result<Repository, Error> {
    let failed = |error: &dyn std::fmt::Display| remote.failed(&error.to_string());
    let alone = home.join("alone");
    let first = receive(remote, &[format!("{object}:refs/knoll/wanted")], true, &alone);
    if let Ok(repository) = first
        && root(&repository, object).is_some()
    {
        return Ok(repository);
    }
    let all = ["+refs/heads/*:refs/heads/*".to_owned(), "+refs/tags/*:refs/tags/*".to_owned()];
    let repository = receive(remote, &all, false, &home.join("all")).map_err(|error| failed(&error))?;
    Ok(repository)
}

fn receive(remote: &Remote, specs: &[String], shallow: bool, folder: &Path) -> Result<Repository, Error> {
    let failed = |error: gix::Error| remote.failed(&error);
    let kind = gix::create::Kind::Bare;
    let repository = gix::ThreadSafeRepository::init_opts(folder, kind, Default::default(), options())
        .map_err(failed)?
        .to_thread_local();
    let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
    let from = repository
        .remote_at(remote.url.clone())
        .and_then(|from| from.with_refspecs(specs, Direction::Fetch))
        .map_err(failed)?
        .with_fetch_tags(gix::remote::fetch::Tags::None);
    let connection = from.to_connection_with_transport(remote.connect()?).with_credentials(|_| Ok(None));
    let depth = if shallow { Shallow::DepthAtRemote(std::num::NonZeroU32::MIN) } else { Shallow::NoChange };
    connection
        .prepare_fetch(gix::progress::Discard, gix::remote::ref_map::Options::default())
        .map_err(failed)?
        .with_shallow(depth)
        .receive(gix::progress::Discard, &AtomicBool::new(false))
        .map_err(failed)?;
    Ok(repository)
}

/// Entries to process after the files.
struct Deferred {
    links: Vec<(PathBuf, PathBuf)>,
    submodules: Vec<(PathBuf, ObjectId)>,
}

fn write(
    remote: &Remote,
    repository: &Repository,
    tree: ObjectId,
    folder: &Path,
    below: &Path,
    found: &mut Deferred,
) -> Result<(), Error> {
    let failed = |error: gix::Error| remote.failed(&error);
    let odd = |name: &str| Error::Refused {
        url: remote.shown.clone(),
        why: format!("it contains the unsafe file name `{name}`"),
    };
    if below.components().count() > DEEPEST {
        return Err(odd(&below.display().to_string()));
    }
    let here = folder.join(below);
    fs::create_dir(&here)?;
    let tree = repository.find_tree(tree).map_err(failed)?;
    for entry in tree.iter() {
        let entry = entry.map_err(failed)?;
        let name = entry.filename().to_string();
        if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." || is_git(&name) {
            return Err(odd(&below.join(&name).display().to_string()));
        }
        remote.limits.take_file(&remote.shown).map_err(|_| Error::TooMany(remote.shown.clone()))?;
        let (path, id) = (here.join(&name), entry.object_id());
        match entry.mode().kind() {
            EntryKind::Tree => write(remote, repository, id, folder, &below.join(&name), found)?,
            EntryKind::Commit => found.submodules.push((below.join(&name), id)),
            kind @ (EntryKind::Blob | EntryKind::BlobExecutable | EntryKind::Link) => {
                // The size is known before the content is unpacked.
                let size = repository.find_header(id).map_err(failed)?.size();
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let too_large = |_| Error::TooLarge(remote.shown.clone());
                remote.limits.take(&remote.shown, size).map_err(too_large)?;
                let blob = repository.find_object(id).map_err(failed)?;
                if kind == EntryKind::Link {
                    found.links.push((path, String::from_utf8_lossy(&blob.data).into_owned().into()));
                    continue;
                }
                let mode = if kind == EntryKind::BlobExecutable { 0o755 } else { 0o644 };
                OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(&blob.data)?;
            }
        }
    }
    Ok(())
}

/// Whether a name is `.git`, ignoring case.
fn is_git(name: &str) -> bool {
    name.eq_ignore_ascii_case(".git")
}
