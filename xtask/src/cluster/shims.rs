//! The containers of a node, found without asking anybody: every pod has a shim process that names its containerd, and
//! the containers' first processes are the shim's children.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Ends every container whose shim belongs to the containerd of this socket, and then the shims. Answers how many shims
/// there were.
///
/// While containerd still runs it notes the containers' ends, and the shims go by themselves.
pub fn end_all(socket: &Path, containerd_runs: bool) -> anyhow::Result<usize> {
    let found = shims(socket).len();
    let begun = Instant::now();
    let patience = if containerd_runs { Duration::from_secs(10) } else { Duration::ZERO };
    loop {
        let shims = shims(socket);
        if shims.is_empty() {
            return Ok(found);
        }
        for shim in &shims {
            for child in children(*shim) {
                end(child);
            }
            if begun.elapsed() >= patience {
                end(*shim);
            }
        }
        if begun.elapsed() > patience + Duration::from_secs(10) {
            bail!("the shims of some pods do not end: processes {shims:?}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn end(pid: i32) {
    // A process that has ended in this moment is no fault, and one that cannot be ended is noticed by the caller.
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

fn shims(socket: &Path) -> Vec<i32> {
    let socket = socket.to_string_lossy();
    processes()
        .filter(|pid| command_is_shim(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default(), &socket))
        .collect()
}

/// Whether a command line, its words ended by NUL, is that of a shim of the containerd at `socket`.
fn command_is_shim(command: &[u8], socket: &str) -> bool {
    let text = String::from_utf8_lossy(command);
    let words: Vec<&str> = text.split('\0').collect();
    let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    program.starts_with("containerd-shim") && words.windows(2).any(|pair| pair == ["-address", socket])
}

fn children(parent: i32) -> Vec<i32> {
    processes().filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shims_of_this_containerd_count() {
        let ours = b"/usr/bin/containerd-shim-runc-v2\0-namespace\0k8s.io\0-id\0abc\0-address\0/c/containerd.sock\0";
        assert!(command_is_shim(ours, "/c/containerd.sock"));
        assert!(!command_is_shim(ours, "/run/containerd/containerd.sock"));
        assert!(!command_is_shim(b"vi\0-address\0/c/containerd.sock\0", "/c/containerd.sock"));
        assert!(!command_is_shim(b"", "/c/containerd.sock"));
    }
}
