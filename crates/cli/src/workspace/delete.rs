//! `knoll workspace delete`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use knoll_api::Workspace;
use knoll_api::workspace::WorkspaceDeletionPolicy;
use kube::api::DeleteParams;

use super::Place;
use super::choice::Choice;
use crate::connect::{Connection, Explain};
use crate::style;

/// The arguments of `knoll workspace delete`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Its name
    #[arg(add = crate::complete::workspaces())]
    name: String,
    /// Do not ask
    #[arg(long, short, env = "KNOLL_YES")]
    yes: bool,
}

/// Deletes a Workspace, once a person has agreed.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let name = args.name;
    let workspace = place.workspace(&name).await?;
    let resources =
        workspace.status.as_ref().and_then(|status| status.state.as_ref()).map_or(0, |state| state.resources);
    let state = match (workspace.spec.deletion_policy, resources) {
        (_, 0) => "Its state has no resources.".to_owned(),
        (WorkspaceDeletionPolicy::Orphan, _) => format!(
            "Its state has {resources} resources: they go on to exist, and the state stays in Secret `{}`.",
            knoll_api::names::state_secret(&name)
        ),
        (WorkspaceDeletionPolicy::Delete, _) => format!(
            "Its state has {resources} resources, which go on to exist, and the state is DELETED; `knoll destroy -w {name}` destroys them first."
        ),
    };
    if !args.yes {
        if !style::can_ask() {
            bail!(
                "`knoll workspace delete` asks before it deletes, and there is no terminal to ask on\n  add `--yes` if `{name}` may go. {state}"
            );
        }
        style::hint_aside(&state);
        if !style::confirm(&format!("Delete the workspace `{name}` in namespace `{}`?", place.namespace))? {
            bail!("the workspace `{name}` was not deleted");
        }
    }
    let deleted = place.api::<Workspace>().delete(&name, &DeleteParams::default()).await;
    deleted.explain(&place.cluster, &format!("cannot delete the workspace `{name}`"))?;
    if place.choice.as_ref().is_some_and(|choice| choice.workspace == name && choice.namespace == place.namespace) {
        Choice::forget(&place.folder)?;
    }
    style::say("Deleted", &format!("workspace `{name}` in namespace `{}`", place.namespace));
    Ok(ExitCode::SUCCESS)
}
