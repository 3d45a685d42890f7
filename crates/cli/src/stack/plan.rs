//! `knoll stack plan`.

use std::process::ExitCode;

use anyhow::Result;
use knoll_api::Run;
use knoll_api::run::{Operation, RunSpec};
use kube::ResourceExt;
use kube::api::PostParams;

use super::get;
use crate::connect::{Connection, Explain};
use crate::run::follow;
use crate::workspace::Place;
use crate::{output, style};

/// The arguments of `knoll stack plan`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Its name
    #[arg(add = crate::complete::stacks())]
    name: String,
    /// Print the run's name and leave it to itself
    #[arg(long, env = "KNOLL_DETACH")]
    detach: bool,
}

/// Starts a Run that plans the Stack as it is declared now, and prints its plan. It needs no lock and changes nothing.
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
        args: if style::stdout_is_coloured() { Vec::new() } else { vec!["-no-color".to_owned()] },
        ..RunSpec::default()
    };
    let mut run = Run::new("", spec);
    run.metadata.name = None;
    run.metadata.generate_name = Some(format!("{}-plan-", args.name));
    let created = place.api::<Run>().create(&PostParams::default(), &run).await;
    let run = created.explain(&place.cluster, &format!("cannot plan the stack `{}`", args.name))?;
    let name = run.name_any();
    if args.detach {
        output::print(&format!("{name}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(follow::exit(&follow::follow(&place, run).await?, &name))
}
