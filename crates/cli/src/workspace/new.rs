//! `knoll workspace new`.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Secret;
use knoll_api::Workspace;
use knoll_api::names::{self, field_manager};
use knoll_api::workspace::{StateKind, Tool, WorkspaceSpec};
use kube::ResourceExt;
use kube::api::PostParams;

use super::Session;
use super::choice::Choice;
use crate::connect::{Connection, Explain};
use crate::style;

/// The arguments of `knoll workspace new`.
#[derive(clap::Args)]
pub struct WorkspaceNewArgs {
    #[command(flatten)]
    connection: Connection,
    /// The name of the workspace
    name: String,
    /// The tool that runs the modules
    #[arg(long, env = "KNOLL_TOOL", default_value = "terraform", value_parser = ["terraform", "tofu"])]
    tool: String,
    /// The version of the tool, such as 1.11.4 [default: set by the operator]
    #[arg(long, env = "KNOLL_TOOL_VERSION", value_name = "VERSION")]
    tool_version: Option<String>,
    /// The image of the tool
    #[arg(long, env = "KNOLL_TOOL_IMAGE", value_name = "IMAGE")]
    image: Option<String>,
    /// Use the backend that the module declares instead of state managed by Knoll
    #[arg(long, env = "KNOLL_EXTERNAL_STATE")]
    external_state: bool,
    /// The value of `terraform.workspace` in the module [default: the name of the workspace]
    #[arg(long, env = "KNOLL_TERRAFORM_WORKSPACE", value_name = "NAME")]
    terraform_workspace: Option<String>,
}

/// Creates the Workspace, and selects it in this directory.
pub async fn run(args: WorkspaceNewArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let spec = WorkspaceSpec {
        tool: if args.tool == "tofu" { Tool::Tofu } else { Tool::Terraform },
        version: args.tool_version,
        image: args.image,
        terraform_workspace: args.terraform_workspace,
        state: if args.external_state { StateKind::External } else { StateKind::Managed },
        ..WorkspaceSpec::default()
    };
    let name = args.name;
    Choice::check_writable(&session.folder)?;
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    let mut workspace = Workspace::new(&name, spec);
    workspace.metadata.finalizers = knoll_core::workspace::finalizers();
    match session.api::<Workspace>().create(&params, &workspace).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            return Err(anyhow!(
                "workspace `{name}` already exists in namespace `{}`\n  `knoll workspace select {name}` selects it in this directory",
                session.namespace
            ));
        }
        result => result.explain(&session.cluster, &format!("cannot create workspace `{name}`"))?,
    };
    session.select(&name).await?;
    let head = session.api::<Secret>().get_metadata_opt(&names::state_secret(&name)).await;
    // A user who may not read Secrets is not told.
    let head = head.ok().flatten().filter(|_| !args.external_state);
    if let Some(state) = head.and_then(|head| knoll_storage::states::summary(head.labels(), head.annotations())) {
        style::note(&format!(
            "workspace `{name}` takes over the state of an earlier workspace of that name: serial {}, resources: {}",
            state.summary.serial, state.summary.resources
        ));
    }
    style::say(
        "Created",
        &format!("workspace `{name}` in namespace `{}` and selected it in this directory", session.namespace),
    );
    Ok(ExitCode::SUCCESS)
}
