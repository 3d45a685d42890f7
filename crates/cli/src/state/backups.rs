//! `knoll state backups`.

use std::process::ExitCode;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt};
use knoll_backup::{Archive, Record};
use serde_json::json;

use crate::backups::ArchiveArgs;
use crate::connect::Connection;
use crate::output::table::{Cell, Table, Tone};
use crate::output::{self, Format, OutputArgs, time};
use crate::style;
use crate::workspace::{Session, WorkspaceArg};

/// How many records are read at a time.
const CONCURRENCY: usize = 8;

/// The arguments of `knoll state backups`.
#[derive(clap::Args)]
pub struct StateBackupsArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    #[command(flatten)]
    archive: ArchiveArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Lists the copies of one state, or the newest of each state of the namespace.
pub async fn run(args: StateBackupsArgs, outer: &Connection) -> Result<ExitCode> {
    let archive = args.archive.archive()?;
    let session = Session::find(&args.connection.or(outer)).await?;
    let namespace = session.namespace.as_str();
    let workspace = session.known_workspace_name(&args.workspace);
    let (records, nothing) = match &workspace {
        Some(workspace) => {
            let nothing = format!("`{}` has no backup of workspace `{workspace}` in `{namespace}`.", archive.shown());
            (versions(&archive, namespace, workspace).await?, nothing)
        }
        None => {
            let nothing = format!("`{}` has no backup of any workspace in `{namespace}`.", archive.shown());
            (newest(&archive, namespace).await?, nothing)
        }
    };
    match args.output.output {
        Format::Table | Format::Wide if records.is_empty() => style::hint_aside(&nothing),
        Format::Table => output::print(&table(&records, workspace.is_none(), false).to_string())?,
        Format::Wide => output::print(&table(&records, workspace.is_none(), true).to_string())?,
        Format::Name => records.iter().try_for_each(|record| output::print(&format!("{}\n", record.serial)))?,
        format => output::value(&json!({"target": archive.shown(), "versions": records}), format)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Every copy of a state, the newest first.
async fn versions(archive: &Archive, namespace: &str, workspace: &str) -> Result<Vec<Record>> {
    let names = archive.versions(namespace, workspace).await?;
    let records = futures::stream::iter(names.iter().map(|name| archive.record(namespace, workspace, name)));
    Ok(records.buffered(CONCURRENCY).try_collect().await?)
}

/// The newest copy of each state of a namespace.
async fn newest(archive: &Archive, namespace: &str) -> Result<Vec<Record>> {
    let workspaces = archive.workspaces(namespace).await?;
    let records = futures::stream::iter(workspaces.iter().map(async |workspace| {
        match archive.versions(namespace, workspace).await?.first() {
            Some(name) => archive.record(namespace, workspace, name).await.map(Some),
            None => Ok(None),
        }
    }));
    let records: Vec<Option<Record>> = records.buffered(CONCURRENCY).try_collect().await?;
    Ok(records.into_iter().flatten().collect())
}

fn table(records: &[Record], of_namespace: bool, wide: bool) -> Table {
    let mut head = vec![];
    head.extend(of_namespace.then_some("WORKSPACE"));
    head.extend(["SERIAL", "RESOURCES", "WRITTEN", "RUN", "BY"]);
    head.extend(wide.then_some(["SIZE", "LINEAGE", "DIGEST"]).into_iter().flatten());
    let mut table = Table::new(&head);
    for record in records {
        let mut row: Vec<Cell> = Vec::new();
        if of_namespace {
            row.push(record.workspace.clone().into());
        }
        let by = match &record.requested_by {
            Some(by) => by.clone().into(),
            None => Cell::new("-", Tone::Quiet),
        };
        row.extend([record.serial.to_string().into(), record.resources.to_string().into()]);
        row.extend([time::moment(record.written_at).into(), record.run.clone().into(), by]);
        if wide {
            row.extend([record.size.to_string(), record.lineage.clone(), record.digest.to_string()].map(Cell::from));
        }
        table.row(row);
    }
    table
}
