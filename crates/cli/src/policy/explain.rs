//! `knoll policy explain`: reads the status of a Workspace, so a user needs no right to read Policies.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::names::{condition, reason};
use knoll_api::policy::PolicySetting;
use knoll_api::{Stack, Workspace};
use kube::ResourceExt;
use serde_json::json;

use crate::connect::Connection;
use crate::output::table::Table;
use crate::output::{self, Format, OutputArgs, visible};
use crate::style;
use crate::workspace::{Session, WorkspaceArg};

/// The arguments of `knoll policy explain`.
#[derive(clap::Args)]
pub struct PolicyExplainArgs {
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

/// Prints what holds for a Workspace.
pub async fn run(args: PolicyExplainArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let name = match args.name {
        Some(name) => name,
        None => session.workspace_name(&args.workspace)?,
    };
    let workspace = match session.workspace(&name).await {
        Ok(workspace) => workspace,
        Err(error) => return Err(of_stack(&session, &name).await.unwrap_or(error)),
    };
    let settings = workspace.status.as_ref().map(|status| status.policy.clone()).unwrap_or_default();
    match args.output.output {
        Format::Table | Format::Wide if settings.is_empty() => {
            style::hint_aside(&format!("No policy restricts the runs in workspace `{name}`."));
        }
        Format::Table | Format::Wide => output::print(&text(&workspace, &settings))?,
        Format::Name => output::name(&workspace)?,
        format => output::value(&json!({"workspace": name, "policy": settings}), format)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer for a Stack of this name that has no Workspace, because a Policy does not allow what the Stack has.
async fn of_stack(session: &Session, name: &str) -> Option<anyhow::Error> {
    let stack: Stack = session.api().get_opt(name).await.ok()??;
    let conditions = stack.status.iter().flat_map(|status| &status.conditions);
    let refused = conditions.into_iter().find(|found| is_refusal(found))?;
    Some(anyhow!("stack `{name}` has no workspace yet: {}", refused.message))
}

fn is_refusal(found: &Condition) -> bool {
    found.type_ == condition::READY && found.reason == reason::POLICY_VIOLATION
}

fn text(workspace: &Workspace, settings: &[PolicySetting]) -> String {
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for PolicySetting { setting, value, from } in settings {
        table.row([setting.as_str().into(), value.as_str().into(), from.as_str().into()]);
    }
    let conditions = workspace.status.iter().flat_map(|status| &status.conditions);
    let refused = conditions.into_iter().find(|found| is_refusal(found)).map(|found| {
        format!("\nNo run can start in workspace `{}`: {}\n", workspace.name_any(), visible(&found.message))
    });
    format!("{table}{}", refused.unwrap_or_default())
}
