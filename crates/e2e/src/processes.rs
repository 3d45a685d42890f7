//! The processes of pods, where the cluster's node is this machine.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The pause between two looks at something without events.
const PAUSE: Duration = Duration::from_millis(100);

/// A process of a pod, wherever its containers run: its environment names the pod's UID, or it is in another world of
/// processes and files than this one and its mounts name it. (The mounts of a node's own processes name the pods of all,
/// and so do those of a container that is just being made, which is not yet where its files are.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub words: Vec<String>,
}

impl Process {
    fn of(pid: i32) -> Option<Self> {
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words);
        let words = words.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Some(Process { pid, words })
    }

    #[must_use]
    pub fn is_terraform(&self) -> bool {
        self.words.first().is_some_and(|word| word.ends_with("terraform") || word.ends_with("tofu"))
    }

    #[must_use]
    pub fn is_runner(&self) -> bool {
        self.words.iter().any(|word| word == "runner") && !self.is_shim()
    }

    /// Whether the process sleeps for an hour; the process that holds a pod's namespaces may sleep too.
    #[must_use]
    pub fn is_sleep(&self) -> bool {
        self.words.iter().take(2).any(|word| word.ends_with("sleep")) && self.words.iter().any(|word| word == "3600")
    }

    /// Whether the process holds a container for the node.
    fn is_shim(&self) -> bool {
        self.words.iter().any(|word| word == "shim" || word.ends_with("containerd-shim-runc-v2"))
    }

    pub fn freeze(&self) {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGCONT);
    }

    /// Whether every thread of the process has stopped, or ended.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let state = |thread: fs::DirEntry| after_name(&thread.path())?.chars().next();
        threads.map(state).all(|state| matches!(state, None | Some('T' | 'Z' | 'X')))
    }

    pub fn kill(&self) {
        // The process may already have ended.
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
    }

    fn parent(&self) -> Option<Process> {
        let stat = after_name(Path::new(&format!("/proc/{}", self.pid)))?;
        Process::of(stat.split_whitespace().nth(1)?.parse().ok()?)
    }
}

/// What follows the name of a process or thread in its `stat`: the name is in parentheses and can have any character.
fn after_name(proc: &Path) -> Option<String> {
    let stat = fs::read_to_string(proc.join("stat")).ok()?;
    stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

/// The processes of a pod.
///
/// # Panics
/// If the pod has no UID, or this machine no `/proc`.
#[must_use]
pub fn processes(pod: &Pod) -> Vec<Process> {
    let uid = pod.uid().unwrap();
    let names_it = |file: PathBuf| fs::read(file).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&uid));
    let place = |proc: &Path| {
        let root = fs::metadata(proc.join("root")).map(|root| (root.dev(), root.ino())).ok();
        (fs::read_link(proc.join("ns/pid")).ok(), root)
    };
    let own = place(Path::new("/proc/self"));
    let inside = |proc: &Path| {
        let (processes, root) = place(proc);
        processes != own.0 && root.is_some() && root != own.1
    };
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_its = |process: &Process| {
        let proc = PathBuf::from(format!("/proc/{}", process.pid));
        process.words.iter().any(|word| word.contains(&uid))
            || names_it(proc.join("environ"))
            || inside(&proc) && names_it(proc.join("mountinfo"))
    };
    numbers.filter_map(Process::of).filter(is_its).collect()
}

/// The processes that hold the containers of a pod for its node: containers outlive their end, and while they are frozen
/// the node can neither signal a container nor hear of it.
#[must_use]
pub fn shims(pod: &Pod) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    for shim in processes(pod).iter().filter_map(Process::parent).filter(Process::is_shim) {
        if !found.contains(&shim) {
            found.push(shim);
        }
    }
    found
}

/// Waits until something is so that has no events.
///
/// # Panics
/// If it is not so in time.
pub async fn until(what: &str, time: Duration, is_so: impl Fn() -> bool) {
    let looks = async {
        while !is_so() {
            tokio::time::sleep(PAUSE).await;
        }
    };
    assert!(tokio::time::timeout(time, looks).await.is_ok(), "{what}: not in {time:?}");
}
