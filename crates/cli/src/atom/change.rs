//! `knoll atom cancel` and `knoll atom rollback`.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use jiff::Timestamp;
use knoll_api::atom::AtomPhase;
use knoll_api::names::{annotation, field_manager, label};
use knoll_api::{Atom, AtomVersion};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::get;
use super::wait::{self, WaitArgs};
use crate::connect::{Connection, Explain};
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll atom cancel`.
#[derive(clap::Args)]
pub struct AtomCancelArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    wait: WaitArgs,
    /// The name of the atom
    #[arg(add = crate::complete::atoms(), value_parser = crate::workspace::plain_name::<knoll_api::Atom>)]
    name: String,
}

/// The arguments of `knoll atom rollback`.
#[derive(clap::Args)]
pub struct AtomRollbackArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    wait: WaitArgs,
    /// The name of the atom
    #[arg(add = crate::complete::atoms(), value_parser = crate::workspace::plain_name::<knoll_api::Atom>)]
    name: String,
    /// The version to roll back to [default: the last healthy version]
    version: Option<String>,
}

/// Cancels the update in progress, or the rollback in progress.
pub async fn cancel(args: AtomCancelArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let atom = get(&session, &args.name).await?;
    let status = atom.status.clone().unwrap_or_default();
    if status.phase.is_at_rest() {
        let name = &args.name;
        bail!(
            "atom `{name}` has no update in progress: it is {}\n  `knoll atom rollback {name}` rolls back to an earlier version",
            status.phase.as_str()
        );
    }
    let rollback = status.phase == AtomPhase::Rollback;
    // The version under way may be older than the one that the spec asks for.
    let version = match status.phase {
        AtomPhase::Pending => None,
        _ => status.target_version.clone(),
    };
    let version = version.unwrap_or_else(|| atom.spec.version.clone());
    let atom =
        change(&session, &args.name, json!({"spec": {"cancel": {"version": version, "rollback": rollback}}})).await?;
    let what = if rollback { "the rollback of" } else { "the update of" };
    let which = if rollback { "from" } else { "to" };
    style::say("Cancelled", &format!("{what} atom `{}` {which} version `{version}`", args.name));
    if args.wait.wait { wait::until_rest(&session, &atom, args.wait.timeout).await } else { Ok(ExitCode::SUCCESS) }
}

/// Sets an earlier version as the version of the Atom.
pub async fn rollback(args: AtomRollbackArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let atom = get(&session, &args.name).await?;
    let version = match args.version {
        Some(version) => version,
        None => earlier(&session, &atom).await?,
    };
    let found = session.api::<AtomVersion>().get_opt(&version).await;
    let found = found.explain(&session.cluster, &format!("cannot read version `{version}`"))?;
    found.ok_or_else(|| {
        anyhow!("version `{version}` not found\n  list versions with `knoll atom history {}`", args.name)
    })?;
    let mut patch = json!({"spec": {"version": version, "cancel": null}});
    // The version may have failed before; the annotation requests another attempt.
    patch["metadata"] = json!({"annotations": {annotation::RECONCILE: Timestamp::now().to_string()}});
    let atom = change(&session, &args.name, patch).await?;
    style::say("Requested", &format!("version `{version}` of atom `{}`", args.name));
    if args.wait.wait { wait::until_rest(&session, &atom, args.wait.timeout).await } else { Ok(ExitCode::SUCCESS) }
}

/// The last good version that differs from the current one.
async fn earlier(session: &Session, atom: &Atom) -> Result<String> {
    let status = atom.status.clone().unwrap_or_default();
    if let Some(good) = status.last_good_version.clone().filter(|good| *good != atom.spec.version) {
        return Ok(good);
    }
    let name = atom.name_any();
    let mine = ListParams::default().labels(&format!("{}={name}", label::ATOM));
    let versions = session.api::<AtomVersion>().list(&mine).await;
    let versions = versions.explain(&session.cluster, "cannot list versions")?;
    let proven = versions.items.iter().filter(|version| version.name_any() != atom.spec.version);
    let last =
        proven.filter_map(|version| Some((version.status.as_ref()?.proven_at.clone()?.0, version.name_any()))).max();
    last.map(|(_, version)| version).ok_or_else(|| {
        anyhow!(
            "atom `{name}` has no earlier healthy version\n  name one of those that `knoll atom history {name}` lists"
        )
    })
}

async fn change(session: &Session, name: &str, patch: Value) -> Result<Atom> {
    let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
    let changed = session.api::<Atom>().patch(name, &params, &Patch::Merge(patch)).await;
    changed.explain(&session.cluster, &format!("cannot update atom `{name}`"))
}
