//! A shim's life, from its start to the container's end.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::{self, Shared};
use super::files::{self, Exit, NOT_STARTED_CODE, Spec};
use super::output::{Output, Stream, pump};
use super::process::{Process, Streams};
use super::wire::{Attach, Frame};
use super::{ShimError, client::Input};

/// How long output may go on after the last process is gone; longer only when one has got away.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);
/// How long clients may take to read the last of it.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);

/// Runs the container of a folder.
pub fn container(folder: PathBuf) -> Result<(), ShimError> {
    detach();
    // A socket's address may not be longer than 107 bytes; a relative one never is.
    std::env::set_current_dir(&folder).map_err(ShimError::io("enter the container's folder"))?;
    // One that is there still was not told to start, and is on its way out.
    let _lock = files::lock(Path::new(".")).map_err(ShimError::io("lock the container's folder"))?;
    if Path::new(files::EXIT).exists() {
        return Ok(());
    }
    runtime()?.block_on(run_container(&folder))
}

/// Runs one process beside a container, for the node at standard input.
pub fn exec() -> Result<(), ShimError> {
    detach();
    runtime()?.block_on(run_exec())
}

/// Leaves the node's session, so that a key pressed at its terminal does not reach us.
fn detach() {
    // The only failure is that we lead a group already, then we are as far away as we can be.
    let _ = nix::unistd::setsid();
}

fn runtime() -> Result<tokio::runtime::Runtime, ShimError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ShimError::io("start the runtime"))
}

/// The socket to the node, which is our standard input.
fn node() -> Result<UnixStream, ShimError> {
    let open = || {
        let stream = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    };
    open().map_err(ShimError::io("use the socket to the node"))
}

async fn run_container(folder: &Path) -> Result<(), ShimError> {
    let here = Path::new(".");
    let mut signals = Signals::new()?;
    let _ = fs::remove_file(files::SOCKET);
    let listener = UnixListener::bind(files::SOCKET).map_err(ShimError::io("listen in the container's folder"))?;
    let (mut from_node, mut to_node) = node()?.into_split();

    let told = Frame::read(&mut from_node).await;
    if !matches!(told, Ok(Some(Frame::Start))) {
        // The node is gone, or the pod is: without its spec the container counts as never started.
        let _ = fs::remove_file(files::SPEC);
        return Ok(());
    }
    let spec: Spec = files::read(here, files::SPEC)
        .and_then(|spec| spec.ok_or_else(|| io::ErrorKind::NotFound.into()))
        .map_err(ShimError::io("read the container's spec"))?;

    let start_error = folder.join(files::START_ERROR);
    let (process, streams) = match Process::start(&spec, Some(&start_error)) {
        Ok(started) => started,
        Err(why) => {
            let exit = Exit::not_started(why);
            files::write(here, files::EXIT, &exit).map_err(ShimError::io("write down how the container ended"))?;
            let _ = Frame::Exited(exit).write(&mut to_node).await;
            return Ok(());
        }
    };
    files::write(here, files::STARTED, &process.started).map_err(ShimError::io("write down what was started"))?;
    // The node may be gone by now; it will find the file.
    let _ = Frame::Started(process.started.clone()).write(&mut to_node).await;

    let mut running = Running::new(process, streams, &spec, Some(Path::new(files::LOG)))?;
    let mut clients = JoinSet::new();
    clients.spawn(client::watching(from_node, to_node, running.shared.clone()));
    let mut exit = loop {
        tokio::select! {
            exit = running.process_end(&mut signals) => break exit?,
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                clients.spawn(client::serve(stream, running.shared.clone()));
            },
            Some(_) = clients.join_next() => {}
        }
    };
    running.drain(&mut signals).await;
    if exit.code == NOT_STARTED_CODE
        && let Ok(why) = fs::read_to_string(files::START_ERROR)
    {
        exit = Exit::not_started(why);
    }
    files::write(here, files::EXIT, &exit).map_err(ShimError::io("write down how the container ended"))?;
    running.finish(exit, clients).await;
    Ok(())
}

