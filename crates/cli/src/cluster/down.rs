//! `knoll down`: stops the embedded cluster.

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use knoll_api::Run;
use knoll_api::run::RunPhase;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::folder::{Folder, FolderArgs};
use crate::connect::{Cluster, Connection};
use crate::{install, style};

/// How long `knoll down` waits for the list of runs. A cluster that does not answer is stopped all the same.
const LIST: Duration = Duration::from_secs(2);

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
pub async fn run(args: &DownArgs) -> Result<ExitCode> {
    let folder = args.folder.folder()?;
    let Some(running) = folder.running()? else {
        style::say("Not running:", &format!("no cluster in `{}`", folder.path().display()));
        return Ok(ExitCode::SUCCESS);
    };
    let pid = running.pid.context("the cluster is starting; try again in a second")?;
    let runs = tokio::time::timeout(LIST, working(&folder)).await.unwrap_or_default();
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
    if let Some(note) = note(&runs) {
        style::note(&note);
    }
    Ok(ExitCode::SUCCESS)
}

/// The runs with a pod, by namespace and name. None if the cluster does not answer.
async fn working(folder: &Folder) -> Vec<String> {
    let connection = Connection { kubeconfig: Some(folder.kubeconfig()), ..Connection::default() };
    let Ok(cluster) = Cluster::find_quietly(&connection).await else { return Vec::new() };
    let Ok(list) = Api::<Run>::all(cluster.client).list(&ListParams::default()).await else { return Vec::new() };
    let phase = |run: &Run| run.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let works = |run: &&Run| matches!(phase(run), RunPhase::Starting | RunPhase::Running);
    list.iter().filter(works).map(|run| format!("{}/{}", run.namespace().unwrap_or_default(), run.name_any())).collect()
}

/// Says which runs go on without the cluster.
fn note(runs: &[String]) -> Option<String> {
    let names = runs.iter().map(|run| format!("`{run}`")).collect::<Vec<_>>().join(", ");
    let (subject, them) = match runs.len() {
        0 => return None,
        1 => (format!("run {names} continues"), "it"),
        _ => (format!("runs {names} continue"), "them"),
    };
    Some(format!(
        "{subject} without the cluster, and the next `knoll up` takes {them} up again\n  \
         To stop a run, start the cluster again and use `knoll cancel`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_was_stopped_without_a_word_about_its_runs() {
        assert_eq!(note(&[]), None);
        let one = note(&["default/a".to_owned()]).unwrap_or_default();
        assert!(one.starts_with("run `default/a` continues without the cluster"), "{one}");
        let two = note(&["default/a".to_owned(), "b/c".to_owned()]).unwrap_or_default();
        assert!(two.starts_with("runs `default/a`, `b/c` continue without"), "{two}");
    }
}
