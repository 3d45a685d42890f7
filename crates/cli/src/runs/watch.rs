//! `knoll watch`: a live table of runs.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use jiff::Timestamp;
use knoll_api::Run;
use kube::ResourceExt;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};

use super::list::{self, Select};
use crate::connect::{Connection, Explain};
use crate::output;
use crate::run::follow;
use crate::run::stop::{Signals, Wish};
use crate::workspace::Place;

/// How often times are drawn anew.
const TICK: Duration = Duration::from_secs(1);
/// Changes that come together are drawn together.
const SETTLE: Duration = Duration::from_millis(50);

/// The arguments of `knoll watch`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    select: Select,
}

/// Draws the table until Ctrl-C. Without a terminal, prints a line for each change.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let api = args.select.api(&place);
    // What is wrong with the connection is said once, and not retried for ever.
    api.list_metadata(&ListParams::default().limit(1)).await.explain(&place.cluster, "cannot watch the runs")?;
    let mut events = watcher::watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut signals = Signals::listen()?;
    let live = io::stdout().is_terminal();
    let mut runs: BTreeMap<(String, String), Run> = BTreeMap::new();
    let mut listed = false;
    let mut screen = Screen::default();
    let mut tick = tokio::time::interval(TICK);
    let mut dirty = false;
    loop {
        tokio::select! {
            Some(event) = events.next() => {
                match event {
                    Ok(Event::Init) => runs.clear(),
                    Ok(Event::InitApply(run)) => drop(runs.insert(key(&run), run)),
                    Ok(Event::InitDone) => listed = true,
                    Ok(Event::Apply(run)) => {
                        if !live && args.select.wants(&run) && changed(runs.get(&key(&run)), &run) {
                            line(&run)?;
                        }
                        runs.insert(key(&run), run);
                    }
                    Ok(Event::Delete(run)) => drop(runs.remove(&key(&run))),
                    Err(error) => tracing::debug!(%error, "the watch is interrupted"),
                }
                dirty = true;
            }
            _ = tick.tick(), if live && listed && !dirty => screen.draw(&runs, &args.select),
            () = tokio::time::sleep(SETTLE), if dirty && listed => {
                dirty = false;
                if live {
                    screen.draw(&runs, &args.select);
                }
            }
            wish = signals.next() => {
                screen.leave();
                return Ok(match wish {
                    Wish::Stop => ExitCode::SUCCESS,
                    Wish::Leave(signal) => follow::code(128 + signal),
                });
            }
        }
    }
}

fn key(run: &Run) -> (String, String) {
    (run.namespace().unwrap_or_default(), run.name_any())
}

fn changed(before: Option<&Run>, after: &Run) -> bool {
    let phase = |run: &Run| run.status.as_ref().map(|status| status.phase);
    before.is_none_or(|before| phase(before) != phase(after))
}

/// One line of the log of changes.
fn line(run: &Run) -> Result<()> {
    let status = run.status.clone().unwrap_or_default();
    let (name, workspace) = (run.name_any(), &run.spec.workspace);
    output::print(&format!("{name}\t{workspace}\t{}\t{}\n", list::command(run), status.phase.as_str()))
}

/// The part of the terminal that the table was drawn on.
#[derive(Default)]
struct Screen {
    lines: usize,
}

impl Screen {
    fn draw(&mut self, runs: &BTreeMap<(String, String), Run>, select: &Select) {
        let mut shown: Vec<Run> = runs.values().filter(|run| select.wants(run)).cloned().collect();
        list::sort(&mut shown);
        let (columns, rows) = crate::run::screen_size();
        // The heading and the line of the cursor need room too.
        let room = usize::from(rows).saturating_sub(2).max(1);
        let older = shown.len().saturating_sub(room);
        let table = list::table(&shown[older..], select.all_namespaces, false, Timestamp::now());
        let text = table.at_most(usize::from(columns)).to_string();
        let mut out = io::stdout().lock();
        if self.lines > 0 {
            let _ = write!(out, "\x1b[{}A", self.lines);
        }
        for line in text.lines() {
            let _ = write!(out, "\x1b[2K{line}\r\n");
        }
        let _ = write!(out, "\x1b[J");
        let _ = out.flush();
        self.lines = text.lines().count();
    }

    fn leave(&self) {
        let _ = io::stdout().flush();
    }
}
