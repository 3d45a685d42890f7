//! The data folder: whose it is, and what lies where in it.
//!
//! A cluster that runs holds a lock on `knoll.pid`. The lock ends with the process, however it ends, so a file that is
//! left behind never looks like a cluster that runs.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the embedded cluster lives.
#[derive(clap::Args, Clone)]
pub struct FolderArgs {
    /// The folder that holds the cluster [default: ~/.knoll]
    #[arg(long, env = "KNOLL_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl FolderArgs {
    /// The folder, as an absolute path.
    pub fn folder(&self) -> Result<Folder> {
        let path = match &self.data_dir {
            Some(path) => path.clone(),
            None => {
                let home = std::env::home_dir().context("there is no home folder; name one with `--data-dir DIR`")?;
                home.join(".knoll")
            }
        };
        let path = std::path::absolute(&path).with_context(|| format!("`{}` is no usable path", path.display()))?;
        Ok(Folder { path })
    }
}

/// A data folder.
#[derive(Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where clients find the address and the token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Where a detached cluster writes its log.
    pub fn log(&self) -> PathBuf {
        self.path.join("knoll.log")
    }

    /// Where pods have their volumes and logs.
    pub fn pods(&self) -> PathBuf {
        self.path.join("pods")
    }

    /// What runs share, such as provider plugins.
    pub fn cache(&self) -> PathBuf {
        self.path.join("cache")
    }

    fn pid_file(&self) -> PathBuf {
        self.path.join("knoll.pid")
    }

    /// Makes the folder, for its owner only.
    pub fn create(&self) -> Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .with_context(|| format!("cannot make the data folder `{}`", self.path.display()))
    }

    /// Takes the folder for this process.
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

    /// The process that runs the cluster, if one does.
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
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot look at `{}`", path.display()))
            }
        }
    }

    /// The server's address, as the kubeconfig has it.
    pub fn address(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.kubeconfig()).ok()?;
        let config: serde_json::Value = serde_json::from_str(&text).ok()?;
        config["clusters"][0]["cluster"]["server"].as_str().map(str::to_owned)
    }
}

/// Who has the folder.
pub enum Claim {
    /// This process, from now on. `stale` is the process that had it before and did not stop cleanly.
    Ours {
        /// Holds the folder until dropped.
        held: Held,
        /// See above.
        stale: Option<i32>,
    },
    /// Another process.
    Taken {
        /// That process, where it has written down who it is.
        pid: Option<i32>,
    },
}

/// The folder is held for as long as this lives.
pub struct Held {
    file: File,
}

impl Held {
    /// Lets go of the folder, leaving nothing behind that looks like a crash.
    pub fn release(self) {
        let _ = self.file.set_len(0);
    }
}

/// A cluster that runs.
pub struct Running {
    /// Its process.
    pub pid: Option<i32>,
    file: File,
}

impl Running {
    /// Blocks until that process has ended.
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
