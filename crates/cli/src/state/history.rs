//! `knoll state history`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_storage::states::Version;
use serde_json::json;

use crate::connect::Connection;
use crate::output::table::{Cell, Table, Tone};
use crate::output::{self, Format, OutputArgs, time};
use crate::style;
use crate::workspace::{Session, WorkspaceArg};

/// The arguments of `knoll state history`.
#[derive(clap::Args)]
pub struct StateHistoryArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    workspace: WorkspaceArg,
    #[command(flatten)]
    output: OutputArgs,
}

/// Lists the stored state versions, current first.
pub async fn run(args: StateHistoryArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let workspace = session.workspace_name(&args.workspace)?;
    session.workspace(&workspace).await?;
    let versions = session.storage().states().history(&session.namespace, &workspace).await;
    let what = format!("cannot read the state history of workspace `{workspace}`, which is stored in Secrets");
    let versions = super::explain(versions, &session, &what)?;
    match args.output.output {
        Format::Table | Format::Wide if versions.is_empty() => {
            style::hint_aside(&format!("Workspace `{workspace}` has no state yet; `knoll apply` creates it."));
        }
        Format::Table => output::print(&table(&versions, false).to_string())?,
        Format::Wide => output::print(&table(&versions, true).to_string())?,
        Format::Name => versions.iter().try_for_each(|version| output::print(&format!("{}\n", version.serial)))?,
        format => {
            let items: Vec<_> = versions
                .iter()
                .map(|Version { serial, lineage, digest, resources, updated_at, run, .. }| {
                    json!({"serial": serial, "lineage": lineage, "digest": digest, "resources": resources,
                        "updatedAt": updated_at, "run": run})
                })
                .collect();
            output::value(&json!({"workspace": workspace, "versions": items}), format)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(versions: &[Version], wide: bool) -> Table {
    let mut head = vec!["SERIAL", "", "RESOURCES", "WRITTEN", "RUN"];
    head.extend(wide.then_some(["LINEAGE", "DIGEST"]).into_iter().flatten());
    let mut table = Table::new(&head);
    for (index, version) in versions.iter().enumerate() {
        let current = if index == 0 { Cell::new("current", Tone::Good) } else { "".into() };
        let written = version.updated_at.parse::<Timestamp>().map_or_else(|_| version.updated_at.clone(), time::moment);
        let mut row: Vec<Cell> = vec![
            version.serial.to_string().into(),
            current,
            version.resources.to_string().into(),
            written.into(),
            version.run.clone().into(),
        ];
        if wide {
            row.push(version.lineage.clone().into());
            row.push(version.digest.to_string().into());
        }
        table.row(row);
    }
    table
}
