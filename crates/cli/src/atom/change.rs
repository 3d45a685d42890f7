//! `knoll atom cancel` and `knoll atom rollback`.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use jiff::Timestamp;
use knoll_api::names::{annotation, field_manager, label};
use knoll_api::{Atom, AtomVersion};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::get;
use super::wait::{self, WaitArgs};
use crate::connect::{Connection, Explain};
use crate::style;
use crate::workspace::Place;

/// The arguments of `knoll atom cancel`.
#[derive(clap::Args)]
pub struct CancelArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    wait: WaitArgs,
    /// Its name
    #[arg(add = crate::complete::atoms())]
    name: String,
}

/// The arguments of `knoll atom rollback`.
#[derive(clap::Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    wait: WaitArgs,
    /// Its name
    #[arg(add = crate::complete::atoms())]
    name: String,
    /// The version
    version: Option<String>,
}

/// Stops the update that is under way.
pub async fn cancel(args: CancelArgs, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let atom = get(&place, &args.name).await?;
    let status = atom.status.clone().unwrap_or_default();
    if status.phase.is_at_rest() {
        let name = &args.name;
        bail!(
            "nothing is under way for the atom `{name}`: it is {}\n  `knoll atom rollback {name}` goes back to an earlier version",
            status.phase.as_str()
        );
    }
    let atom = change(&place, &args.name, json!({"spec": {"cancel": true}})).await?;
    style::say("Cancelled", &format!("the update of atom `{}` to version `{}`", args.name, atom.spec.version));
    if args.wait.wait { wait::until_rest(&place, &atom, args.wait.timeout).await } else { Ok(ExitCode::SUCCESS) }
}

/// Makes an earlier version the wanted one.
pub async fn rollback(args: RollbackArgs, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let atom = get(&place, &args.name).await?;
    let version = match args.version {
        Some(version) => version,
        None => earlier(&place, &atom).await?,
    };
    let found = place.api::<AtomVersion>().get_opt(&version).await;
    let found = found.explain(&place.cluster, &format!("cannot read the version `{version}`"))?;
    found.ok_or_else(|| {
        anyhow!("there is no version `{version}`\n  `knoll atom history {}` shows those that are kept", args.name)
    })?;
    let mut patch = json!({"spec": {"version": version, "cancel": false}});
    // It may have been tried before.
    patch["metadata"] = json!({"annotations": {annotation::RECONCILE: Timestamp::now().to_string()}});
    let atom = change(&place, &args.name, patch).await?;
    style::say("Asked", &format!("for version `{version}` of atom `{}`", args.name));
    if args.wait.wait { wait::until_rest(&place, &atom, args.wait.timeout).await } else { Ok(ExitCode::SUCCESS) }
}

/// The version that was last good and is not the one that is there.
async fn earlier(place: &Place, atom: &Atom) -> Result<String> {
    let status = atom.status.clone().unwrap_or_default();
    if let Some(good) = status.last_good_version.clone().filter(|good| *good != atom.spec.version) {
        return Ok(good);
    }
    let name = atom.name_any();
    let mine = ListParams::default().labels(&format!("{}={name}", label::ATOM));
    let versions = place.api::<AtomVersion>().list(&mine).await;
    let versions = versions.explain(&place.cluster, "cannot list the versions")?;
    let proven = versions.items.iter().filter(|version| version.name_any() != atom.spec.version);
    let last =
        proven.filter_map(|version| Some((version.status.as_ref()?.proven_at.clone()?.0, version.name_any()))).max();
    last.map(|(_, version)| version).ok_or_else(|| {
        anyhow!("the atom `{name}` has no earlier version that was good\n  `knoll atom history {name}` shows its versions; name one of them")
    })
}

async fn change(place: &Place, name: &str, patch: Value) -> Result<Atom> {
    let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
    let changed = place.api::<Atom>().patch(name, &params, &Patch::Merge(patch)).await;
    changed.explain(&place.cluster, &format!("cannot change the atom `{name}`"))
}
