//! Runs hooks with their own image. Their container waits at a gate, a directory in the pod's shared volume.
//!
//! A hook's container creates `NAME.here` when it has started. The runner creates `NAME.go` when it is the hook's turn.
//! The container then runs the script, appends its output to `NAME.out`, and writes its exit code to `NAME.exit`. The
//! runner creates `NAME.stop` to stop the hook, and `closed` at the end of the run, so that containers whose turn never
//! came exit too.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use knoll_api::wire::env;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use crate::process::{Ended, Execution, Program};
use crate::watch::FolderWatch;

/// The exit code of a process that SIGTERM ended: 128 + 15.
const TERMINATED: i32 = 143;
const CLOSED: &str = "closed";

/// The content of `NAME.go`: the program that the container runs.
#[derive(Serialize, Deserialize)]
struct Turn {
    program: PathBuf,
    args: Vec<String>,
    folder: PathBuf,
    /// Variables added to the container's own environment.
    env: BTreeMap<String, String>,
}

/// Lets the container of the hook `name` run `program`, and waits for its end. `will_not_come` resolves with the reason
/// if the container cannot start; it is polled only until the container is there.
///
/// # Errors
/// If the gate cannot be used, or the container cannot start.
pub async fn open(
    work_dir: &Path,
    name: &str,
    program: &Program,
    env: BTreeMap<String, String>,
    execution: Execution<'_>,
    will_not_come: impl Future<Output = String>,
) -> io::Result<Ended> {
    let gate = folder(work_dir)?;
    let watch = FolderWatch::new(&gate)?;
    let turn = Turn {
        program: program.file.clone(),
        args: program.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        folder: program.folder.clone(),
        env,
    };
    write(&gate, &format!("{name}.go"), &serde_json::to_vec(&turn)?)?;
    let (out, exit) = (gate.join(format!("{name}.out")), gate.join(format!("{name}.exit")));
    let mut pipe = execution.console.pipe();
    let mut printed = 0;
    let mut asked_to_stop = false;
    let mut timed_out = false;
    let limit = async {
        match execution.limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let mut limit = std::pin::pin!(limit);
    let mut will_not_come = std::pin::pin!(will_not_come);
    let here = gate.join(format!("{name}.here"));
    loop {
        // The exit file is checked first, because all output is written before it.
        let ended = fs::read_to_string(&exit).ok();
        let piece = read_from(&out, printed)?;
        printed += piece.len() as u64;
        pipe.push(&piece).await;
        if let Some(code) = ended {
            let code = code.trim().parse().unwrap_or(1);
            return Ok(Ended { code, message: pipe.finish().await, timed_out });
        }
        if (asked_to_stop || timed_out) && !here.exists() {
            // The container has not started, so there is nothing to stop.
            return Ok(Ended { code: TERMINATED, message: pipe.finish().await, timed_out });
        }
        tokio::select! {
            changed = watch.changed(|file| file.to_string_lossy().starts_with(name)) => changed?,
            why = &mut will_not_come, if !here.exists() => return Err(io::Error::other(why)),
            () = execution.stop.requested(), if !asked_to_stop => {
                asked_to_stop = true;
                write(&gate, &format!("{name}.stop"), b"")?;
            }
            () = &mut limit, if !timed_out => {
                timed_out = true;
                write(&gate, &format!("{name}.stop"), b"")?;
            }
        }
    }
}

/// Closes the gate: no other hook will run.
pub fn close(work_dir: &Path) {
    let closed = folder(work_dir).and_then(|gate| write(&gate, CLOSED, b""));
    if let Err(error) = closed {
        tracing::debug!(%error, "cannot close the gate: containers of hooks may wait until the pod ends");
    }
}

/// The main function of a hook's container: waits for the turn of the hook `name`, and runs it.
pub async fn hook(name: &str) -> ExitCode {
    let Some(work_dir) = std::env::var_os(env::WORK_DIR) else {
        eprintln!("knoll: `{}` is not set; `knoll runner hook` only runs inside a Run's pod", env::WORK_DIR);
        return ExitCode::FAILURE;
    };
    match wait_and_run(Path::new(&work_dir), name).await {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("knoll: cannot run hook `{name}`: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn wait_and_run(work_dir: &Path, name: &str) -> io::Result<i32> {
    let gate = folder(work_dir)?;
    let watch = FolderWatch::new(&gate)?;
    let mut terminate = signal(SignalKind::terminate())?;
    write(&gate, &format!("{name}.here"), b"")?;
    let (go, stop) = (gate.join(format!("{name}.go")), gate.join(format!("{name}.stop")));
    let turn: Turn = loop {
        match fs::read(&go) {
            Ok(turn) => break serde_json::from_slice(&turn)?,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if gate.join(CLOSED).exists() => return Ok(0),
            Err(_) => {}
        }
        tokio::select! {
            changed = watch.changed(|_| true) => changed?,
            _ = terminate.recv() => return Ok(0),
        }
    };
    let mut out = OpenOptions::new().create(true).append(true).mode(0o644).open(gate.join(format!("{name}.out")))?;
    let (reader, writer) = io::pipe()?;
    let mut command = tokio::process::Command::new(&turn.program);
    command.args(&turn.args).envs(&turn.env).current_dir(&turn.folder).stdin(Stdio::null());
    command.stdout(writer.try_clone()?).stderr(writer).kill_on_drop(true);
    let spawned = command.spawn();
    drop(command);
    let code = match spawned {
        Err(error) => {
            writeln!(out, "cannot run `{}`: {error}", turn.program.display())?;
            127
        }
        Ok(mut child) => {
            let mut output = pipe::Receiver::from_owned_fd(reader.into())?;
            let mut buffer = vec![0; 16 * 1024];
            loop {
                // Checked in each iteration, because the request may be older than the process.
                if stop.exists() {
                    interrupt(child.id());
                }
                tokio::select! {
                    read = output.read(&mut buffer) => match read {
                        Ok(count) if count > 0 => {
                            // The output does not go to this container's own log, because only the runner knows which
                            // values are sensitive.
                            out.write_all(&buffer[..count])?;
                        }
                        _ => break crate::process::code(child.wait().await?),
                    },
                    changed = watch.changed(|_| true) => changed?,
                    _ = terminate.recv() => interrupt(child.id()),
                }
            }
        }
    };
    write(&gate, &format!("{name}.exit"), code.to_string().as_bytes())?;
    Ok(code)
}

fn interrupt(id: Option<u32>) {
    if let Some(id) = id.and_then(|id| i32::try_from(id).ok()) {
        // The process may already have ended.
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
    }
}

/// The directory of the gate. Containers of other users write to it as well.
fn folder(work_dir: &Path) -> io::Result<PathBuf> {
    let gate = work_dir.join("gate");
    if !gate.exists() {
        fs::create_dir_all(&gate)?;
        // Another container, with another user, may have created it first.
        let _ = fs::set_permissions(&gate, fs::Permissions::from_mode(0o777));
    }
    Ok(gate)
}

/// Writes a file to the gate atomically.
fn write(gate: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = gate.join(format!(".{name}"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&temporary)?;
    file.write_all(content)?;
    fs::rename(temporary, gate.join(name))
}

/// The bytes of a file from `start` on, or none if it does not exist yet.
fn read_from(path: &Path, start: u64) -> io::Result<Vec<u8>> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(start))?;
    let mut piece = Vec::new();
    file.read_to_end(&mut piece)?;
    Ok(piece)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use crate::console::Console;
    use crate::log::Log;
    use crate::process::{Grace, Stops};
    use crate::redact::Redactor;
    use crate::stop::{Reason, Stop};

    use super::*;

    const GRACE: Grace = Grace { interrupt: Duration::from_secs(240), terminate: Duration::from_secs(20) };

    fn shell(script: &str, folder: &Path) -> Program {
        Program {
            file: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: BTreeMap::new(),
            folder: folder.to_owned(),
            input: None,
            stops: Stops::Alone,
        }
    }

    async fn run(script: &str, stop: &Stop, limit: Option<Duration>) -> (Ended, i32) {
        let home = tempfile::tempdir().unwrap();
        let console = Console::new(Log::new(0), Redactor::default());
        let execution = Execution { console: &console, terminal: None, stop, grace: GRACE, limit };
        let env = BTreeMap::from([("WHO".to_owned(), "world".to_owned())]);
        let program = shell(script, home.path());
        let both = async {
            tokio::join!(
                open(home.path(), "h", &program, env, execution, std::future::pending()),
                wait_and_run(home.path(), "h")
            )
        };
        let (ended, code) = tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
        (ended.unwrap(), code.unwrap())
    }

    #[tokio::test]
    async fn a_hook_runs_when_it_is_its_turn_and_its_end_is_told() {
        let (ended, code) = run("echo hello $WHO; exit 3", &Stop::default(), None).await;
        assert_eq!((ended.code, code), (3, 3));
        assert_eq!(ended.message, "hello world");
        assert!(!ended.timed_out);
    }

    #[tokio::test]
    async fn a_hook_that_has_to_stop_or_takes_too_long_is_stopped() {
        let stop = Stop::default();
        stop.request(Reason::Cancelled);
        let (ended, _) = run("exec sleep 600", &stop, None).await;
        assert_eq!((ended.code, ended.timed_out), (143, false));
        let (ended, _) = run("exec sleep 600", &Stop::default(), Some(Duration::from_millis(20))).await;
        assert_eq!((ended.code, ended.timed_out), (143, true));
    }

    #[tokio::test]
    async fn a_hook_whose_container_cannot_start_fails_with_the_reason() {
        let home = tempfile::tempdir().unwrap();
        let console = Console::new(Log::new(0), Redactor::default());
        let stop = Stop::default();
        let execution = Execution { console: &console, terminal: None, stop: &stop, grace: GRACE, limit: None };
        let program = shell("true", home.path());
        let why = std::future::ready("no such image".to_owned());
        let failed = open(home.path(), "h", &program, BTreeMap::new(), execution, why).await.unwrap_err();
        assert_eq!(failed.to_string(), "no such image");
    }

    #[tokio::test]
    async fn a_hook_whose_turn_never_comes_ends_with_the_run() {
        let home = tempfile::tempdir().unwrap();
        let waiting = wait_and_run(home.path(), "h");
        let closing = async { close(home.path()) };
        let both = async { tokio::join!(waiting, closing) };
        let (code, ()) = tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
        assert_eq!(code.unwrap(), 0);
    }
}
