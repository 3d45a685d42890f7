//! `knoll stack plan`.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::run::{Operation, RunSpec};
use knoll_api::{Run, Workspace};
use kube::ResourceExt;
use kube::api::PostParams;

use super::get;
use crate::connect::{Connection, Explain};
use crate::run::{follow, start};
use crate::workspace::Session;
use crate::{output, style};

/// The arguments of `knoll stack plan`.
#[derive(clap::Args)]
pub struct StackPlanArgs {
    #[command(flatten)]
    connection: Connection,
    /// The name of the stack
    #[arg(add = crate::complete::stacks(), value_parser = crate::workspace::plain_name::<knoll_api::Stack>)]
    name: String,
    /// Print the name of the run and do not wait for it
    #[arg(long, env = "KNOLL_DETACH")]
    detach: bool,
}

/// Starts a Run that plans the current revision of the Stack, and prints its plan. The Run needs no lock.
pub async fn run(args: StackPlanArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let stack = get(&session, &args.name).await?;
    let spec = RunSpec {
        workspace: args.name.clone(),
        operation: Operation::Plan,
        source: Some(stack.spec.source.clone()),
        variables: stack.spec.variables.clone(),
        variables_from: stack.spec.variables_from.clone(),
        hooks: stack.spec.hooks.clone(),
        retry: stack.spec.retry.clone(),
        args: if style::stdout_is_coloured() { Vec::new() } else { vec!["-no-color".to_owned()] },
        requested_by: Some(session.cluster.user().await?.to_owned()),
        ..RunSpec::default()
    };
    let mut run = Run::new("", spec);
    run.metadata.name = None;
    run.metadata.generate_name = Some(format!("{}-plan-", args.name));
    let created = session.api::<Run>().create(&PostParams::default(), &run).await;
    let run = created.explain(&session.cluster, &format!("cannot plan stack `{}`", args.name))?;
    let name = run.name_any();
    start::announce(&session, &run);
    if let Ok(Some(workspace)) = session.api::<Workspace>().get_opt(&args.name).await {
        start::say_who_changes(&session, &workspace).await;
    }
    if args.detach {
        output::print(&format!("{name}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(follow::exit(&follow::follow(&session, run).await?, &name))
}
