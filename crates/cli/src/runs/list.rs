//! `knoll runs`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::run::Operation;
use knoll_api::{Run, Stack};
use knoll_core::run::answer;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::phase;
use crate::connect::{Connection, Explain};
use crate::output::table::{Cell, Table};
use crate::output::{self, Format, OutputArgs, time};
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll runs`.
#[derive(clap::Args)]
pub struct RunListArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    pub select: Select,
}

/// The flags that select runs.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Select {
    /// List only the runs of this workspace
    #[arg(long, short, env = "KNOLL_WORKSPACE", value_name = "WORKSPACE", add = crate::complete::workspaces(), value_parser = crate::workspace::plain_name::<knoll_api::Workspace>)]
    workspace: Option<String>,
    /// List the runs of all namespaces
    #[arg(long, short = 'A', env = "KNOLL_ALL_NAMESPACES")]
    pub all_namespaces: bool,
    /// List only runs that have not finished
    #[arg(long, env = "KNOLL_ACTIVE")]
    active: bool,
    /// Show also the commands that only read and have finished
    #[arg(long, env = "KNOLL_ALL")]
    all: bool,
}

impl Select {
    pub fn api(&self, session: &Session) -> Api<Run> {
        if self.all_namespaces { Api::all(session.cluster.client.clone()) } else { session.api() }
    }

    /// Whether people are shown the run. Commands that only read and have finished would drown the others.
    pub fn shows(&self, run: &Run) -> bool {
        self.all || !has_read(run)
    }

    pub fn matches(&self, run: &Run) -> bool {
        let finished = run.status.as_ref().is_some_and(|status| status.phase.is_finished());
        let workspace = self.workspace.as_ref().is_none_or(|name| *name == run.spec.workspace);
        workspace && !(self.active && finished)
    }

    /// Whether a Stack is selected. Its Workspace has the same name.
    pub fn matches_stack(&self, stack: &Stack) -> bool {
        self.workspace.as_ref().is_none_or(|name| *name == stack.name_any())
    }
}

/// Whether a run only read, and has finished.
fn has_read(run: &Run) -> bool {
    answer::answers(&run.spec) && run.status.as_ref().is_some_and(|status| status.phase.is_finished())
}

/// Lists runs, newest last.
pub async fn run(args: RunListArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let list = args.select.api(&session).list(&ListParams::default()).await;
    let mut list = list.explain(&session.cluster, "cannot list runs")?.items;
    list.retain(|run| args.select.matches(run));
    sort(&mut list);
    let namespaces = args.select.all_namespaces;
    let nothing = match &args.select.workspace {
        _ if args.select.active => "No active runs found.".to_owned(),
        _ if namespaces => "No runs found in any namespace.".to_owned(),
        Some(name) => {
            if list.is_empty() {
                // A misspelt name is an error here too.
                session.workspace(name).await?;
            }
            format!("No runs found in workspace `{name}`. Start one with `knoll plan -w {name}`.")
        }
        None => format!("No runs found in namespace `{}`. Start one with `knoll plan`.", session.namespace),
    };
    let format = args.output.output;
    let found = list.len();
    if matches!(format, Format::Table | Format::Wide) {
        list.retain(|run| args.select.shows(run));
    }
    let hidden = found - list.len();
    if hidden == 0 || !list.is_empty() {
        output::list(&list, format, &nothing, |wide| table(&list, namespaces, wide, Timestamp::now()))?;
    }
    if hidden > 0 {
        style::hint_aside(&left_out(hidden));
    }
    Ok(ExitCode::SUCCESS)
}

fn left_out(count: usize) -> String {
    match count {
        1 => "1 finished command that only reads is not shown; `--all` shows it.".to_owned(),
        _ => format!("{count} finished commands that only read are not shown; `--all` shows them."),
    }
}

/// Sorts runs, newest last, next to the prompt of the terminal.
pub fn sort(list: &mut [Run]) {
    list.sort_by_key(|run| {
        let started = run.status.as_ref().and_then(|status| status.started_at.as_ref()).map(|time| time.0);
        // Creation times have a resolution of one second, in which several runs may start.
        (run.metadata.creation_timestamp.as_ref().map(|time| time.0), started.is_none(), started, run.name_any())
    });
}

pub fn table(list: &[Run], namespaces: bool, wide: bool, now: Timestamp) -> Table {
    let mut head = Vec::new();
    head.extend(namespaces.then_some("NAMESPACE"));
    head.extend(["NAME", "WORKSPACE", "COMMAND", "PHASE", "PLAN", "EXIT", "TIME", "AGE"]);
    head.extend(wide.then_some(["REQUESTED BY", "DECIDED BY", "QUEUE", "POD", "MESSAGE"]).into_iter().flatten());
    let mut table = Table::new(&head);
    for run in list {
        let status = run.status.clone().unwrap_or_default();
        let mut row: Vec<Cell> = Vec::new();
        row.extend(namespaces.then(|| Cell::optional(run.namespace())));
        let plan = status.plan.as_ref();
        let plan = plan.map(|plan| format!("+{} ~{} -{}", plan.add, plan.change, plan.destroy)).unwrap_or_default();
        row.extend([
            run.name_any().into(),
            run.spec.workspace.clone().into(),
            command(run).into(),
            phase::of(run),
            plan.into(),
            status.exit_code.map(|code| code.to_string()).unwrap_or_default().into(),
            time::took(status.started_at.as_ref(), status.finished_at.as_ref(), now).into(),
            time::age(run.metadata.creation_timestamp.as_ref(), now).into(),
        ]);
        if wide {
            let ready =
                status.conditions.iter().find(|condition| condition.type_ == knoll_api::names::condition::READY);
            row.push(knoll_core::run::requested_by(run).unwrap_or_default().into());
            row.push(status.decision.map(|decision| decision.by).unwrap_or_default().into());
            row.push(status.position.map(|position| position.to_string()).unwrap_or_default().into());
            row.push(status.pod_name.unwrap_or_default().into());
            row.push(ready.map(|ready| first_line(&ready.message)).unwrap_or_default().into());
        }
        table.row(row);
    }
    table
}

/// The terraform command of a run.
pub fn command(run: &Run) -> String {
    match run.spec.operation {
        Operation::Command => run.spec.command.clone().unwrap_or_default(),
        operation => operation.as_str().to_owned(),
    }
}

/// The terraform command of a run with its arguments.
pub fn words(run: &Run) -> String {
    format!("{} {}", command(run), run.spec.args.join(" ")).trim().to_owned()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn an_apply_drowned_among_finished_reads() {
        let run = |operation: &str, command: Option<&str>, phase: &str| -> Run {
            serde_json::from_value(json!({
                "apiVersion": "knoll.dev/v1alpha1", "kind": "Run", "metadata": {"name": "r"},
                "spec": {"workspace": "w", "operation": operation, "command": command}, "status": {"phase": phase},
            }))
            .unwrap()
        };
        let rows = [
            (run("apply", None, "Succeeded"), true),
            (run("plan", None, "Failed"), true),
            (run("command", Some("state list"), "Running"), true),
            (run("command", Some("state list"), "Succeeded"), false),
            (run("command", Some("state rm"), "Succeeded"), true),
        ];
        for (run, shown) in rows {
            assert_eq!(Select::default().shows(&run), shown, "{run:?}");
            assert!(Select { all: true, ..Select::default() }.shows(&run));
        }
        assert_eq!(left_out(2), "2 finished commands that only read are not shown; `--all` shows them.");
    }
}
