//! The node's end of a shim: starting one, finding one again, hearing how its container goes.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::shim::files::{self, Exit, Started};
use super::shim::wire::Frame;
use super::shim::{CONTAINER, EXEC};

/// The executable that is a shim when told so.
#[derive(Clone, Debug)]
pub struct Executable {
    pub path: PathBuf,
    /// The arguments that make it a shim.
    pub args: Vec<String>,
}

/// What becomes of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Started(Started),
    Exited(Exit),
    /// Its shim is gone and had not been told to start it.
    Abandoned,
}

/// A container that was found in its folder.
pub enum Recovered {
    /// It was not told to start.
    New,
    /// It has ended, as its folder tells.
    Ended,
    /// Its shim lives; events will tell more.
    Alive(Shim),
}

/// A shim that lives, or did a moment ago. Dropped, it is left alone; one that was not told to start then goes away.
#[derive(Clone, Debug)]
pub struct Shim {
    frames: mpsc::UnboundedSender<Frame>,
}

impl Shim {
    /// Starts a shim in an instance's folder. It does nothing until [`Shim::start`].
    pub fn spawn(
        executable: &Executable,
        folder: &Path,
        events: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        files::create_folder(folder)?;
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(folder.join(files::SHIM_LOG))?;
        let (mut child, stream) = spawn(executable, &[CONTAINER.as_ref(), folder.as_os_str()], log)?;
        let shim = Self::attend(stream, folder, events);
        tokio::spawn(async move { child.wait().await });
        Ok(shim)
    }

    /// Looks into an instance's folder for what became of it.
    pub async fn find(folder: &Path, events: impl Fn(Event) + Send + Sync + 'static) -> io::Result<Recovered> {
        if folder.join(files::EXIT).exists() {
            return Ok(Recovered::Ended);
        }
        if !folder.join(files::SPEC).exists() {
            return Ok(Recovered::New);
        }
        match connect(folder, &Frame::Watch).await {
            Ok(stream) => Ok(Recovered::Alive(Self::attend(stream, folder, events))),
            // Nobody listens: the shim is gone, or about to.
            Err(_) => Ok(match settle(folder).await? {
                Some(_) => Recovered::Ended,
                None => Recovered::New,
            }),
        }
    }

    /// Tells the shim that the spec is in its file.
    pub fn start(&self) {
        self.send(Frame::Start);
    }

    /// Sends the container a signal. One that has not been told to start never will be.
    pub fn signal(&self, signal: Signal) {
        self.send(Frame::Signal(signal as i32));
    }

    fn send(&self, frame: Frame) {
        // A shim that is gone is reported by its connection.
        let _ = self.frames.send(frame);
    }

    fn attend(stream: UnixStream, folder: &Path, events: impl Fn(Event) + Send + Sync + 'static) -> Self {
        let (frames, mut outgoing) = mpsc::unbounded_channel::<Frame>();
        let (mut from, mut to) = stream.into_split();
        let folder = folder.to_path_buf();
        tokio::spawn(async move {
            let reading = async {
                loop {
                    match Frame::read(&mut from).await {
                        Ok(Some(Frame::Started(started))) => events(Event::Started(started)),
                        Ok(Some(Frame::Exited(exit))) => return Some(exit),
                        Ok(Some(_)) => {}
                        Ok(None) | Err(_) => return None,
                    }
                }
            };
            let writing = async {
                while let Some(frame) = outgoing.recv().await {
                    if frame.write(&mut to).await.is_err() {
                        // The reader finds out why.
                        std::future::pending::<()>().await;
                    }
                }
            };
            let told = tokio::select! {
                told = reading => told,
                // Nobody is interested any more.
                () = writing => return,
            };
            let exit = match told {
                Some(exit) => Ok(Some(exit)),
                None => settle(&folder).await,
            };
            match exit {
                Ok(Some(exit)) => events(Event::Exited(exit)),
                Ok(None) => events(Event::Abandoned),
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), %error, "a container's end cannot be read");
                    events(Event::Exited(Exit::lost(None)));
                }
            }
        });
        Self { frames }
    }
}

/// Starts the shim of a process beside a container.
pub fn spawn_exec(executable: &Executable) -> io::Result<(Child, UnixStream)> {
    spawn(executable, &[EXEC.as_ref()], Stdio::null())
}

fn spawn(executable: &Executable, args: &[&std::ffi::OsStr], log: impl Into<Stdio>) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = Command::new(&executable.path)
        .args(&executable.args)
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    Ok((child, UnixStream::from_std(ours)?))
}

/// Connects to the shim of an instance and says what for.
pub async fn connect(folder: &Path, first: &Frame) -> io::Result<UnixStream> {
    // A socket's address may not be longer than 107 bytes; a path through an open folder is short.
    let open = fs::File::open(folder)?;
    let address = if cfg!(target_os = "linux") {
        PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open))).join(files::SOCKET)
    } else {
        folder.join(files::SOCKET)
    };
    let mut stream = UnixStream::connect(address).await?;
    first.write(&mut stream).await?;
    Ok(stream)
}

/// How a container ended whose shim is gone or goes: what it left, or that it is lost. `None`: it had never been told to start.
async fn settle(folder: &Path) -> io::Result<Option<Exit>> {
    let folder = folder.to_path_buf();
    tokio::task::spawn_blocking(move || settle_blocking(&folder)).await.map_err(io::Error::other)?
}

fn settle_blocking(folder: &Path) -> io::Result<Option<Exit>> {
    // Had when the shim is gone; from then on no other can take the container.
    let _lock = files::lock(folder)?;
    if let Some(exit) = files::read(folder, files::EXIT)? {
        return Ok(Some(exit));
    }
    let started: Option<Started> = files::read(folder, files::STARTED)?;
    if !folder.join(files::SPEC).exists() && started.is_none() {
        return Ok(None);
    }
    let said = fs::read_to_string(folder.join(files::SHIM_LOG)).unwrap_or_default();
    let exit = match &started {
        None if !said.trim().is_empty() => Exit::not_started(said.trim().to_owned()),
        started => Exit::lost(started.as_ref().map(|started| started.at)),
    };
    if let Some(started) = started {
        kill_rest(&started);
    }
    files::write(folder, files::EXIT, &exit)?;
    Ok(Some(exit))
}

/// Ends what a lost container left of its session, unless the id means somebody else by now.
fn kill_rest(started: &Started) {
    let now = files::start_time(started.pid);
    if now.is_some() && now != started.start_time {
        return;
    }
    let _ = killpg(Pid::from_raw(started.pid), Signal::SIGKILL);
    // Children with a process group of their own are in its session still.
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if session(pid) == Some(started.pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn session(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(3)?.parse().ok()
}
