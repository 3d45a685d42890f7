//! `knoll watch`: a live table of stacks and runs.

mod key;
mod screen;
mod view;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use futures::stream::BoxStream;
use knoll_api::stack::StackPhase;
use knoll_api::{Run, Stack};
use kube::api::ListParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use screen::Screen;
use view::View;

use super::list::{self, Select};
use crate::connect::{Connection, Explain};
use crate::output;
use crate::run::stop::{Request, Signals};
use crate::run::{follow, keys};
use crate::workspace::Session;

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

/// Draws the tables until `q` or Ctrl-C. Without a terminal, prints a line for each object, and then one per change.
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
    let mut screen = live.then(Screen::open);
    let mut keys = screen.as_ref().filter(|screen| screen.has_keys()).map(|_| keys::typed());
    let mut view = View::default();
    let mut tick = tokio::time::interval(TICK);
    let mut dirty = false;
    loop {
        let mut draw = false;
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
            _ = tick.tick(), if live && !dirty => draw = true,
            () = tokio::time::sleep(SETTLE), if dirty && runs.listed => (dirty, draw) = (false, true),
            Some(input) = pressed(&mut keys) => {
                for key in key::parse(&input) {
                    let shown = view.runs(runs.objects.values().filter(|run| args.select.matches(run) && args.select.shows(run)));
                    if view.press(key, &shown) {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                draw = true;
            }
            request = signals.next() => {
                drop(screen);
                return Ok(match request {
                    Request::Stop => ExitCode::SUCCESS,
                    Request::Leave(signal) => follow::code(128 + signal),
                });
            }
        }
        if let Some(screen) = screen.as_mut().filter(|_| draw && runs.listed) {
            let shown =
                view.runs(runs.objects.values().filter(|run| args.select.matches(run) && args.select.shows(run)));
            let stacks = stacks.objects.values().filter(|stack| args.select.matches_stack(stack));
            screen.draw(&view, &shown, decisions_first(stacks), args.select.all_namespaces);
        }
    }
}

/// The next keys. Pends forever without a keyboard.
async fn pressed(keys: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match keys {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}

/// Stacks by name, those that wait for a decision first.
fn decisions_first<'a>(stacks: impl Iterator<Item = &'a Stack>) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = stacks.cloned().collect();
    stacks.sort_by_key(|stack| stack.phase() != StackPhase::Review.as_str());
    stacks
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
    objects: BTreeMap<(Option<String>, String), K>,
    /// The objects before the list that is being read.
    previous: BTreeMap<(Option<String>, String), K>,
    /// Whether the initial list is complete.
    listed: bool,
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Phased + Clone + Debug + DeserializeOwned + Send,
{
    fn start(api: Api<K>) -> Self {
        let events = watcher::watcher(api, watcher::Config::default()).default_backoff().boxed();
        Watched { events, objects: BTreeMap::new(), previous: BTreeMap::new(), listed: false }
    }

    /// Applies the next watch event. Returns the object if it is new, or its phase has changed.
    async fn next(&mut self) -> Option<K> {
        let key = |object: &K| (object.namespace(), object.name_any());
        match self.events.next().await? {
            Ok(Event::Init) => self.previous = std::mem::take(&mut self.objects),
            Ok(Event::InitApply(object)) => {
                let (key, phase) = (key(&object), object.phase());
                self.objects.insert(key.clone(), object);
                if self.previous.remove(&key).is_none_or(|before| before.phase() != phase) {
                    return self.objects.get(&key).cloned();
                }
            }
            Ok(Event::InitDone) => {
                self.previous.clear();
                self.listed = true;
            }
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
    let cells: Vec<String> = cells.iter().map(|cell| output::visible_line(cell)).collect();
    output::print(&format!("{}\n", cells.join("\t")))
}

fn run_line(run: &Run) -> [String; 5] {
    ["run".into(), run.name_any(), run.spec.workspace.clone(), list::command(run), run.phase().into()]
}

fn stack_line(stack: &Stack) -> [String; 5] {
    let last = stack.status.as_ref().and_then(|status| status.last_run.clone()).unwrap_or_default();
    ["stack".into(), stack.name_any(), stack.name_any(), last, stack.phase().into()]
}
