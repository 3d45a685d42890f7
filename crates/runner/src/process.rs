//! Runs one process: its output goes to the console, and it is stopped as terraform wants to be stopped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::console::{Console, Pipe};
use crate::stop::Stop;
use crate::terminal::Terminal;

/// What to run.
#[derive(Clone)]
pub struct Program {
    /// The program's file.
    pub file: PathBuf,
    /// Its arguments. Never a sensitive value: they can be seen by every process.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// The folder it runs in.
    pub folder: PathBuf,
    /// What it reads where there is no terminal.
    pub input: Option<PathBuf>,
    /// Who is asked to stop: terraform alone, which asks its plugins itself; with a shell, what it waits for as well.
    pub stops: Stops,
}

/// Who is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// The process.
    Alone,
    /// All of its group, as a key pressed at a terminal asks them.
    Together,
}

/// How long each way to stop a process may take before the next one is used.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// From SIGINT to SIGTERM: terraform waits for the resources that are under way.
    pub interrupt: Duration,
    /// From SIGTERM to SIGKILL.
    pub terminate: Duration,
}

impl Default for Grace {
    /// Together they fit into the time that a Run's pod has, with some left for the state.
    fn default() -> Self {
        Grace { interrupt: Duration::from_secs(240), terminate: Duration::from_secs(20) }
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; 128 and the signal's number when a signal ended it.
    pub code: i32,
    /// The last lines of its output, as a message.
    pub message: String,
    /// It was stopped because its time was over.
    pub timed_out: bool,
}

/// Where a process runs, and until when.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Where its output goes.
    pub console: &'a Console,
    /// The client's terminal; without one the process has no input.
    pub terminal: Option<&'a Terminal>,
    /// Says when to stop it.
    pub stop: &'a Stop,
    /// How fast it is stopped.
    pub grace: Grace,
    /// How long it may run.
    pub limit: Option<Duration>,
}

/// Runs `program` to its end.
///
/// # Errors
/// When it cannot be started.
pub async fn run(program: &Program, place: Place<'_>) -> io::Result<Ended> {
    match place.terminal {
        None => run_with_pipe(program, place).await,
        Some(terminal) => run_with_terminal(program, place, terminal).await,
    }
}

async fn run_with_pipe(program: &Program, place: Place<'_>) -> io::Result<Ended> {
    let input = match &program.input {
        Some(file) => Stdio::from(std::fs::File::open(file)?),
        None => Stdio::null(),
    };
    // One pipe for both streams, so that an error stands where it was printed.
    let (reader, writer) = io::pipe()?;
    let mut command = tokio::process::Command::new(&program.file);
    command
        .args(&program.args)
        .env_clear()
        .envs(&program.env)
        .current_dir(&program.folder)
        .stdin(input)
        .stdout(writer.try_clone()?)
        .stderr(writer)
        // A signal for the runner must reach terraform once, and through the runner.
        .process_group(0)
        .kill_on_drop(true);
    let child = command.spawn()?;
    // The command holds writing ends, and the pipe ends only when all of them are closed.
    drop(command);
    let reader = OwnedFd::from(reader);
    let same = reader.try_clone()?;
    let output = pipe::Receiver::from_owned_fd(reader)?;
    finish((child, program.stops), (output, same), place, std::future::pending()).await
}

async fn run_with_terminal(program: &Program, place: Place<'_>, terminal: &Terminal) -> io::Result<Ended> {
    let (pty, pts) = pty_process::open().map_err(io::Error::other)?;
    pty.resize(terminal.size()).map_err(io::Error::other)?;
    // The process leads a session, and so a group, of its own.
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
    finish((child, program.stops), (output, same), place, typing).await
}

/// Sees a process through to its end while its output is printed and `beside` goes on. The output comes with its file
/// for reading what is there without waiting.
async fn finish(
    (mut child, stops): (Child, Stops),
    output: (impl AsyncRead + Unpin, OwnedFd),
    place: Place<'_>,
    beside: impl Future<Output = ()>,
) -> io::Result<Ended> {
    let mut pipe = place.console.pipe();
    let over = CancellationToken::new();
    let running = async {
        tokio::join!(
            async {
                let ended = wait(&mut child, stops, place).await;
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

/// Waits for the end of `child`, and brings it about when it has to stop. Says whether its time was over.
async fn wait(child: &mut Child, stops: Stops, place: Place<'_>) -> io::Result<(ExitStatus, bool)> {
    let Place { stop, grace, limit, .. } = place;
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
    // It may have ended in the meantime, which is what we want of it.
    let _ = match stops {
        Stops::Alone => kill(pid, signal),
        Stops::Together => killpg(pid, signal),
    };
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw)
}

/// A signal's number is told as a shell tells it.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// How long an output may go on after its process has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Prints the output of a process until its end. It ends with the last process that holds it, which may be one that was
/// left behind: once the process itself is `over`, only what is on its way is waited for.
async fn print((mut output, same): (impl AsyncRead + Unpin, OwnedFd), pipe: &mut Pipe, over: &CancellationToken) {
    let mut buffer = vec![0; 16 * 1024];
    let late = async {
        over.cancelled().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    let mut late = std::pin::pin!(late);
    loop {
        let read = tokio::select! {
            read = output.read(&mut buffer) => read,
            () = &mut late => break,
        };
        match read {
            Ok(count) if count > 0 => pipe.push(&buffer[..count]).await,
            // A terminal whose last process is gone answers with an error instead of an end.
            _ => return,
        }
    }
    // On a busy machine, what is there may not have been noticed.
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

    /// Prints what is in a pipe whose process is over, and says how much came.
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
