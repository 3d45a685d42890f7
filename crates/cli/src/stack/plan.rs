//! `knoll stack plan`.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Run;
use knoll_api::run::{Operation, RunSpec};
use kube::ResourceExt;
use kube::api::PostParams;

use super::get;
use crate::connect::{Connection, Explain};
use crate::output;
use crate::style;
use crate::workspace::Place;

/// The arguments of `knoll stack plan`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Its name
    #[arg(add = crate::complete::stacks())]
    name: String,
}

/// Starts a Run that plans the Stack as it is declared now. It needs no lock and changes nothing.
pub async fn run(args: Args, outer: &Connection) -> Result<ExitCode> {
    let place = Place::find(&args.connection.or(outer)).await?;
    let stack = get(&place, &args.name).await?;
    let spec = RunSpec {
        workspace: args.name.clone(),
        operation: Operation::Plan,
        source: Some(stack.spec.source.clone()),
        variables: stack.spec.variables.clone(),
        variables_from: stack.spec.variables_from.clone(),
        hooks: stack.spec.hooks.clone(),
        retry: stack.spec.retry.clone(),
        ..RunSpec::default()
    };
    let mut run = Run::new("", spec);
    run.metadata.name = None;
    run.metadata.generate_name = Some(format!("{}-plan-", args.name));
    let created = place.api::<Run>().create(&PostParams::default(), &run).await;
    let name = created.explain(&place.cluster, &format!("cannot plan the stack `{}`", args.name))?.name_any();
    style::hint_aside(&format!("`knoll logs --follow {name}` shows the plan."));
    output::print(&format!("{name}\n"))?;
    Ok(ExitCode::SUCCESS)
}
