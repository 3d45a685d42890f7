//! Who holds a Workspace, and who waits for it.
//!
//! *Guarantees.* One run is active at a time. It leaves only when it has ended, or is gone together with its
//! pod. The others follow in the order in which they were created; a run that is older than those waiting goes before
//! them, never before the active one.

pub mod arrival;

use std::collections::BTreeSet;

use knoll_api::{
    plan_mode::flag,
    run::{Operation, RunSpec},
};

pub use arrival::Arrival;

/// The flags of `terraform init` that change nothing but the working directory.
const INIT_FLAGS: &[&str] = &["upgrade", "no-color", "input", "lockfile", "json", "get"];

/// How a run comes to its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// May change the state: waits until it is the Workspace's active run.
    Queue,
    /// Cannot change the state: starts at once, beside whatever is active.
    AtOnce,
}

/// What a run wants of the Workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueStanding {
    /// Wants its turn, or has it. Next: any other.
    Waiting,
    /// Waits for something outside the queue, such as the approval of a privileged command. Next: `Waiting` or `Ended`.
    Held,
    /// Is being deleted; it is not started any more, but keeps what it holds until it is gone.
    Leaving,
    /// Has reached a final phase. Nothing follows.
    Ended,
}

/// What the queue knows of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    pub name: String,
    pub arrival: Arrival,
    /// Whether it queues at all.
    pub lane: Lane,
    /// What it wants now.
    pub standing: QueueStanding,
}

/// What is known of a Workspace when its queue is decided.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The run that holds the Workspace by its status.
    pub active: Option<&'a str>,
    /// Every run that names the Workspace, in any order.
    pub runs: &'a [QueueEntry],
    /// Runs that are gone although a pod of theirs may still be at work: they keep what they hold.
    pub lingering: &'a BTreeSet<String>,
}

/// The places of a Workspace's runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The run that holds the Workspace.
    pub active: Option<String>,
    /// Those that wait, first one next.
    pub queue: Vec<String>,
}

/// Decides who holds the Workspace and in which order the others wait.
#[must_use]
pub fn decide(view: &View<'_>) -> Places {
    let mut waiting: Vec<&QueueEntry> = view
        .runs
        .iter()
        .filter(|run| run.lane == Lane::Queue && run.standing == QueueStanding::Waiting)
        .filter(|run| Some(run.name.as_str()) != view.active)
        .collect();
    waiting.sort_by(|a, b| (a.arrival, &a.name).cmp(&(b.arrival, &b.name)));
    let mut queue = waiting.into_iter().map(|run| run.name.clone());

    let active = match view.active.filter(|name| holds(view, name)) {
        Some(name) => Some(name.to_owned()),
        None => queue.next(),
    };
    Places { active, queue: queue.collect() }
}

/// Whether the run that is active by the status still holds the Workspace.
fn holds(view: &View<'_>, name: &str) -> bool {
    match view.runs.iter().find(|run| run.name == name) {
        // Another run of that name may have come that needs no lock.
        Some(run) => run.lane == Lane::Queue && run.standing != QueueStanding::Ended,
        None => view.lingering.contains(name),
    }
}

/// Whether a run has to queue: everything that can change the state, and everything that is not known not to.
#[must_use]
pub fn lane(spec: &RunSpec) -> Lane {
    match spec.operation {
        Operation::Plan => Lane::AtOnce,
        Operation::Apply | Operation::Destroy | Operation::Refresh => Lane::Queue,
        Operation::Command => {
            let command = spec.command.as_deref().unwrap_or_default();
            let is_harmless = only_reads(&words(command, &spec.args)) || is_plain_init(command, &spec.args);
            if is_harmless { Lane::AtOnce } else { Lane::Queue }
        }
    }
}

/// Whether this is an `init` that changes nothing but the working directory. It migrates no state.
fn is_plain_init(command: &str, args: &[String]) -> bool {
    let harmless = |arg: &String| flag(arg).is_some_and(|(name, _)| INIT_FLAGS.contains(&name));
    command == "init" && args.iter().all(harmless)
}

/// The words of a command up to its first flag: `state list -id=x` is `["state", "list"]`.
pub(crate) fn words<'a>(command: &'a str, args: &'a [String]) -> Vec<&'a str> {
    command
        .split_whitespace()
        .chain(args.iter().map(String::as_str))
        .take_while(|word| !word.starts_with('-'))
        .collect()
}

/// Whether these words are a subcommand that never writes a state.
fn only_reads(words: &[&str]) -> bool {
    match words {
        ["state", sub, ..] => matches!(*sub, "list" | "show" | "pull"),
        ["workspace", sub, ..] => matches!(*sub, "list" | "show"),
        [
            "plan" | "show" | "output" | "validate" | "console" | "fmt" | "graph" | "providers" | "version" | "get"
            | "metadata" | "modules" | "help",
            ..,
        ] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
