//! `knoll workspace delete`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use knoll_api::Workspace;
use knoll_api::workspace::WorkspaceDeletionPolicy;
use kube::api::DeleteParams;

use super::Session;
use super::choice::Choice;
use crate::connect::{Connection, Explain};
use crate::style;

/// The arguments of `knoll workspace delete`.
#[derive(clap::Args)]
pub struct WorkspaceDeleteArgs {
    #[command(flatten)]
    connection: Connection,
    /// The name of the workspace
    #[arg(add = crate::complete::workspaces(), value_parser = crate::workspace::plain_name::<knoll_api::Workspace>)]
    name: String,
    /// Do not ask for confirmation
    #[arg(long, short, env = "KNOLL_YES")]
    yes: bool,
}

/// Deletes a Workspace after confirmation.
pub async fn run(args: WorkspaceDeleteArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let name = args.name;
    let workspace = session.workspace(&name).await?;
    let resources =
        workspace.status.as_ref().and_then(|status| status.state.as_ref()).map_or(0, |state| state.resources);
    let state = contents(&name, workspace.spec.deletion_policy, resources);
    if !args.yes {
        if !style::can_ask() {
            bail!(
                "`knoll workspace delete` asks for confirmation, and there is no terminal\n  add `--yes` to delete `{name}`. {state}"
            );
        }
        style::hint_aside(&state);
        if !style::confirm(&format!("Delete workspace `{name}` in namespace `{}`?", session.namespace))? {
            bail!("workspace `{name}` was not deleted");
        }
    }
    let deleted = session.api::<Workspace>().delete(&name, &DeleteParams::default()).await;
    let deleted = deleted.explain(&session.cluster, &format!("cannot delete workspace `{name}`"))?;
    if session.choice.as_ref().is_some_and(|choice| choice.workspace == name && choice.namespace == session.namespace) {
        Choice::forget(&session.folder)?;
    }
    let active = deleted.left().and_then(|workspace| workspace.status?.active);
    match active {
        Some(run) => style::say(
            "Deleting",
            &format!(
                "workspace `{name}` in namespace `{}`, once run `{run}` has ended; `knoll cancel {run}` stops it",
                session.namespace
            ),
        ),
        None => style::say("Deleted", &format!("workspace `{name}` in namespace `{}`", session.namespace)),
    }
    Ok(ExitCode::SUCCESS)
}

/// What happens to the resources and the state of a Workspace that is deleted.
fn contents(name: &str, policy: WorkspaceDeletionPolicy, resources: u32) -> String {
    let counted = match resources {
        0 => return "Its state contains no resources.".to_owned(),
        1 => "Its state contains 1 resource, which is not destroyed".to_owned(),
        many => format!("Its state contains {many} resources, which are not destroyed"),
    };
    match policy {
        WorkspaceDeletionPolicy::Orphan => {
            format!("{counted}. The state is kept in the Secret `{}`.", knoll_api::names::state_secret(name))
        }
        WorkspaceDeletionPolicy::Delete => format!(
            "{counted}, but the state IS DELETED. To destroy the resources first, run `knoll destroy -w {name}`."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_counted_in_the_singular_and_the_plural() {
        let of = |count| contents("net", WorkspaceDeletionPolicy::Orphan, count);
        assert_eq!(of(0), "Its state contains no resources.");
        let kept = "The state is kept in the Secret `knoll-state-net`.";
        assert_eq!(of(1), format!("Its state contains 1 resource, which is not destroyed. {kept}"));
        assert_eq!(of(2), format!("Its state contains 2 resources, which are not destroyed. {kept}"));
    }
}
