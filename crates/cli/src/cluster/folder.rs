//! The data directory: its owner and its layout.
//!
//! A running cluster holds a lock on `knoll.pid`. The lock ends with the process, so a file that was left behind never
//! looks like a running cluster.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(clap::Args, Clone)]
pub struct FolderArgs {
    /// The data directory of the cluster [default: ~/.knoll]
    #[arg(long, env = "KNOLL_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl FolderArgs {
    /// The data directory, as an absolute path.
    pub fn folder(&self) -> Result<Folder> {
        let path = match &self.data_dir {
            Some(path) => path.clone(),
            None => {
                let home = std::env::home_dir().context("cannot find the home directory; use `--data-dir DIR`")?;
                home.join(".knoll")
            }
        };
        let path = std::path::absolute(&path).with_context(|| format!("`{}` is not a valid path", path.display()))?;
        Ok(Folder { path })
    }
}

#[derive(Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// The log file of a detached cluster.
    pub fn log(&self) -> PathBuf {
        self.path.join("knoll.log")
    }

    /// The volumes and logs of pods.
    pub fn pods(&self) -> PathBuf {
        self.path.join("pods")
    }

    /// Data shared by all runs, such as provider plugins.
    pub fn cache(&self) -> PathBuf {
        self.path.join("cache")
    }

    fn pid_file(&self) -> PathBuf {
        self.path.join("knoll.pid")
    }

    /// Creates the directory with access for its owner only.
    pub fn create(&self) -> Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .with_context(|| format!("cannot create the data directory `{}`", self.path.display()))
    }

    /// Locks the directory for this process.
    pub fn claim(&self) -> Result<Claim> {
        self.create()?;
        let path = self.pid_file();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open `{}`", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Claim::Taken { pid: read_pid(&mut file) }),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock `{}`", path.display()));
            }
        }
        let stale = read_pid(&mut file);
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Claim::Ours { held: Held { file }, stale })
    }

    /// The process that runs the cluster, if there is one.
    pub fn running(&self) -> Result<Option<Running>> {
        let path = self.pid_file();
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot open `{}`", path.display())),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => {
                let pid = read_pid(&mut file);
                Ok(Some(Running { pid, file }))
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        }
    }

    /// The URL of the API server, from the kubeconfig.
    pub fn address(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.kubeconfig()).ok()?;
        let config: serde_json::Value = serde_json::from_str(&text).ok()?;
        config["clusters"][0]["cluster"]["server"].as_str().map(str::to_owned)
    }
}

/// The result of [`Folder::claim`].
pub enum Claim {
    /// This process holds the lock. `stale` is the previous process, if it did not stop cleanly.
    Ours { held: Held, stale: Option<i32> },
    /// Another process holds the lock.
    Taken {
        /// Its process id, unless it has not written it yet.
        pid: Option<i32>,
    },
}

/// Holds the lock until it is dropped.
pub struct Held {
    file: File,
}

impl Held {
    /// Removes the pid file, so that a clean stop does not look like a crash, and unlocks the directory.
    pub fn release(self) {
        let _ = self.file.set_len(0);
    }
}

pub struct Running {
    pub pid: Option<i32>,
    file: File,
}

impl Running {
    /// Blocks until the process has ended.
    pub fn wait_until_ended(&self) -> std::io::Result<()> {
        self.file.lock_shared()
    }
}

fn read_pid(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
