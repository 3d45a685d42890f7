//! `knoll policy explain`: reads the status of a Workspace, so a user needs no right to read Policies. For a name that no
//! Workspace has yet it reads the Policies themselves.

use std::process::ExitCode;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use knoll_api::names::{condition, reason};
use knoll_api::policy::PolicySetting;
use knoll_api::{Policy, Stack, Workspace, WorkspaceSpec};
use knoll_core::policy;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::connect::{Connection, Explain};
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
    /// For a workspace that does not exist yet: the labels that it would have
    #[arg(long, short = 'l', env = "KNOLL_LABELS", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as env=production")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Prints what holds for a Workspace.
pub async fn run(args: PolicyExplainArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let name = match args.name {
        Some(name) => name,
        None => session.workspace_name(&args.workspace)?,
    };
    let found = session.api::<Workspace>().get_opt(&name).await;
    let found = found.explain(&session.cluster, &format!("cannot read workspace `{name}`"))?;
    let exists = found.is_some();
    if exists && !args.labels.is_empty() {
        bail!(
            "workspace `{name}` exists and has labels of its own\n  leave `--labels` out, or name a workspace that does not exist"
        );
    }
    let (workspace, settings) = match found {
        Some(workspace) => {
            let settings = workspace.status.as_ref().map(|status| status.policy.clone()).unwrap_or_default();
            (workspace, settings)
        }
        None => of_new(&session, &name, args.labels).await?,
    };
    match args.output.output {
        Format::Table | Format::Wide if settings.is_empty() => {
            style::hint_aside(&format!("No policy restricts the runs in workspace `{name}`."));
        }
        Format::Table | Format::Wide => output::print(&text(&workspace, &settings))?,
        Format::Name => output::name(&workspace)?,
        format => output::value(&json!({"workspace": name, "exists": exists, "policy": settings}), format)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What would hold for a Workspace that does not exist yet, as the operator would decide: for that of a Stack of this name,
/// or else for one with these labels. The user needs the right to read Policies.
async fn of_new(session: &Session, name: &str, own: Vec<(String, String)>) -> Result<(Workspace, Vec<PolicySetting>)> {
    session.check_installed().await?;
    let cluster = &session.cluster;
    let stack = session.api::<Stack>().get_opt(name).await;
    let stack = stack.explain(cluster, &format!("cannot read stack `{name}`"))?;
    let conditions = stack.iter().filter_map(|stack| stack.status.as_ref()).flat_map(|status| &status.conditions);
    if let Some(refused) = conditions.into_iter().find(|found| is_refusal(found)) {
        bail!("stack `{name}` has no workspace yet: {}", refused.message);
    }
    let what = format!("workspace `{name}` does not exist, and what would apply to it cannot be read");
    let policies = Api::<Policy>::all(cluster.client.clone()).list(&ListParams::default()).await;
    let policies = policies.explain(cluster, &what)?.items;
    let namespace = Api::<Namespace>::all(cluster.client.clone()).get_metadata_opt(&session.namespace).await;
    let Some(namespace) = namespace.explain(cluster, &what)? else {
        bail!("namespace `{}` not found", session.namespace);
    };
    let mut workspace = match &stack {
        Some(stack) => knoll_core::stack::workspace(stack),
        None => Workspace::new(name, WorkspaceSpec::default()),
    };
    let is_labelled = !own.is_empty();
    workspace.labels_mut().extend(own);
    let labels = policy::labels(Some(&workspace), stack.as_ref());
    let settings = policy::effective(&policies, [], namespace.labels(), &labels).settings(&workspace, stack.as_ref());
    let which = match &stack {
        Some(_) => format!("the one that stack `{name}` will have"),
        None if is_labelled => "a new one with these labels".to_owned(),
        None => "a new one without labels (`--labels KEY=VALUE` gives it some)".to_owned(),
    };
    style::note(&format!(
        "workspace `{name}` does not exist in namespace `{}`; this would apply to {which}",
        session.namespace
    ));
    Ok((workspace, settings))
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
