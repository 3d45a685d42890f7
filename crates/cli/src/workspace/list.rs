//! `knoll workspace list`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::Workspace;
use knoll_api::workspace::WorkspacePhase;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::Place;
use crate::connect::{Connection, Explain};
use crate::output::table::{Cell, Table, Tone};
use crate::output::{self, OutputArgs, time};

/// The arguments of `knoll workspace list`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// Those of every namespace
    #[arg(long, short = 'A', env = "KNOLL_ALL_NAMESPACES")]
    all_namespaces: bool,
}

/// Lists the Workspaces; a star marks the folder's own.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let api = if args.all_namespaces { Api::all(place.cluster.client.clone()) } else { place.api::<Workspace>() };
    let list = api.list(&ListParams::default()).await.explain(&place.cluster, "cannot list the workspaces")?.items;
    let nothing = match args.all_namespaces {
        true => "There are no workspaces in any namespace; `knoll workspace new NAME` makes one.".to_owned(),
        false => {
            format!("There are no workspaces in namespace `{}`; `knoll workspace new NAME` makes one.", place.namespace)
        }
    };
    output::list(&list, args.output.output, &nothing, |wide| {
        table(&list, &place, args.all_namespaces, wide, Timestamp::now())
    })
}

fn table(list: &[Workspace], place: &Place, namespaces: bool, wide: bool, now: Timestamp) -> Table {
    let mut head = vec![""];
    head.extend(namespaces.then_some("NAMESPACE"));
    head.extend(["NAME", "PHASE", "ACTIVE", "QUEUED", "SERIAL", "RESOURCES", "AGE"]);
    head.extend(wide.then_some(["TOOL", "VERSION"]).into_iter().flatten());
    let mut table = Table::new(&head);
    for workspace in list {
        let status = workspace.status.clone().unwrap_or_default();
        let state = status.state.as_ref();
        let namespace = workspace.namespace().unwrap_or_default();
        let chosen = place
            .choice
            .as_ref()
            .is_some_and(|choice| choice.workspace == workspace.name_any() && choice.namespace == namespace);
        let (phase, tone) = match status.phase {
            WorkspacePhase::Pending => ("Pending", Tone::Quiet),
            WorkspacePhase::Idle => ("Idle", Tone::Plain),
            WorkspacePhase::Active => ("Active", Tone::Busy),
            WorkspacePhase::Deleting => ("Deleting", Tone::Waits),
        };
        let mut row: Vec<Cell> = vec![if chosen { "*" } else { "" }.into()];
        row.extend(namespaces.then(|| namespace.into()));
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
