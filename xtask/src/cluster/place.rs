//! Where a cluster and its binaries lie: one folder for each cluster, and a cache of the user's that clusters share.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The name of the cluster when none is given.
pub const DEFAULT_NAME: &str = "default";

/// The cache of this user, where things lie that can be made again.
pub fn user_cache() -> anyhow::Result<PathBuf> {
    if let Some(folder) = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute()) {
        return Ok(folder);
    }
    let home = std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set: set one of them")?;
    Ok(PathBuf::from(home).join(".cache"))
}

/// The folder of one cluster. Everything that a cluster writes lies in it.
#[derive(Clone, Debug)]
pub struct Place {
    pub folder: PathBuf,
    /// The name that the user knows the cluster by.
    pub name: String,
}

impl Place {
    /// The place of the named cluster, or the one that `KNOLL_CLUSTER_DIR` names.
    pub fn of(name: Option<&str>) -> anyhow::Result<Place> {
        let named = std::env::var_os("KNOLL_CLUSTER_DIR").filter(|folder| !folder.is_empty());
        let (folder, name) = match (named, name) {
            (Some(_), Some(_)) => bail!("KNOLL_CLUSTER_DIR is set and `--name` is given: use one of them"),
            (Some(folder), None) => {
                let folder = std::path::absolute(PathBuf::from(folder)).context("cannot use KNOLL_CLUSTER_DIR")?;
                (folder, DEFAULT_NAME.to_owned())
            }
            (None, name) => {
                let name = name.unwrap_or(DEFAULT_NAME);
                if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
                    bail!("`{name}` is no name for a cluster: use lower case letters, digits and `-`");
                }
                (user_cache()?.join("knoll/cluster").join(name), name.to_owned())
            }
        };
        Ok(Place { folder, name })
    }

    /// A path inside the folder.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.folder.join(inside)
    }

    /// A path inside the folder, as the text of an argument.
    pub fn text(&self, inside: &str) -> String {
        self.path(inside).to_string_lossy().into_owned()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    /// The socket of the node's containerd.
    pub fn containerd_socket(&self) -> PathBuf {
        self.path("containerd.sock")
    }

    /// Makes the folders that `up` writes into. Only their owner may look inside: there are keys in them.
    fn create(&self) -> anyhow::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        for inside in ["", "config", "logs", "run"] {
            let folder = self.path(inside);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        Ok(())
    }

    /// Keeps every other `up` and `down` away from this folder until the answer is dropped.
    pub fn lock(&self) -> anyhow::Result<File> {
        loop {
            self.create()?;
            let path = self.path("lock");
            let file = lock(&path, "another `cargo xtask cluster` works on this folder")?;
            // Whoever held it may have deleted the folder, and this lock with it.
            let same = |there: fs::Metadata| Ok::<_, io::Error>(there.ino() == file.metadata()?.ino());
            if fs::metadata(&path).and_then(same).unwrap_or(false) {
                return Ok(file);
            }
        }
    }
}

/// Takes the lock of a file; says why when it has to wait for it.
pub fn lock(path: &Path, why: &str) -> anyhow::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open the lock {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => eprintln!("waiting: {why} ({})", path.display()),
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot take the lock {}", path.display()));
        }
    }
    file.lock().with_context(|| format!("cannot take the lock {}", path.display()))?;
    Ok(file)
}

/// Writes a file whole or not at all. `secret` files can be read by their owner only.
pub fn write(path: &Path, bytes: &[u8], secret: bool) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let write = || -> std::io::Result<()> {
        let mode = if secret { 0o600 } else { 0o644 };
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&new)?;
        file.write_all(bytes)?;
        drop(file);
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
