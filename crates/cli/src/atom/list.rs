//! `knoll atom list`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::Atom;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::status::{message, tone};
use crate::connect::{Connection, Explain};
use crate::output::table::{Cell, Table};
use crate::output::{self, OutputArgs, time};
use crate::workspace::Place;

/// The arguments of `knoll atom list`.
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

/// Lists the Atoms.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let api = if args.all_namespaces { Api::all(place.cluster.client.clone()) } else { place.api::<Atom>() };
    let list = api.list(&ListParams::default()).await.explain(&place.cluster, "cannot list the atoms")?.items;
    let nothing = match args.all_namespaces {
        true => "There are no atoms in any namespace; `knoll atom apply` makes one.".to_owned(),
        false => format!("There are no atoms in namespace `{}`; `knoll atom apply` makes one.", place.namespace),
    };
    output::list(&list, args.output.output, &nothing, |wide| table(&list, args.all_namespaces, wide, Timestamp::now()))
}

fn table(list: &[Atom], namespaces: bool, wide: bool, now: Timestamp) -> Table {
    let mut head = Vec::new();
    head.extend(namespaces.then_some("NAMESPACE"));
    head.extend(["NAME", "PHASE", "WANTED", "THERE", "READY", "AGE"]);
    head.extend(wide.then_some("MESSAGE"));
    let mut table = Table::new(&head);
    for atom in list {
        let status = atom.status.clone().unwrap_or_default();
        let ready = status.objects.iter().filter(|object| object.ready).count();
        let mut row: Vec<Cell> = Vec::new();
        row.extend(namespaces.then(|| atom.namespace().unwrap_or_default().into()));
        row.extend([
            atom.name_any().into(),
            Cell::new(status.phase.as_str(), tone(status.phase)),
            atom.spec.version.clone().into(),
            status.current_version.clone().unwrap_or_default().into(),
            format!("{ready}/{}", status.objects.len()).into(),
            time::age(atom.metadata.creation_timestamp.as_ref(), now).into(),
        ]);
        row.extend(wide.then(|| message(atom).into()));
        table.row(row);
    }
    table
}
