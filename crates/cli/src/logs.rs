//! `knoll logs`: prints the stored log of a run, during the run and after its pod is deleted.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use futures::StreamExt;
use knoll_api::Run;
use knoll_api::step::StepName;
use knoll_storage::{LogError, LogRange};
use kube::ResourceExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;

use crate::connect::{Connection, Explain};
use crate::output::plain::Plain;
use crate::workspace::Session;
use crate::{runs, style};

/// The arguments of `knoll logs`.
#[derive(clap::Args)]
pub struct LogsArgs {
    #[command(flatten)]
    connection: Connection,
    /// Print only the output of this step: init, plan, apply, ...
    #[arg(long, env = "KNOLL_STEP", value_name = "STEP", value_parser = step)]
    step: Option<StepName>,
    /// Follow the log until the run has finished
    #[arg(long, short, env = "KNOLL_FOLLOW")]
    follow: bool,
    /// The run
    #[arg(add = crate::complete::runs(), value_parser = crate::workspace::plain_name::<knoll_api::Run>)]
    run: String,
}

fn step(word: &str) -> Result<StepName, String> {
    let names = || StepName::ALL.map(StepName::as_str).join(", ");
    StepName::ALL.into_iter().find(|step| step.as_str() == word).ok_or_else(|| format!("expected one of {}", names()))
}

pub async fn run(args: LogsArgs, outer: &Connection) -> Result<ExitCode> {
    let LogsArgs { connection, step, follow, run: name } = args;
    let session = Session::find(&connection.or(outer)).await?;
    let run = runs::get(&session, &name).await?;
    if follow {
        return follow_log(&session, run, &name, step).await;
    }
    let Some(range) = range(&run, step) else {
        bail!("{}", missing(&run, &name, step));
    };
    let log = read(&session, &run, range).await?;
    if log.is_empty() && step.is_none() {
        let phase = run.status.unwrap_or_default().phase;
        if !phase.is_finished() {
            style::note(&format!("run `{name}` is {} and has no output yet; use -f to wait for it", phase.as_str()));
        }
    }
    print(&log)
}

/// Prints the stored log as it grows, until the run has finished.
async fn follow_log(session: &Session, first: Run, name: &str, step: Option<StepName>) -> Result<ExitCode> {
    let mut changes = Box::pin(watch_object(session.api::<Run>(), name).default_backoff());
    let mut run = first;
    // The offset of a step is known once the run has reached it.
    let from = loop {
        let ended = is_over(&run);
        match range(&run, step) {
            Some(range) => break range.from,
            None if ended => bail!("{}", missing(&run, name, step)),
            None => run = next(&mut changes, name).await?,
        }
    };
    let mut pieces = Box::pin(session.storage().logs().follow(&run, from)?);
    let mut printed = from;
    let mut out = Plain::stdout();
    loop {
        let range = range(&run, step).unwrap_or(LogRange::WHOLE);
        if is_over(&run) || range.to.is_some_and(|to| printed >= to) {
            // The log is complete when the run has finished; that of a step, when a later step has begun.
            let rest = read(session, &run, LogRange { from: printed, to: range.to }).await?;
            return print(&rest);
        }
        tokio::select! {
            Some(piece) = pieces.next() => {
                let piece = piece.or_else(passing)?;
                let room = range.to.map_or(piece.len(), |to| usize::try_from(to.saturating_sub(printed)).unwrap_or(usize::MAX));
                let piece = &piece[..room.min(piece.len())];
                printed += piece.len() as u64;
                if out.write_all(piece).and_then(|()| out.flush()).is_err() {
                    // The reader has closed the pipe, as in `knoll logs -f x | head`.
                    return Ok(ExitCode::SUCCESS);
                }
            }
            changed = next(&mut changes, name) => run = changed?,
        }
    }
}

/// Treats an interrupted read as empty, because the watch restarts by itself. A refused read stays an error.
fn passing(error: LogError) -> Result<Vec<u8>, LogError> {
    match &error {
        LogError::Watch(watch) if !watch.to_string().contains("orbidden") => Ok(Vec::new()),
        _ => Err(error),
    }
}

async fn next<S>(changes: &mut S, name: &str) -> Result<Run>
where
    S: futures::Stream<Item = Result<Option<Run>, kube::runtime::watcher::Error>> + Unpin,
{
    loop {
        match changes.next().await {
            Some(Ok(Some(run))) => return Ok(run),
            Some(Ok(None)) => bail!("run `{name}` was deleted"),
            Some(Err(_)) => {}
            None => bail!("the watch of run `{name}` has ended"),
        }
    }
}

async fn read(session: &Session, run: &Run, range: LogRange) -> Result<Vec<u8>> {
    match session.storage().logs().read(run, range).await {
        Err(LogError::Api(error)) => {
            let what = format!("cannot read the log of run `{}`, which is stored in ConfigMaps", run.name_any());
            Err(error).explain(&session.cluster, &what)
        }
        result => Ok(result?),
    }
}

fn range(run: &Run, step: Option<StepName>) -> Option<LogRange> {
    match step {
        None => Some(LogRange::WHOLE),
        Some(step) => LogRange::of_step(run, step),
    }
}

fn missing(run: &Run, name: &str, step: Option<StepName>) -> String {
    let step = step.map(StepName::as_str).unwrap_or_default();
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let steps: Vec<&str> = steps.filter(|step| step.log_offset.is_some()).map(|step| step.name.as_str()).collect();
    match steps[..] {
        [] => format!("run `{name}` has no step `{step}`: it has not started yet"),
        _ => format!("run `{name}` has no step `{step}`; its steps are {}", steps.join(", ")),
    }
}

fn is_over(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished())
}

fn print(bytes: &[u8]) -> Result<ExitCode> {
    let mut out = Plain::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
