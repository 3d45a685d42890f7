//! `knoll logs`: what a run printed, while it goes on and long after its pod is gone.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use futures::StreamExt;
use knoll_api::Run;
use knoll_api::step::StepName;
use knoll_storage::logs::{self, Range};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;

use crate::connect::{Connection, Explain};
use crate::workspace::Place;
use crate::{runs, style};

/// The arguments of `knoll logs`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Only what this step printed: init, plan, apply, ...
    #[arg(long, env = "KNOLL_STEP", value_name = "STEP", value_parser = step)]
    step: Option<StepName>,
    /// Go on until the run has ended
    #[arg(long, short, env = "KNOLL_FOLLOW")]
    follow: bool,
    /// The run
    #[arg(add = crate::complete::runs())]
    run: String,
}

fn step(word: &str) -> Result<StepName, String> {
    let names = || StepName::ALL.map(StepName::as_str).join(", ");
    StepName::ALL.into_iter().find(|step| step.as_str() == word).ok_or_else(|| format!("the steps are {}", names()))
}

/// Prints the log.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let Args { connection, step, follow, run: name } = args;
    let place = Place::find(&connection.or(outer)).await?;
    let run = runs::get(&place, &name).await?;
    if follow {
        return follow_log(&place, run, &name, step).await;
    }
    let Some(range) = range(&run, step) else {
        bail!("{}", missing(&run, &name, step));
    };
    let log = read(&place, &name, range).await?;
    if log.is_empty() && step.is_none() {
        let phase = run.status.unwrap_or_default().phase;
        if !phase.is_finished() {
            style::note(&format!("`{name}` is {} and has printed nothing yet; -f waits for it", phase.as_str()));
        }
    }
    print(&log)
}

/// Prints what is kept as it comes, until the run has ended.
async fn follow_log(place: &Place, first: Run, name: &str, step: Option<StepName>) -> Result<ExitCode> {
    let (client, namespace) = (&place.cluster.client, place.namespace.as_str());
    let mut changes = Box::pin(watch_object(place.api::<Run>(), name).default_backoff());
    let mut run = first;
    // A step's place in the log is known when the run has come to it.
    let from = loop {
        let ended = is_over(&run);
        match range(&run, step) {
            Some(range) => break range.from,
            None if ended => bail!("{}", missing(&run, name, step)),
            None => run = next(&mut changes, name).await?,
        }
    };
    let mut pieces = Box::pin(logs::follow(client, namespace, name, from));
    let mut printed = from;
    let mut out = std::io::stdout();
    loop {
        let range = range(&run, step).unwrap_or(Range::WHOLE);
        if is_over(&run) || range.to.is_some_and(|to| printed >= to) {
            // The log is complete when the run has ended, and when another step has begun up to there.
            let rest = read(place, name, Range { from: printed, to: range.to }).await?;
            return print(&rest);
        }
        tokio::select! {
            Some(piece) = pieces.next() => {
                let piece = piece.or_else(passing)?;
                let room = range.to.map_or(piece.len(), |to| usize::try_from(to.saturating_sub(printed)).unwrap_or(usize::MAX));
                let piece = &piece[..room.min(piece.len())];
                printed += piece.len() as u64;
                if out.write_all(piece).and_then(|()| out.flush()).is_err() {
                    // Nobody reads any more, as in `knoll logs -f x | head`.
                    return Ok(ExitCode::SUCCESS);
                }
            }
            changed = next(&mut changes, name) => run = changed?,
        }
    }
}

/// A watch that was interrupted starts again by itself; one that is refused does not.
fn passing(error: logs::Error) -> Result<Vec<u8>, logs::Error> {
    match &error {
        logs::Error::Watch(watch) if !watch.to_string().contains("orbidden") => Ok(Vec::new()),
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
            Some(Ok(None)) => bail!("the run `{name}` was deleted"),
            Some(Err(_)) => {}
            None => bail!("the run `{name}` can no longer be watched"),
        }
    }
}

async fn read(place: &Place, name: &str, range: Range) -> Result<Vec<u8>> {
    match logs::read(&place.cluster.client, &place.namespace, name, range).await {
        Err(logs::Error::Api(error)) => {
            Err(error).explain(&place.cluster, &format!("cannot read the log of `{name}`, which is in ConfigMaps"))
        }
        result => Ok(result?),
    }
}

fn range(run: &Run, step: Option<StepName>) -> Option<Range> {
    match step {
        None => Some(Range::WHOLE),
        Some(step) => Range::of_step(run, step),
    }
}

fn missing(run: &Run, name: &str, step: Option<StepName>) -> String {
    let step = step.map(StepName::as_str).unwrap_or_default();
    let steps = run.status.iter().flat_map(|status| &status.steps);
    let steps: Vec<&str> = steps.filter(|step| step.log_offset.is_some()).map(|step| step.name.as_str()).collect();
    match steps[..] {
        [] => format!("`{name}` has no step `{step}`: it has not started yet"),
        _ => format!("`{name}` has no step `{step}`; it has {}", steps.join(", ")),
    }
}

fn is_over(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase.is_finished())
}

fn print(bytes: &[u8]) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
