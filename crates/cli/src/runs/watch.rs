//! `knoll watch`: a live table of stacks and runs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use knoll_api::{Run, Stack};
use kube::api::ListParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::list::{self, Select};
use crate::connect::{Connection, Explain};
use crate::run::follow;
use crate::run::stop::{Request, Signals};
use crate::workspace::Session;
use crate::{output, stack};

/// How often ages are redrawn.
const TICK: Duration = Duration::from_secs(1);
/// Changes within this time are drawn together.
const SETTLE: Duration = Duration::from_millis(50);

/// The arguments of `knoll watch`.
#[derive(clap::Args)]
pub struct WatchArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    select: Select,
}

/// Draws the tables until Ctrl-C. Without a terminal, prints a line per change.
pub async fn run(args: WatchArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let runs = args.select.api(&session);
    // A connection error is reported once instead of being retried forever.
    runs.list_metadata(&ListParams::default().limit(1)).await.explain(&session.cluster, "cannot watch runs")?;
    let stacks =
        if args.select.all_namespaces { Api::all(session.cluster.client.clone()) } else { session.api::<Stack>() };
    let (mut runs, mut stacks) = (Watched::start(runs), Watched::start(stacks));
    let mut signals = Signals::listen()?;
    let live = io::stdout().is_terminal();
    let mut screen = Screen::new(live);
    let mut tick = tokio::time::interval(TICK);
    let mut dirty = false;
    loop {
        tokio::select! {
            changed = runs.next() => {
                if let Some(run) = changed.filter(|run| !live && args.select.matches(run)) {
                    line(&run_line(&run))?;
                }
                dirty = true;
            }
            changed = stacks.next() => {
                if let Some(stack) = changed.filter(|stack| !live && args.select.matches_stack(stack)) {
                    line(&stack_line(&stack))?;
                }
                dirty = true;
            }
            _ = tick.tick(), if live && runs.listed && !dirty => screen.draw(&runs, &stacks, &args.select),
            () = tokio::time::sleep(SETTLE), if dirty && runs.listed => {
                dirty = false;
                screen.draw(&runs, &stacks, &args.select);
            }
            request = signals.next() => {
                drop(screen);
                return Ok(match request {
                    Request::Stop => ExitCode::SUCCESS,
                    Request::Leave(signal) => follow::code(128 + signal),
                });
            }
        }
    }
}

trait Phased {
    fn phase(&self) -> &'static str;
}

impl Phased for Run {
    fn phase(&self) -> &'static str {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default().as_str()
    }
}

impl Phased for Stack {
    fn phase(&self) -> &'static str {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default().as_str()
    }
}

/// The current objects of a kind.
struct Watched<K: 'static> {
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    objects: BTreeMap<(String, String), K>,
    /// Whether the initial list is complete.
    listed: bool,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Phased + Clone + Debug + DeserializeOwned + Send,
{
    fn start(api: Api<K>) -> Self {
        let events = watcher::watcher(api, watcher::Config::default()).default_backoff().boxed();
        Watched { events, objects: BTreeMap::new(), listed: false }
    }

    /// Applies the next watch event. Returns the object if its phase has changed.
    async fn next(&mut self) -> Option<K> {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match self.events.next().await? {
            Ok(Event::Init) => self.objects.clear(),
            Ok(Event::InitApply(object)) => drop(self.objects.insert(key(&object), object)),
            Ok(Event::InitDone) => self.listed = true,
            Ok(Event::Delete(object)) => drop(self.objects.remove(&key(&object))),
            Ok(Event::Apply(object)) => {
                let (key, phase) = (key(&object), object.phase());
                let before = self.objects.insert(key.clone(), object);
                if before.is_none_or(|before| before.phase() != phase) {
                    return self.objects.get(&key).cloned();
                }
            }
            Err(error) => tracing::debug!(%error, "watch interrupted"),
        }
        None
    }
}

fn line(cells: &[String]) -> Result<()> {
    output::print(&format!("{}\n", cells.join("\t")))
}

fn run_line(run: &Run) -> [String; 5] {
    ["run".into(), run.name_any(), run.spec.workspace.clone(), list::command(run), run.phase().into()]
}

fn stack_line(stack: &Stack) -> [String; 5] {
    let last = stack.status.as_ref().and_then(|status| status.last_run.clone()).unwrap_or_default();
    ["stack".into(), stack.name_any(), stack.name_any(), last, stack.phase().into()]
}

/// The terminal. Its previous content is restored on drop, followed by the last tables.
struct Screen {
    live: bool,
    last: String,
}

impl Screen {
    fn new(live: bool) -> Self {
        if live {
            // Switches to the alternate screen and hides the cursor.
            let _ = write!(io::stdout(), "\x1b[?1049h\x1b[?25l");
        }
        Screen { live, last: String::new() }
    }

    fn draw(&mut self, runs: &Watched<Run>, stacks: &Watched<Stack>, select: &Select) {
        if !self.live {
            return;
        }
        let (columns, rows) = crate::run::screen_size();
        let mut runs: Vec<Run> = runs.objects.values().filter(|run| select.matches(run)).cloned().collect();
        list::sort(&mut runs);
        let mut stacks: Vec<Stack> =
            stacks.objects.values().filter(|stack| select.matches_stack(stack)).cloned().collect();
        let (few, newest) = share(usize::from(rows), stacks.len(), runs.len());
        stacks.truncate(few);
        let (now, columns) = (Timestamp::now(), usize::from(columns));
        let mut text = String::new();
        if !stacks.is_empty() {
            text += &stack::list::table(&stacks, select.all_namespaces, false, now).at_most(columns).to_string();
            text.push('\n');
        }
        let newest = &runs[runs.len() - newest..];
        text += &list::table(newest, select.all_namespaces, false, now).at_most(columns).to_string();
        if runs.is_empty() {
            text += "No runs yet; press Ctrl-C to exit.\n";
        }
        let mut out = io::stdout().lock();
        let _ = write!(out, "\x1b[H");
        for line in text.lines() {
            let _ = write!(out, "{line}\x1b[K\r\n");
        }
        let _ = write!(out, "\x1b[J");
        let _ = out.flush();
        self.last = text;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.live {
            let _ = write!(io::stdout(), "\x1b[?25h\x1b[?1049l{}", self.last);
            let _ = io::stdout().flush();
        }
    }
}

/// How many stacks and runs fit on the screen: half of it each, or the space the other leaves.
fn share(rows: usize, stacks: usize, runs: usize) -> (usize, usize) {
    // The headings, the line between the tables and the cursor line take space too.
    let room = rows.saturating_sub(if stacks == 0 { 2 } else { 4 }).max(2);
    let shown = stacks.min((room / 2).max(room.saturating_sub(runs)));
    (shown, runs.min(room - shown))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn tables_share_the_screen() {
        for (rows, stacks, runs, expect) in [
            (24, 0, 5, (0, 5)),
            (24, 0, 50, (0, 22)),
            (24, 3, 50, (3, 17)),
            (24, 50, 50, (10, 10)),
            (24, 50, 2, (18, 2)),
            (1, 9, 9, (1, 1)),
        ] {
            assert_eq!(share(rows, stacks, runs), expect, "{rows} {stacks} {runs}");
        }
    }
}
