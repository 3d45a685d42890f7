//! `knoll atom list`.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Atom;
use kube::ResourceExt;

use super::status::{message, tone};
use crate::connect::Connection;
use crate::output::listing::{self, ListArgs, Listing};
use crate::output::table::{Cell, Table};
use crate::output::time;

pub async fn run(args: ListArgs, outer: &Connection) -> Result<ExitCode> {
    listing::run(args, outer, "atoms", "knoll atom apply", table).await
}

fn table(&Listing { objects, namespaces, wide, now, .. }: &Listing<'_, Atom>) -> Table {
    let mut head = Vec::new();
    head.extend(namespaces.then_some("NAMESPACE"));
    head.extend(["NAME", "PHASE", "VERSION", "CURRENT", "READY", "AGE"]);
    head.extend(wide.then_some("MESSAGE"));
    let mut table = Table::new(&head);
    for atom in objects {
        let status = atom.status.clone().unwrap_or_default();
        let ready = status.objects.iter().filter(|object| object.ready).count();
        let mut row: Vec<Cell> = Vec::new();
        row.extend(namespaces.then(|| Cell::optional(atom.namespace())));
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
