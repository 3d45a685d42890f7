//! Runs one process, prints its output to the console, and stops it the way terraform expects.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use knoll_api::wire::Answer;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::console::{Console, Pipe};
use crate::stop::Stop;
use crate::terminal::Terminal;

/// A process to run.
#[derive(Clone)]
pub struct Program {
    pub file: PathBuf,
    /// The arguments. Every process on the machine can read them, so nothing in them is sensitive but the values of
    /// `-var`, which the user gave to terraform in this form.
    pub args: Vec<OsString>,
    pub env: BTreeMap<OsString, OsString>,
    pub folder: PathBuf,
    /// The file for standard input when there is no terminal.
    pub input: Option<PathBuf>,
    /// Which processes receive the signals to stop. Terraform stops its plugins itself; a shell does not stop its
    /// children.
    pub stops: Stops,
}

/// The receiver of a stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    Alone,
    /// The whole process group, as with a key pressed in a terminal.
    Together,
}

/// How long to wait after each signal before sending the next.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// From SIGINT to SIGTERM. Terraform finishes the resources in progress.
    pub interrupt: Duration,
    /// From SIGTERM to SIGKILL.
    pub terminate: Duration,
}

/// The result of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The exit code, or 128 + the signal's number if a signal ended the process.
    pub code: i32,
    /// The last lines of the output.
    pub message: String,
    /// The process was stopped because it reached its time limit.
    pub timed_out: bool,
}

/// The environment in which a process runs.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    pub console: &'a Console,
    /// The client's terminal. Without one the process has no input.
    pub terminal: Option<&'a Terminal>,
    pub stop: &'a Stop,
    pub grace: Grace,
    pub limit: Option<Duration>,
}

/// Runs `program` to its end.
///
/// # Errors
/// If it cannot be started.
pub async fn run(program: &Program, execution: Execution<'_>) -> io::Result<Ended> {
    match execution.terminal {
        None => run_with_pipe(program, execution).await,
        Some(terminal) => run_with_terminal(program, execution, terminal).await,
    }
}

/// The result of a process whose output was collected.
pub struct Collected {
    pub ended: Ended,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether the output was not larger than [`Answer::LARGEST`].
    pub is_whole: bool,
}

/// Runs `program` to its end without a terminal, and collects its output instead of printing it.
///
/// # Errors
/// If it cannot be started.
pub async fn collect(program: &Program, execution: Execution<'_>) -> io::Result<Collected> {
    let (mut child, streams) = spawn(program, Streams::Apart)?;
    let readers = streams.into_iter().map(|reader| {
        let reader = pipe::Receiver::from_owned_fd(reader)?.take(Answer::LARGEST / 2 + 1);
        Ok(tokio::spawn(async move {
            let (mut reader, mut bytes) = (reader, Vec::new());
            let _ = reader.read_to_end(&mut bytes).await;
            bytes
        }))
    });
    let readers = readers.collect::<io::Result<Vec<_>>>()?;
    let (status, timed_out) = wait(&mut child, program.stops, execution).await?;
    let mut outputs = Vec::new();
    for reader in readers {
        // A background process that was left behind can hold the output open.
        outputs
            .push(tokio::time::timeout(COLLECT_TIMEOUT, reader).await.map_err(io::Error::other)?.unwrap_or_default());
    }
    let is_whole = outputs.iter().all(|output| output.len() as u64 <= Answer::LARGEST / 2);
    let (stderr, stdout) = (outputs.pop().unwrap_or_default(), outputs.pop().unwrap_or_default());
    let ended = Ended { code: code(status), message: String::new(), timed_out };
    Ok(Collected { ended, stdout, stderr, is_whole })
}

/// Where the two output streams of a process go.
enum Streams {
    /// Into one pipe, so that their order is preserved.
    Together,
    /// Into a pipe each.
    Apart,
}

/// Starts a process without a terminal, and returns it with the read ends of its output.
fn spawn(program: &Program, streams: Streams) -> io::Result<(Child, Vec<OwnedFd>)> {
    let input = match &program.input {
        Some(file) => Stdio::from(std::fs::File::open(file)?),
        None => Stdio::null(),
    };
    let (reader, writer) = io::pipe()?;
    let mut readers = vec![OwnedFd::from(reader)];
    let errors = match streams {
        Streams::Together => writer.try_clone()?,
        Streams::Apart => {
            let (reader, writer) = io::pipe()?;
            readers.push(OwnedFd::from(reader));
            writer
        }
    };
    let child = tokio::process::Command::new(&program.file)
        .args(&program.args)
        .env_clear()
        .envs(&program.env)
        .current_dir(&program.folder)
        .stdin(input)
        .stdout(writer)
        .stderr(errors)
        // A process group of its own: a signal to the runner reaches terraform once, sent by the runner.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    // The command is dropped here, and with it its write ends: a pipe ends only when all of them are closed.
    Ok((child, readers))
}

async fn run_with_pipe(program: &Program, execution: Execution<'_>) -> io::Result<Ended> {
    let (child, mut readers) = spawn(program, Streams::Together)?;
    let reader = readers.pop().ok_or_else(|| io::Error::other("no output"))?;
    let same = reader.try_clone()?;
    let output = pipe::Receiver::from_owned_fd(reader)?;
    finish((child, program.stops), (output, same), execution, std::future::pending()).await
}

