//! A git client without the git program: resolves refs and reads the files of one commit over https, ssh, the git
//! protocol or from a local directory.

pub(crate) mod checkout;
mod http;
pub(crate) mod remote;
mod ssh;
mod submodules;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use gix::{ObjectId, protocol::handshake::Ref};
use knoll_api::source::{GitRef, GitSource};
use knoll_bundle::{Bundle, pack_at};

use crate::{
    Credentials, Error, Settings,
    limits::Limits,
    module::{self, VariableFiles},
};
use remote::Remote;

/// Bundling holds all files of a module in memory, and their archive. One at a time keeps that within the operator's
/// memory, however many sources are fetched.
static BUNDLING: Mutex<()> = Mutex::new(());

/// The commit that a branch, a tag or a hash resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub hash: String,
    /// The object to request: the annotated tag that points to the commit, or the commit itself.
    pub(crate) object: ObjectId,
}

/// Resolves the source's ref to its current commit.
///
/// # Errors
/// If the server cannot be reached, or has no such branch or tag.
pub async fn newest(source: &GitSource, credentials: &Credentials, settings: &Settings) -> Result<Commit, Error> {
    let remote = Remote::new(&source.url, credentials, settings, Arc::new(Limits::default()))?;
    let reference = source.reference.clone().unwrap_or_default();
    if let Some(hash) = &reference.commit {
        return at(&remote, hash);
    }
    blocking(move || resolve(&remote, &reference)).await
}

/// Fetches the bundle of a commit: the module at the source's path, and the local modules that it refers to.
///
/// # Errors
/// If the commit cannot be fetched, or contains no module.
pub async fn git(
    source: &GitSource,
    commit: &Commit,
    credentials: &Credentials,
    settings: &Settings,
) -> Result<Bundle, Error> {
    let remote = Remote::new(&source.url, credentials, settings, Arc::new(Limits::default()))?;
    let (commit, source) = (commit.clone(), source.clone());
    blocking(move || {
        let folder = tempfile::tempdir()?;
        let tree = folder.path().join("tree");
        checkout::into(&remote, commit.object, source.submodules, &tree)?;
        let of = format!("commit {} of `{}`", commit.hash.get(..12).unwrap_or_default(), remote.shown);
        bundle(&tree, source.path.as_deref().unwrap_or_default(), &of)
    })
    .await
}

/// Bundles the module at `path` of a fetched directory.
pub(crate) fn bundle(folder: &Path, path: &str, of: &str) -> Result<Bundle, Error> {
    let path = path.trim_matches('/');
    let _alone = BUNDLING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder.canonicalize()?;
    // A symlink in the repository must not lead out of it.
    let real = folder.join(path).canonicalize().ok().filter(|real| real.starts_with(&folder));
    let at = real.filter(|at| module::has_configuration(at, Some(&folder))).ok_or_else(|| Error::NoModule {
        path: if path.is_empty() { ".".to_owned() } else { path.to_owned() },
        of: of.to_owned(),
    })?;
    let module = module::collect(&at, Some(&folder), VariableFiles::Included)?;
    Ok(pack_at(&module.files, &module.path)?)
}

/// Runs blocking library code on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Disk(std::io::Error::other(error))),
    }
}

pub(crate) fn at(remote: &Remote, hash: &str) -> Result<Commit, Error> {
    let object = ObjectId::from_hex(hash.as_bytes())
        .map_err(|_| Error::NoRef { url: remote.shown.clone(), what: format!("commit `{hash}`") })?;
    Ok(Commit { hash: hash.to_owned(), object })
}

fn resolve(remote: &Remote, reference: &GitRef) -> Result<Commit, Error> {
    let (name, what) = match (&reference.branch, &reference.tag) {
        (Some(branch), _) => (format!("refs/heads/{branch}"), format!("branch `{branch}`")),
        (None, Some(tag)) => (format!("refs/tags/{tag}"), format!("tag `{tag}`")),
        (None, None) => ("HEAD".to_owned(), "default branch: it is empty".to_owned()),
    };
    let refs = remote.refs(&name)?;
    let found = refs.iter().find_map(|found| of_ref(found, &name));
    found.ok_or_else(|| Error::NoRef { url: remote.shown.clone(), what })
}

fn of_ref(found: &Ref, reference: &str) -> Option<Commit> {
    let (name, object, peeled) = found.unpack();
    let object = object?.to_owned();
    let hash = peeled.map_or(object, ToOwned::to_owned).to_string();
    (name == reference).then_some(Commit { hash, object })
}
