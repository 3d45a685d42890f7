//! `knoll atom history`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::names::label;
use knoll_api::{Atom, AtomVersion};
use kube::ResourceExt;
use kube::api::ListParams;

use super::get;
use crate::connect::{Connection, Explain};
use crate::output::table::{Cell, Table, Tone};
use crate::output::{self, OutputArgs, time};
use crate::workspace::Session;

/// The arguments of `knoll atom history`.
#[derive(clap::Args)]
pub struct AtomHistoryArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// The name of the atom
    #[arg(add = crate::complete::atoms())]
    name: String,
}

/// Lists the versions of an Atom, newest last.
pub async fn run(args: AtomHistoryArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let atom = get(&session, &args.name).await?;
    let mine = |version: &AtomVersion| {
        let labelled = version.labels().get(label::ATOM) == Some(&args.name);
        labelled || named(&atom).contains(&version.name_any().as_str())
    };
    let list = session.api::<AtomVersion>().list(&ListParams::default()).await;
    let mut list = list.explain(&session.cluster, "cannot list versions")?.items;
    list.retain(mine);
    list.sort_by_key(|version| (version.metadata.creation_timestamp.clone(), version.name_any()));
    let nothing = format!("Atom `{}` has no versions.", args.name);
    output::list(&list, args.output.output, &nothing, |_| table(&atom, &list, Timestamp::now()))
}

fn named(atom: &Atom) -> Vec<&str> {
    let status = atom.status.as_ref();
    let of_status = status.into_iter().flat_map(|status| [&status.current_version, &status.last_good_version]);
    std::iter::once(atom.spec.version.as_str()).chain(of_status.filter_map(|name| name.as_deref())).collect()
}

fn table(atom: &Atom, list: &[AtomVersion], now: Timestamp) -> Table {
    let status = atom.status.clone().unwrap_or_default();
    let mut table = Table::new(&["VERSION", "STATE", "PROVEN", "AGE"]);
    for version in list {
        let name = version.name_any();
        let is = |which: &Option<String>| which.as_ref() == Some(&name);
        let proven = version.status.as_ref().and_then(|status| status.proven_at.clone());
        let state = if is(&status.current_version) && is(&status.last_good_version) {
            Cell::new("current", Tone::Good)
        } else if is(&status.target_version) && status.failure.is_some() {
            Cell::new(status.phase.as_str(), super::status::tone(status.phase))
        } else if atom.spec.version == name {
            Cell::new("target", Tone::Busy)
        } else {
            Cell::from(if proven.is_some() { "good" } else { "" })
        };
        let proven = proven.map(|proven| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(proven.0));
        table.row(vec![
            name.into(),
            state,
            proven.as_ref().map(|proven| time::age(Some(proven), now)).unwrap_or_default().into(),
            time::age(version.metadata.creation_timestamp.as_ref(), now).into(),
        ]);
    }
    table
}
