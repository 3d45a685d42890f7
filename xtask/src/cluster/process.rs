//! Processes that outlive the task that starts them, and are found again by exactly what was started.
//!
//! A process writes its own pid file before it becomes the program: whatever happens to `cargo xtask` in between, no
//! program runs without a file that names it. A pid alone can come to mean another process, so the file has the start
//! time and the boot too, and nothing is signalled unless all of them match.

use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::place::{self, Place};

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of the process, of its pid file and of its log.
    pub name: &'static str,
    pub executable: PathBuf,
    pub arguments: Vec<String>,
}

/// The pid file of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidFile {
    pub pid: i32,
    /// When it started, in a form that only comparison can read.
    pub start: String,
    /// The boot of the machine that it started in.
    pub boot: String,
    /// The executable and its arguments.
    pub command: Vec<String>,
}

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it started, as in the pid file.
    pub start: String,
    /// Whether it has ended and only waits for its parent to notice.
    pub zombie: bool,
    /// Its memory, in KiB.
    pub memory: u64,
}

/// The arguments of the hidden task that becomes a program.
#[derive(clap::Args)]
pub struct BecomeArguments {
    /// The pid file to write
    #[arg(long)]
    pid_file: PathBuf,
    /// The executable and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Leaves the terminal's session, writes the pid file and becomes the program.
pub fn become_program(arguments: &BecomeArguments) -> anyhow::Result<()> {
    // It fails only for the leader of a process group, and then it has a session or group of its own already.
    let _ = nix::unistd::setsid();
    let pid = i32::try_from(std::process::id()).context("a pid is a number that fits")?;
    let seen = inspect(pid).context("cannot see this process itself")?;
    let file = PidFile { pid, start: seen.start, boot: boot(), command: arguments.command.clone() };
    place::write(&arguments.pid_file, serde_json::to_string_pretty(&file)?.as_bytes(), false)?;
    let (executable, rest) = arguments.command.split_first().context("there is no command")?;
    let error = Command::new(executable).args(rest).exec();
    Err(error).with_context(|| format!("cannot start {executable}"))
}

/// The pid file of a running process, or nothing when it does not run.
pub fn running(place: &Place, name: &str) -> Option<PidFile> {
    let file: PidFile = serde_json::from_str(&fs::read_to_string(pid_path(place, name)).ok()?).ok()?;
    is_alive(&file).then_some(file)
}

/// What was done so that a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// It ran already, with these arguments.
    Ran,
    Started,
    /// It ran with other arguments, and was started again.
    Restarted,
}

/// Makes a program run with these arguments.
pub fn ensure(place: &Place, program: &Program) -> anyhow::Result<Ensured> {
    let before = running(place, program.name);
    let command = command_of(program);
    let ensured = match &before {
        Some(file) if file.command == command => return Ok(Ensured::Ran),
        Some(_) => {
            // An API server waits long for watches to end, and loses nothing when it does not.
            stop(place, program.name, Duration::from_secs(3))?;
            Ensured::Restarted
        }
        None => Ensured::Started,
    };
    start(place, program)?;
    Ok(ensured)
}

fn command_of(program: &Program) -> Vec<String> {
    let mut command = vec![program.executable.to_string_lossy().into_owned()];
    command.extend(program.arguments.iter().cloned());
    command
}

fn start(place: &Place, program: &Program) -> anyhow::Result<()> {
    let pid_path = pid_path(place, program.name);
    remove_if_there(&pid_path)?;
    let log_path = log_path(place, program.name);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log_path)
        .with_context(|| format!("cannot open the log {}", log_path.display()))?;
    let mut command = Command::new(own_executable()?);
    command
        .args(["cluster", "become", "--pid-file"])
        .arg(&pid_path)
        .arg("--")
        .args(command_of(program))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share the log")?)
        .stderr(log);
    // The programs talk to this machine only; a proxy of the user's would be asked for addresses that it cannot know.
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy", "KUBECONFIG"] {
        command.env_remove(name);
    }
    let mut child = command.spawn().context("cannot start a process")?;
    wait_for_pid_file(place, program.name, &mut child)
}

