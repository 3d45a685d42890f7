//! The shim: one small process beside each container, which outlives the node.
//!
//! The node starts its own executable again as a shim. The shim starts the container's process in a session of its own,
//! keeps its log, serves its streams on a unix socket in the container's folder, waits for it, and writes down how it
//! ended. A node that was killed and started again finds the folder, connects to the socket and goes on.
//!
//! # Guarantees
//! - A shim that lives holds the lock on [`files::LOCK`]; a lock that can be had means that the shim is gone.
//! - [`files::EXIT`] appears whole or not at all, after the last byte of the log, and never changes.
//! - No process of the container outlives its main process or its shim: the main process is killed by the kernel with
//!   its shim (Linux), and the shim, as the reaper of its descendants, ends whatever the main process left behind.
//! - Nothing secret is an argument: what to run is read from [`files::SPEC`], or from the node's socket for an `exec`.
//!
//! # Caveats
//! Made for Linux. Without `prctl` (FreeBSD) only the process group is ended, and only by a shim that lives.

mod client;
pub mod files;
mod launch;
mod output;
mod process;
mod program;
mod supervise;
pub mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The folder that holds a container's files is the only argument of this mode.
pub const CONTAINER: &str = "container";
/// A process beside a container; what to run arrives on the socket that is standard input.
pub const EXEC: &str = "exec";
/// The last stage before a program: ties itself to the shim's life, then becomes the program.
const LAUNCH: &str = "launch";

/// Why a shim ended without having done its work. The node finds it in `shim.log` of the container's folder.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        what: &'static str,
        /// What the system answered.
        source: std::io::Error,
    },
    /// The arguments name no mode.
    #[error("usage: shim container FOLDER | shim exec; the node starts it, it is of no use by hand")]
    Usage,
}

impl ShimError {
    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// The shim's `main`: `args` are those behind the arguments that chose the shim (`Config::shim_args`).
///
/// It must be called before the process has started a thread, and before anything costly: a container waits for it.
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let mode = args.next().unwrap_or_default();
    let result = match mode.to_str() {
        Some(LAUNCH) => return launch::launch(args),
        Some(CONTAINER) => match args.next() {
            Some(folder) => supervise::container(PathBuf::from(folder)),
            None => Err(ShimError::Usage),
        },
        Some(EXEC) => supervise::exec(),
        _ => Err(ShimError::Usage),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("knoll shim: {error}");
            ExitCode::FAILURE
        }
    }
}
