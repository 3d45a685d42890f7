//! `knoll atom history`.

use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::atom::AtomPhase;
use knoll_api::names::label;
use knoll_api::{Atom, AtomVersion, AtomVersionStatus};
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
    #[arg(add = crate::complete::atoms(), value_parser = crate::workspace::plain_name::<knoll_api::Atom>)]
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
    let mut table = Table::new(&["VERSION", "STATE", "HEALTHY", "AGE"]);
    for version in list {
        let proven = version.status.as_ref().and_then(|status| status.proven_at.as_ref());
        let proven = proven.map(|proven| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(proven.0));
        let (state, tone) = state(atom, version);
        table.row(vec![
            version.name_any().into(),
            Cell::new(state, tone),
            proven.as_ref().map(|proven| time::age(Some(proven), now)).unwrap_or_default().into(),
            time::age(version.metadata.creation_timestamp.as_ref(), now).into(),
        ]);
    }
    table
}

/// What became of a version: of its last update, whichever version runs now.
fn state(atom: &Atom, version: &AtomVersion) -> (&'static str, Tone) {
    let (status, name) = (atom.status.clone().unwrap_or_default(), version.name_any());
    let is = |which: &Option<String>| which.as_ref() == Some(&name);
    let AtomVersionStatus { proven_at, reverted_at, .. } = version.status.clone().unwrap_or_default();
    if is(&status.current_version) && is(&status.last_good_version) {
        ("current", Tone::Good)
    } else if is(&status.target_version) && status.failure.is_some() {
        (status.phase.as_str(), super::status::tone(status.phase))
    } else if atom.spec.version == name {
        ("target", Tone::Busy)
    } else if reverted_at.map(|at| at.0) > proven_at.as_ref().map(|at| at.0) {
        (AtomPhase::Reverted.as_str(), super::status::tone(AtomPhase::Reverted))
    } else {
        (if proven_at.is_some() { "healthy" } else { "" }, Tone::Plain)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use knoll_api::{AtomSpec, AtomStatus, AtomVersionSpec};

    use super::*;

    #[test]
    fn a_version_that_was_rolled_back_stays_reverted_when_another_one_runs() {
        let at = |second: i64| Some(MicroTime(Timestamp::from_second(second).unwrap_or_default()));
        let version = |name: &str, proven: Option<i64>, reverted: Option<i64>| {
            let mut version = AtomVersion::new(name, AtomVersionSpec::default());
            let (proven_at, reverted_at) = (proven.and_then(at), reverted.and_then(at));
            version.status = Some(AtomVersionStatus { proven_at, reverted_at, ..AtomVersionStatus::default() });
            version
        };
        let mut atom = Atom::new("web", AtomSpec { version: "v4".to_owned(), ..AtomSpec::default() });
        let runs = Some("v4".to_owned());
        atom.status = Some(AtomStatus {
            phase: AtomPhase::Running,
            current_version: runs.clone(),
            last_good_version: runs.clone(),
            target_version: runs,
            ..AtomStatus::default()
        });
        let rows = [
            (version("v1", Some(1), None), "healthy"),
            (version("v2", None, Some(2)), "Reverted"),
            (version("v3", Some(5), Some(3)), "healthy"),
            (version("v4", Some(6), Some(4)), "current"),
            (version("v5", None, None), ""),
        ];
        for (version, expect) in rows {
            assert_eq!(state(&atom, &version).0, expect, "{version:?}");
        }
    }
}
