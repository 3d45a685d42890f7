//! `knoll down`: stops the embedded cluster.

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::folder::FolderArgs;
use crate::{install, style};

/// The arguments of `knoll down`.
#[derive(clap::Args)]
pub struct DownArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// How long to wait for the cluster to stop
    #[arg(long, env = "KNOLL_TIMEOUT", default_value = "1m", value_parser = install::duration, value_name = "DURATION")]
    timeout: Duration,
}

/// Stops the cluster, and waits until its process has ended.
pub fn run(args: &DownArgs) -> Result<ExitCode> {
    let folder = args.folder.folder()?;
    let Some(running) = folder.running()? else {
        style::say("Not running:", &format!("no cluster in `{}`", folder.path().display()));
        return Ok(ExitCode::SUCCESS);
    };
    let pid = running.pid.context("the cluster is starting; try again in a second")?;
    kill(Pid::from_raw(pid), Signal::SIGTERM).with_context(|| format!("cannot stop process {pid}"))?;
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(running.wait_until_ended()));
    match ended.recv_timeout(args.timeout) {
        Ok(result) => result.context("cannot check whether the cluster has stopped")?,
        Err(_) => {
            bail!("process {pid} has not stopped after {} s; see `{}`", args.timeout.as_secs(), folder.log().display())
        }
    }
    style::say("Stopped:", &format!("the cluster in `{}` (process {pid})", folder.path().display()));
    Ok(ExitCode::SUCCESS)
}