async fn run_with_terminal(program: &Program, execution: Execution<'_>, terminal: &Terminal) -> io::Result<Ended> {
    let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
    pty.resize(terminal.size()).map_err(io::Error::other)?;
    // The process leads its own session, and so its own process group.
    let child = pty_process::Command::new(&program.file)
        .args(&program.args)
        .env_clear()
        .envs(&program.env)
        .current_dir(&program.folder)
        .kill_on_drop(true)
        .spawn(pts)
        .map_err(io::Error::other)?;
    let same = pty.as_fd().try_clone_to_owned()?;
    let (output, mut input) = pty.into_split();
    let typing = async move {
        let mut buffer = [0; 1024];
        loop {
            tokio::select! {
                () = terminal.resized() => {
                    let _ = input.resize(terminal.size());
                }
                typed = terminal.read(&mut buffer) => match typed {
                    Ok(count) if input.write_all(&buffer[..count]).await.is_ok() => {}
                    _ => std::future::pending().await,
                },
            }
        }
    };
    finish((child, program.stops), (output, same), execution, typing).await
}

/// Waits for a process while its output is printed and `beside` runs. The output comes with its descriptor, to read the
/// remaining bytes without waiting.
async fn finish(
    (mut child, stops): (Child, Stops),
    output: (impl AsyncRead + Unpin, OwnedFd),
    execution: Execution<'_>,
    beside: impl Future<Output = ()>,
) -> io::Result<Ended> {
    let mut pipe = execution.console.pipe();
    let over = CancellationToken::new();
    let running = async {
        tokio::join!(
            async {
                let ended = wait(&mut child, stops, execution).await;
                over.cancel();
                ended
            },
            print(output, &mut pipe, &over),
        )
    };
    let (ended, ()) = tokio::select! {
        ended = running => ended,
        () = beside => return Err(io::Error::other("the terminal ended")),
    };
    let (status, timed_out) = ended?;
    Ok(Ended { code: code(status), message: pipe.finish().await, timed_out })
}

/// Waits for the end of `child`, and stops it when requested. Returns whether it reached its time limit.
async fn wait(child: &mut Child, stops: Stops, execution: Execution<'_>) -> io::Result<(ExitStatus, bool)> {
    let Execution { stop, grace, limit, .. } = execution;
    let timed_out = tokio::select! {
        status = child.wait() => return Ok((status?, false)),
        () = stop.requested() => false,
        () = after(limit) => true,
    };
    signal(child, stops, Signal::SIGINT);
    tokio::select! {
        status = child.wait() => return Ok((status?, timed_out)),
        () = tokio::time::sleep(grace.interrupt) => {}
        () = stop.urgent() => {}
    }
    signal(child, stops, Signal::SIGTERM);
    tokio::select! {
        status = child.wait() => return Ok((status?, timed_out)),
        () = tokio::time::sleep(grace.terminate) => {}
    }
    if let Some(pid) = pid(child) {
        let _ = killpg(pid, Signal::SIGKILL);
    }
    Ok((child.wait().await?, timed_out))
}

async fn after(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

fn signal(child: &Child, stops: Stops, signal: Signal) {
    let Some(pid) = pid(child) else { return };
    // The process may already have ended.
    let _ = match stops {
        Stops::Alone => kill(pid, signal),
        Stops::Together => killpg(pid, signal),
    };
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
}

/// The exit code as a shell reports it: 128 + the signal's number.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// How long the output may stay open after its process has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long collected output may stay open after its process has ended. Its end is the end of the answer.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints the output of a process to its end. A background process that was left behind can hold the output open, so
/// once the process itself is `over`, only bytes that are already in the pipe are awaited.
async fn print((mut output, same): (impl AsyncRead + Unpin, OwnedFd), pipe: &mut Pipe, over: &CancellationToken) {
    let mut buffer = vec![0; 16 * 1024];
    let late = async {
        over.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    let mut late = std::pin::pin!(late);
    loop {
        let read = tokio::select! {
            read = output.read(&mut buffer) => read,
            () = &mut late => break,
        };
        match read {
            Ok(count) if count > 0 => pipe.push(&buffer[..count]).await,
            // A terminal whose last process has exited returns an error instead of an end of file.
            _ => return,
        }
    }
    // On a busy machine the readiness of the last bytes may not have been noticed.
    while let Ok(count @ 1..) = rustix::io::read(&same, &mut buffer[..]) {
        pipe.push(&buffer[..count]).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Write;

    use super::*;
    use crate::log::Log;
    use crate::redact::Redactor;

    /// Prints the content of a pipe whose process is over, and returns the number of bytes.
    async fn printed(text: &str, held: bool) -> u64 {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        let other = held.then(|| writer.try_clone().unwrap());
        drop(writer);
        let reader = OwnedFd::from(reader);
        let same = reader.try_clone().unwrap();
        let output = pipe::Receiver::from_owned_fd(reader).unwrap();
        let console = Console::new(Log::new(0), Redactor::default());
        let over = CancellationToken::new();
        over.cancel();
        let mut pipe = console.pipe();
        print((output, same), &mut pipe, &over).await;
        pipe.finish().await;
        drop(other);
        console.offset()
    }

    #[tokio::test]
    async fn what_a_process_printed_last_is_not_lost_when_it_is_over_before_anybody_reads() {
        for _ in 0..200 {
            assert_eq!(printed("last words\n", false).await, 11);
        }
    }

    #[tokio::test]
    async fn a_process_that_was_left_behind_holds_nobody_up() {
        assert_eq!(printed("last words\n", true).await, 11);
    }
}
