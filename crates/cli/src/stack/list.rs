//! `knoll stack list`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::Stack;
use knoll_api::names::condition;
use knoll_api::stack::StackPhase;
use knoll_core::conditions;
use kube::ResourceExt;

use super::short;
use crate::connect::Connection;
use crate::output::listing::{self, ListArgs, Listing};
use crate::output::table::{Cell, Table, Tone};
use crate::output::time;

pub async fn run(args: ListArgs, outer: &Connection) -> Result<ExitCode> {
    let rows = |all: &Listing<'_, Stack>| table(all.objects, all.namespaces, all.wide, all.now);
    listing::run(args, outer, "stacks", "kubectl apply", rows).await
}

pub fn table(list: &[Stack], namespaces: bool, wide: bool, now: Timestamp) -> Table {
    let mut head = Vec::new();
    head.extend(namespaces.then_some("NAMESPACE"));
    head.extend(["NAME", "READY", "PHASE", "REVISION", "PENDING", "DRIFTED", "LAST RUN", "AGE"]);
    head.extend(wide.then_some("MESSAGE"));
    let mut table = Table::new(&head);
    for stack in list {
        let status = stack.status.clone().unwrap_or_default();
        let condition_of = |kind: &str| conditions::find(&status.conditions, kind);
        let mut row: Vec<Cell> = Vec::new();
        row.extend(namespaces.then(|| Cell::optional(stack.namespace())));
        row.extend([
            stack.name_any().into(),
            condition_of(condition::READY).map_or("Unknown", |ready| ready.status.as_str()).to_owned().into(),
            Cell::new(phase(stack), tone(status.phase)),
            short(status.revision.as_deref()).into(),
            short(status.pending_revision.as_deref()).into(),
            condition_of(condition::DRIFTED).map(|drifted| drifted.status.clone()).unwrap_or_default().into(),
            status.last_run.clone().unwrap_or_default().into(),
            time::age(stack.metadata.creation_timestamp.as_ref(), now).into(),
        ]);
        if wide {
            row.push(condition_of(condition::READY).map(|ready| ready.message.clone()).unwrap_or_default().into());
        }
        table.row(row);
    }
    table
}

/// The phase, and whether the Stack is suspended: a Run that waits for a decision is still there then.
pub fn phase(stack: &Stack) -> String {
    let phase = stack.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let is_plain = !stack.spec.suspend || phase == StackPhase::Suspended;
    if is_plain { phase.as_str().to_owned() } else { format!("{} (suspended)", phase.as_str()) }
}

/// The colour of a phase.
pub fn tone(phase: StackPhase) -> Tone {
    match phase {
        StackPhase::Pending => Tone::Quiet,
        StackPhase::Ready => Tone::Good,
        StackPhase::Running | StackPhase::Destroying | StackPhase::Rollback => Tone::Busy,
        StackPhase::Waiting | StackPhase::Review | StackPhase::Retrying | StackPhase::Suspended => Tone::Waits,
        StackPhase::Held | StackPhase::Reverted | StackPhase::Failure => Tone::Bad,
    }
}
