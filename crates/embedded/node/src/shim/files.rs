//! What a container's folder holds, and how the node and the shim read and write it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What to run: a [`Spec`], written by the node.
pub const SPEC: &str = "spec.json";
/// The process that runs: a [`Started`], written by the shim.
pub const STARTED: &str = "started.json";
/// How it ended: an [`Exit`], written by the shim, or by a node that found the shim gone.
pub const EXIT: &str = "exit.json";
/// Locked as long as the shim lives.
pub const LOCK: &str = "lock";
/// The container's log, a line an entry, as `node::logs` reads it.
pub const LOG: &str = "log";
pub const SOCKET: &str = "socket";
/// What the shim itself had to say.
pub const SHIM_LOG: &str = "shim.log";
/// Why the program could not be executed, written by the last stage before it.
pub const START_ERROR: &str = "start-error";
/// The container's termination message, unless its path lies in a volume.
pub const TERMINATION_MESSAGE: &str = "termination-message";

/// What a shim runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    /// The process gets a terminal.
    pub tty: bool,
    /// Standard input is open, for those who attach.
    pub stdin: bool,
    /// Standard input is closed when the first one who attached to it leaves.
    pub stdin_once: bool,
    /// The arguments that make our executable a shim, for the last stage before the program.
    pub shim_args: Vec<String>,
    /// Where the container leaves its termination message, for the node.
    pub termination_message: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// The main process, which leads its own session and group.
    pub pid: i32,
    /// When the kernel started it, in clock ticks since boot: tells it from a later process of the same id.
    pub start_time: Option<u64>,
    /// When the shim started it.
    pub at: Timestamp,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// The exit code; 128 + the signal's number for a signal.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What is worth knowing besides.
    pub cause: Cause,
    /// When it started, if it did.
    pub started_at: Option<Timestamp>,
    /// When it ended, or was found to have.
    pub finished_at: Timestamp,
}

/// Why a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// By itself, or by a signal.
    Exited,
    /// By the kernel, for want of memory.
    OutOfMemory,
    /// It never started; the text says why and what to do.
    NotStarted(String),
    /// Nobody knows: its shim is gone and has left no word.
    Lost,
}

/// The exit code of a container that did not start, as container runtimes give it.
pub const NOT_STARTED_CODE: i32 = 128;
/// The exit code of a container that is lost: that of SIGKILL.
pub const LOST_CODE: i32 = 137;

impl Exit {
    /// The end of a container that could not be started.
    pub fn not_started(why: String) -> Self {
        Self {
            code: NOT_STARTED_CODE,
            signal: None,
            cause: Cause::NotStarted(why),
            started_at: None,
            finished_at: Timestamp::now(),
        }
    }

    /// The end of a container of which nothing is left.
    pub fn lost(started_at: Option<Timestamp>) -> Self {
        Self { code: LOST_CODE, signal: None, cause: Cause::Lost, started_at, finished_at: Timestamp::now() }
    }
}

/// Reads a file of the container's folder; `None` when there is none.
pub fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> io::Result<Option<T>> {
    match fs::read(folder.join(name)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file of the container's folder, readable by its owner only: whole or not at all.
pub fn write<T: Serialize>(folder: &Path, name: &str, value: &T) -> io::Result<()> {
    write_bytes(&folder.join(name), &serde_json::to_vec(value)?, 0o600)
}

/// Puts a file in place whole, with a mode of its own.
pub fn write_bytes(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?.write_all(bytes)?;
    fs::rename(&new, path)
}

/// Makes a folder and those above it, for the owner only.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes the container's lock; `None` when a shim has it.
pub fn try_lock(folder: &Path) -> io::Result<Option<File>> {
    let file = open_lock(folder)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes the container's lock as soon as the shim that has it is gone.
pub fn lock(folder: &Path) -> io::Result<File> {
    let file = open_lock(folder)?;
    file.lock()?;
    Ok(file)
}

fn open_lock(folder: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join(LOCK))
}

/// When the kernel started a process, in clock ticks since boot; `None` when it is gone, or where there is no `/proc`.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything, so fields are counted behind it; the 22nd is the 20th from there.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_written_is_private_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let spec = Spec { argv: vec!["a".into()], ..Spec::default() };
        assert_eq!(read::<Spec>(folder.path(), SPEC).unwrap(), None);
        write(folder.path(), SPEC, &spec).unwrap();
        write(folder.path(), SPEC, &spec).unwrap();
        assert_eq!(read(folder.path(), SPEC).unwrap(), Some(spec));
        assert_eq!(fs::metadata(folder.path().join(SPEC)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_lock_is_had_once() {
        let folder = tempfile::tempdir().unwrap();
        let lock = try_lock(folder.path()).unwrap();
        assert!(lock.is_some());
        assert!(try_lock(folder.path()).unwrap().is_none());
        drop(lock);
        assert!(try_lock(folder.path()).unwrap().is_some());
    }

    #[test]
    fn a_process_has_a_start_time() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(start_time(own).is_some());
        assert_eq!(start_time(own), start_time(own));
        assert_eq!(start_time(i32::MAX), None);
    }
}
