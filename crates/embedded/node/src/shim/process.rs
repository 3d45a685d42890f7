//! A container's main process and everything it leaves behind.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::files::{self, Cause, Exit, Spec, Started};
use super::wire::Size;
use super::{launch, program};

/// How long processes that have been killed may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

pub struct Process {
    child: Child,
    pid: Pid,
    /// The number of out-of-memory kills of the machine when it started.
    oom_kills: Option<u64>,
    /// It was killed on request.
    killed: bool,
    pub started: Started,
}

/// The shim's ends of the process's streams.
pub struct Streams {
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Output; of a terminal, everything.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// The terminal, to be resized.
    pub terminal: Option<Terminal>,
}

impl Process {
    /// Starts what the spec says; otherwise a sentence that says why not.
    pub fn start(spec: &Spec, start_error: Option<&Path>) -> Result<(Self, Streams), String> {
        let word = spec.argv.first().ok_or(
            "the container has no `command`, and the embedded node has no image that could bring one: write the program to run as `command`",
        )?;
        if !spec.cwd.is_dir() {
            return Err(format!("the working directory `{}` does not exist on this machine", spec.cwd.display()));
        }
        let path = spec.env.get("PATH").map_or("", String::as_str);
        let program = program::find(word, path, &spec.cwd)?;
        let cannot = |error: io::Error| format!("`{}` cannot be started: {error}", program.display());
        let mut command = launch::command(spec, &program, start_error).map_err(cannot)?;
        // Whatever the process leaves behind becomes ours, to be found and ended.
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_child_subreaper(true).map_err(|errno| cannot(errno.into()))?;

        let terminal = if spec.tty {
            let (terminal, side) = Terminal::open().map_err(cannot)?;
            command.stdin(side.try_clone().map_err(cannot)?);
            command.stdout(side.try_clone().map_err(cannot)?);
            command.stderr(side);
            Some(terminal)
        } else {
            command.stdin(if spec.stdin { Stdio::piped() } else { Stdio::null() });
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            None
        };
        let oom_kills = oom_kills();
        let at = Timestamp::now();
        let mut child = command.spawn().map_err(cannot)?;
        // The command still holds the process's side of the terminal, which would keep it open for ever.
        drop(command);
        let id = i32::try_from(child.id()).map_err(|error| cannot(io::Error::other(error)))?;
        let streams = Streams::of(&mut child, terminal, spec.stdin).map_err(cannot)?;
        let started = Started { pid: id, start_time: files::start_time(id), at };
        Ok((Self { child, pid: Pid::from_raw(id), oom_kills, killed: false, started }, streams))
    }

    /// Sends the main process a signal; SIGKILL goes to everything.
    pub fn signal(&mut self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else {
            return;
        };
        // The process is not reaped before `ended`, so its id cannot mean another one. An error says that it is gone.
        if signal == Signal::SIGKILL {
            self.killed = true;
            let _ = killpg(self.pid, signal);
        }
        let _ = kill(self.pid, signal);
    }

    /// How the main process ended, when it has. Its id stays taken until [`Process::clean_up`].
    pub fn ended(&self) -> io::Result<Option<Exit>> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let (code, signal) = match waitid(Id::Pid(self.pid), flags)? {
            WaitStatus::Exited(_, code) => (code, None),
            WaitStatus::Signaled(_, signal, _) => (128 + signal as i32, Some(signal)),
            _ => return Ok(None),
        };
        let out_of_memory = signal == Some(Signal::SIGKILL) && !self.killed && oom_kills() > self.oom_kills;
        Ok(Some(Exit {
            code,
            signal: signal.map(|signal| signal as i32),
            cause: if out_of_memory { Cause::OutOfMemory } else { Cause::Exited },
            started_at: Some(self.started.at),
            finished_at: Timestamp::now(),
        }))
    }

    /// Ends what the main process left behind: its group, and every descendant that made a group of its own.
    pub async fn clean_up(&mut self, children: &mut tokio::signal::unix::Signal) {
        let _ = killpg(self.pid, Signal::SIGKILL);
        let _ = self.child.try_wait();
        let deadline = tokio::time::Instant::now() + KILL_PATIENCE;
        while kill_children() {
            if tokio::time::timeout_at(deadline, children.recv()).await.is_err() {
                break;
            }
        }
    }
}

/// Kills and reaps our children; true while there are any. A killed child's own children become ours in turn.
fn kill_children() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => break,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return false;
    };
    for thread in threads.flatten() {
        let list = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in list.split_ascii_whitespace().filter_map(|id| id.parse().ok()) {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
    }
    true
}

/// How many processes the kernel has killed for want of memory since boot.
fn oom_kills() -> Option<u64> {
    let counters = std::fs::read_to_string("/proc/vmstat").ok()?;
    counters.lines().find_map(|line| line.strip_prefix("oom_kill "))?.parse().ok()
}

impl Streams {
    fn of(child: &mut Child, terminal: Option<Terminal>, stdin: bool) -> io::Result<Self> {
        if let Some(terminal) = terminal {
            return Ok(Self {
                stdin: stdin.then(|| Box::new(terminal.clone()) as _),
                stdout: Box::new(terminal.clone()),
                stderr: None,
                terminal: Some(terminal),
            });
        }
        let missing = || io::Error::other("a pipe is missing");
        let stdin: Option<Box<dyn AsyncWrite + Send + Unpin>> = match child.stdin.take() {
            Some(stdin) => Some(Box::new(ChildStdin::from_std(stdin)?)),
            None => None,
        };
        Ok(Self {
            stdin,
            stdout: Box::new(ChildStdout::from_std(child.stdout.take().ok_or_else(missing)?)?),
            stderr: Some(Box::new(ChildStderr::from_std(child.stderr.take().ok_or_else(missing)?)?)),
            terminal: None,
        })
    }
}

/// The shim's side of a terminal: read, written and resized from different tasks, one of each.
#[derive(Clone)]
pub struct Terminal(Arc<Mutex<pty_process::Pty>>);

impl Terminal {
    /// A terminal of the usual size, and its other side for the process.
    fn open() -> io::Result<(Self, OwnedFd)> {
        let (terminal, side) = pty_process::open().map_err(io::Error::other)?;
        let terminal = Self(Arc::new(Mutex::new(terminal)));
        terminal.resize(Size { columns: 80, rows: 24 });
        Ok((terminal, side.as_fd().try_clone_to_owned()?))
    }

    /// Gives it another size. One that is refused leaves the old.
    pub fn resize(&self, size: Size) {
        let _ = self.lock().resize(pty_process::Size::new(size.rows, size.columns));
    }

    fn lock(&self) -> MutexGuard<'_, pty_process::Pty> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut *self.lock()).poll_read(cx, buf) {
            // Linux says EIO when the last process that had the terminal is gone: the end of the file.
            Poll::Ready(Err(error)) if error.raw_os_error() == Some(nix::errno::Errno::EIO as i32) => {
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_shutdown(cx)
    }
}
