//! `knoll workspace show`.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::Workspace;
use knoll_api::policy::PolicySetting;
use knoll_api::workspace::StateKind;
use kube::ResourceExt;

use super::{Session, WorkspaceArg};
use crate::connect::Connection;
use crate::output::table::Table;
use crate::output::{self, OutputArgs, time, visible};

/// The arguments of `knoll workspace show`.
#[derive(clap::Args)]
pub struct WorkspaceShowArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// The name of the workspace [default: the one selected in this directory]
    #[arg(add = crate::complete::workspaces(), value_parser = crate::workspace::plain_name::<knoll_api::Workspace>)]
    name: Option<String>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

pub async fn run(args: WorkspaceShowArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let name = match args.name {
        Some(name) => name,
        None => session.workspace_name(&args.workspace)?,
    };
    let workspace = session.workspace(&name).await?;
    output::one(&workspace, args.output.output, |_| visible(&text(&workspace, Timestamp::now())))
}

fn text(workspace: &Workspace, now: Timestamp) -> String {
    let status = workspace.status.clone().unwrap_or_default();
    let mut out = String::new();
    let mut field = |label: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(out, "{:<12}{value}", format!("{label}:"));
        }
    };
    field("Workspace", &workspace.name_any());
    if let Some(namespace) = workspace.namespace() {
        field("Namespace", &namespace);
    }
    field("Age", &time::age(workspace.metadata.creation_timestamp.as_ref(), now));
    let version = workspace.spec.version.as_deref().unwrap_or_default();
    field("Tool", format!("{} {version}", workspace.spec.tool.program()).trim());
    field("Image", workspace.spec.image.as_deref().unwrap_or_default());
    field("Active", status.active.as_deref().unwrap_or("none"));
    field("Queue", &if status.queue.is_empty() { "empty".to_owned() } else { status.queue.join(", ") });
    match (&status.state, workspace.spec.state) {
        (_, StateKind::External) => field("State", "external, in the module's own backend"),
        (None, StateKind::Managed) => field("State", "none"),
        (Some(state), StateKind::Managed) => {
            let plural = if state.resources == 1 { "" } else { "s" };
            let since = state.updated_at.as_ref().map(|at| format!(", written {}", time::moment(at.0)));
            let (serial, resources) = (state.serial, state.resources);
            // The status has the state of the last run that has ended.
            let before = status.active.as_ref().map(|run| format!(" (before run `{run}`)")).unwrap_or_default();
            let since = since.unwrap_or_default();
            field("State", &format!("serial {serial}, {resources} resource{plural}{since}{before}"));
            field("Lineage", &state.lineage);
        }
    }
    if !status.outputs.is_empty() {
        let _ = writeln!(out, "Outputs:");
        for (name, value) in &status.outputs {
            let _ = writeln!(out, "  {name} = {value}");
        }
    }
    if !status.settings.is_empty() {
        let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
        for PolicySetting { setting, value, from } in &status.settings {
            table.row([setting.as_str().into(), value.as_str().into(), from.as_str().into()]);
        }
        let _ = write!(out, "\n{table}");
    }
    out
}