async fn run_exec() -> Result<(), ShimError> {
    let mut signals = Signals::new()?;
    let (mut from_node, mut to_node) = node()?.into_split();
    let Ok(Some(Frame::Exec(spec))) = Frame::read(&mut from_node).await else {
        return Ok(());
    };
    let (process, streams) = match Process::start(&spec, None) {
        Ok(started) => started,
        Err(why) => {
            let _ = Frame::Exited(Exit::not_started(why)).write(&mut to_node).await;
            return Ok(());
        }
    };
    let mut running = Running::new(process, streams, &spec, None)?;
    let wants = Attach { stdin: spec.stdin, stdout: true, stderr: true };
    let mut clients = JoinSet::new();
    let kill = running.shared.signals.clone();
    let attached = client::attached(from_node, to_node, wants, running.shared.clone());
    let mut attached = Box::pin(attached);
    let exit = tokio::select! {
        // The streams must know their client before the first output, so it comes first.
        biased;
        _ = &mut attached => {
            // Nobody is there any more to run it for.
            let _ = kill.send(nix::sys::signal::Signal::SIGKILL as i32);
            running.process_end(&mut signals).await?
        }
        exit = running.process_end(&mut signals) => {
            clients.spawn(attached);
            exit?
        }
    };
    running.drain(&mut signals).await;
    running.finish(exit, clients).await;
    Ok(())
}

/// The signals that a shim hears.
struct Signals {
    child: Signal,
    terminate: Signal,
    /// Heard only in order not to die of them.
    _ignored: [Signal; 2],
}

impl Signals {
    fn new() -> Result<Self, ShimError> {
        let open = |kind| signal(kind).map_err(ShimError::io("listen to signals"));
        Ok(Self {
            child: open(SignalKind::child())?,
            terminate: open(SignalKind::terminate())?,
            _ignored: [open(SignalKind::hangup())?, open(SignalKind::interrupt())?],
        })
    }
}

/// A process with its streams served.
struct Running {
    process: Process,
    output: Arc<Mutex<Output>>,
    pumps: JoinSet<()>,
    signals: mpsc::UnboundedReceiver<i32>,
    end: watch::Sender<Option<Exit>>,
    shared: Shared,
}

impl Running {
    fn new(process: Process, streams: Streams, spec: &Spec, log: Option<&Path>) -> Result<Self, ShimError> {
        let output = Output::new(log).map_err(ShimError::io("open the log"))?;
        let mut pumps = JoinSet::new();
        pumps.spawn(pump(streams.stdout, Stream::Stdout, output.clone()));
        if let Some(stderr) = streams.stderr {
            pumps.spawn(pump(stderr, Stream::Stderr, output.clone()));
        }
        let (input, inputs) = mpsc::channel::<Input>(1);
        tokio::spawn(client::feed(streams.stdin, inputs));
        let (sender, signals) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(None);
        let shared = Shared {
            started: process.started.clone(),
            output: output.clone(),
            input,
            terminal: streams.terminal,
            signals: sender,
            end: ended,
            stdin_once: spec.stdin_once,
        };
        Ok(Self { process, output, pumps, signals, end, shared })
    }

    /// Waits for the main process. Safe to cancel.
    async fn process_end(&mut self, signals: &mut Signals) -> Result<Exit, ShimError> {
        loop {
            if let Some(exit) = self.process.ended().map_err(ShimError::io("wait for the process"))? {
                return Ok(exit);
            }
            tokio::select! {
                _ = signals.child.recv() => {}
                _ = signals.terminate.recv() => self.process.signal(nix::sys::signal::Signal::SIGTERM as i32),
                Some(number) = self.signals.recv() => self.process.signal(number),
            }
        }
    }

    /// Ends what is left of the container and takes in the last of its output.
    async fn drain(&mut self, signals: &mut Signals) {
        self.process.clean_up(&mut signals.child).await;
        let all = async { while self.pumps.join_next().await.is_some() {} };
        let _ = timeout(OUTPUT_PATIENCE, all).await;
        self.output.lock().await.close();
    }

    /// Tells everyone, and gives them time to hear it.
    async fn finish(self, exit: Exit, mut clients: JoinSet<io::Result<()>>) {
        self.end.send_replace(Some(exit));
        let all = async { while clients.join_next().await.is_some() {} };
        let _ = timeout(CLIENT_PATIENCE, all).await;
    }
}