fn wait_for_pid_file(place: &Place, name: &str, child: &mut Child) -> anyhow::Result<()> {
    let pid_path = pid_path(place, name);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !pid_path.exists() {
        if child.try_wait().context("cannot look at a child process")?.is_some() || Instant::now() > deadline {
            bail!("{name} did not start:\n{}", log_end(place, name));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Fails with the end of the log when a process that should run has ended.
pub fn check_alive(place: &Place, name: &str) -> anyhow::Result<()> {
    if running(place, name).is_none() {
        bail!("{name} has ended; the end of {}:\n{}", log_path(place, name).display(), log_end(place, name));
    }
    Ok(())
}

/// Ends a process: politely, and after `patience` for certain. Answers whether it ran.
pub fn stop(place: &Place, name: &str, patience: Duration) -> anyhow::Result<bool> {
    let Some(file) = running(place, name) else {
        remove_if_there(&pid_path(place, name))?;
        return Ok(false);
    };
    signal(&file, Signal::SIGTERM)?;
    if !ended_within(&file, patience) {
        signal(&file, Signal::SIGKILL)?;
        if !ended_within(&file, Duration::from_secs(10)) {
            bail!("{name} (process {}) does not end, not even by SIGKILL", file.pid);
        }
    }
    remove_if_there(&pid_path(place, name))?;
    Ok(true)
}

fn signal(file: &PidFile, signal: Signal) -> anyhow::Result<()> {
    match kill(Pid::from_raw(file.pid), signal) {
        // It ended in this moment.
        Ok(()) | Err(nix::Error::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot end process {}", file.pid)),
    }
}

fn ended_within(file: &PidFile, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while is_alive(file) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whether the very process of the file still runs.
pub fn is_alive(file: &PidFile) -> bool {
    file.boot == boot() && inspect(file.pid).is_some_and(|seen| seen.start == file.start && !seen.zombie)
}

/// Reads the state of a process.
pub fn inspect(pid: i32) -> Option<Seen> {
    if Path::new("/proc/self/stat").exists() {
        let memory = memory(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default());
        return parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, memory);
    }
    let output = Command::new("ps").args(["-o", "stat=,rss=,lstart=", "-p", &pid.to_string()]).output().ok()?;
    parse_ps(&String::from_utf8_lossy(&output.stdout))
}

/// Reads `/proc/PID/stat`. The name of the program stands in brackets and may have anything in it, brackets too.
fn parse_stat(stat: &str, memory: u64) -> Option<Seen> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    // The start time is the 22nd field; the state, which was taken already, is the third.
    let start = fields.nth(18)?;
    Some(Seen { start: start.to_owned(), zombie: matches!(state, "Z" | "X"), memory })
}

fn memory(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Reads a line of `ps -o stat=,rss=,lstart=`.
fn parse_ps(line: &str) -> Option<Seen> {
    let mut fields = line.split_whitespace();
    let state = fields.next()?;
    let memory = fields.next()?.parse().ok()?;
    let start = fields.collect::<Vec<_>>().join(" ");
    Some(Seen { start, zombie: state.starts_with('Z'), memory })
}

/// What tells one boot of the machine from the next, where start times begin again.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The file of this program. The link of the kernel's is used, as the file may have been built anew since.
fn own_executable() -> anyhow::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() {
        return Ok(link.to_owned());
    }
    std::env::current_exe().context("cannot find this program's own file")
}

/// The log of a process.
pub fn log_path(place: &Place, name: &str) -> PathBuf {
    place.path("logs").join(format!("{name}.log"))
}

/// The last lines of a log.
pub fn log_end(place: &Place, name: &str) -> String {
    let text = fs::read(log_path(place, name)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn pid_path(place: &Place, name: &str) -> PathBuf {
    place.path("run").join(format!("{name}.json"))
}

fn remove_if_there(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn stat_is_read_whatever_the_program_is_called() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        let seen = parse_stat(&format!("77 (a) b (c)) {rest}"), 12).unwrap();
        assert_eq!(seen, Seen { start: "4242".to_owned(), zombie: false, memory: 12 });
        assert!(parse_stat(&format!("77 (x) {}", rest.replacen('S', "Z", 1)), 0).unwrap().zombie);
        assert_eq!(parse_stat("77 (x) S 1", 0), None);
        assert_eq!(parse_stat("", 0), None);
    }

    #[test]
    fn ps_is_read() {
        let seen = parse_ps("Ss    1234 Sun Nov 15 21:30:00 2026\n").unwrap();
        assert_eq!(seen, Seen { start: "Sun Nov 15 21:30:00 2026".to_owned(), zombie: false, memory: 1234 });
        assert_eq!(parse_ps(""), None);
    }

    #[test]
    fn only_the_process_of_the_pid_file_is_alive() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let file = PidFile { pid, start: inspect(pid).unwrap().start, boot: boot(), command: Vec::new() };
        assert!(is_alive(&file));
        assert!(!is_alive(&PidFile { start: "0".to_owned(), ..file.clone() }), "the pid means another process now");
        assert!(!is_alive(&PidFile { boot: "another".to_owned(), ..file.clone() }), "the machine was started again");
        let text = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<PidFile>(&text).unwrap(), file);
    }

    #[test]
    fn memory_is_read_from_status() {
        assert_eq!(memory("Name:\tx\nVmRSS:\t  4660 kB\nThreads:\t1\n"), 4660);
        assert_eq!(memory("Name:\tx\n"), 0);
    }
}
