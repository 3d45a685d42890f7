//! The last stage before a container's program.
//!
//! A new process must change things about itself before it becomes the program: its session, its terminal, and that it
//! dies with its shim. Doing that between `fork` and `exec` would need unsafe code; a stage of our own executable, which
//! then replaces itself, costs a millisecond and needs none.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::files::{self, NOT_STARTED_CODE, Spec};

/// The command that becomes the program: our executable, told to be the last stage. `error` is where it says why it could not.
pub fn command(spec: &Spec, program: &Path, error: Option<&Path>) -> io::Result<Command> {
    let mut command = Command::new(own_executable()?);
    command
        .args(&spec.shim_args)
        .args([super::LAUNCH, if spec.tty { "tty" } else { "plain" }])
        .arg(std::process::id().to_string())
        .arg(error.unwrap_or(Path::new("")))
        .arg(program)
        .args(&spec.argv)
        .env_clear()
        .envs(&spec.env)
        .current_dir(&spec.cwd)
        .stdin(Stdio::null());
    Ok(command)
}

/// The executable that runs, even when its file has been replaced since.
fn own_executable() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

/// Becomes the program, or says why not.
pub fn launch(args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(stage) = Stage::parse(args) else {
        return ExitCode::FAILURE;
    };
    let why = match stage.prepare() {
        Ok(()) => {
            let mut command = Command::new(&stage.program);
            command.arg0(&stage.arg0).args(&stage.rest);
            command.exec()
        }
        Err(error) => error,
    };
    let message = format!("`{}` cannot be executed: {why}", stage.program.display());
    eprintln!("{message}");
    if !stage.error.as_os_str().is_empty() {
        // Standard error has it as well, so a second failure here loses nothing but the reason in the status.
        let _ = files::write_bytes(&stage.error, message.as_bytes(), 0o600);
    }
    u8::try_from(NOT_STARTED_CODE).map_or(ExitCode::FAILURE, ExitCode::from)
}

struct Stage {
    tty: bool,
    shim: String,
    error: PathBuf,
    program: PathBuf,
    arg0: OsString,
    rest: Vec<OsString>,
}

impl Stage {
    fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        Some(Self {
            tty: args.next()? == "tty",
            shim: args.next()?.into_string().ok()?,
            error: args.next()?.into(),
            program: args.next()?.into(),
            arg0: args.next()?,
            rest: args.collect(),
        })
    }

    fn prepare(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
        // A shim that died before the line above has not killed us.
        if nix::unistd::getppid().to_string() != self.shim {
            return Err(io::Error::other("the shim is gone"));
        }
        nix::unistd::setsid()?;
        if self.tty {
            // A session's leader that opens a terminal gets it as its controlling one.
            let path = nix::unistd::ttyname(io::stdin())?;
            OpenOptions::new().read(true).write(true).open(path)?;
        }
        Ok(())
    }
}
