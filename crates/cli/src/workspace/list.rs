//! `knoll workspace list`.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Workspace;
use knoll_api::workspace::WorkspacePhase;
use kube::ResourceExt;

use crate::connect::Connection;
use crate::output::listing::{self, ListArgs, Listing};
use crate::output::table::{Cell, Table, Tone};
use crate::output::time;

/// Lists the Workspaces. A star marks the one selected in this directory.
pub async fn run(args: ListArgs, outer: &Connection) -> Result<ExitCode> {
    listing::run(args, outer, "workspaces", "knoll workspace new NAME", table).await
}

fn table(&Listing { objects, session, namespaces, wide, now }: &Listing<'_, Workspace>) -> Table {
    let mut head = vec![""];
    head.extend(namespaces.then_some("NAMESPACE"));
    head.extend(["NAME", "PHASE", "ACTIVE", "QUEUED", "SERIAL", "RESOURCES", "AGE"]);
    head.extend(wide.then_some(["TOOL", "VERSION"]).into_iter().flatten());
    let mut table = Table::new(&head);
    for workspace in objects {
        let status = workspace.status.clone().unwrap_or_default();
        let state = status.state.as_ref();
        let namespace = workspace.namespace();
        let chosen = session.choice.as_ref().is_some_and(|choice| {
            choice.workspace == workspace.name_any() && Some(&choice.namespace) == namespace.as_ref()
        });
        let (phase, tone) = match status.phase {
            WorkspacePhase::Pending => ("Pending", Tone::Quiet),
            WorkspacePhase::Idle => ("Idle", Tone::Plain),
            WorkspacePhase::Active => ("Active", Tone::Busy),
            WorkspacePhase::Deleting => ("Deleting", Tone::Waits),
        };
        let mut row: Vec<Cell> = vec![if chosen { "*" } else { "" }.into()];
        row.extend(namespaces.then(|| Cell::optional(namespace)));
        row.extend([
            workspace.name_any().into(),
            Cell::new(phase, tone),
            status.active.unwrap_or_default().into(),
            status.queue.len().to_string().into(),
            state.map(|state| state.serial.to_string()).unwrap_or_default().into(),
            state.map(|state| state.resources.to_string()).unwrap_or_default().into(),
            time::age(workspace.metadata.creation_timestamp.as_ref(), now).into(),
        ]);
        if wide {
            row.push(workspace.spec.tool.program().into());
            row.push(workspace.spec.version.clone().unwrap_or_default().into());
        }
        table.row(row);
    }
    table
}
