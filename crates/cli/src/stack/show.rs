//! `knoll stack show`.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::Stack;
use knoll_api::names::condition;
use knoll_core::conditions;
use knoll_core::stack::needs;
use kube::ResourceExt;

use super::{get, short};
use crate::connect::Connection;
use crate::output::{self, OutputArgs, time, visible};
use crate::workspace::Session;

/// The arguments of `knoll stack show`.
#[derive(clap::Args)]
pub struct StackShowArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// The name of the stack
    #[arg(add = crate::complete::stacks(), value_parser = crate::workspace::plain_name::<knoll_api::Stack>)]
    name: String,
}

pub async fn run(args: StackShowArgs, outer: &Connection) -> Result<ExitCode> {
    let session = Session::find(&args.connection.or(outer)).await?;
    let stack = get(&session, &args.name).await?;
    output::one(&stack, args.output.output, |_| visible(&text(&stack, Timestamp::now())))
}

fn text(stack: &Stack, now: Timestamp) -> String {
    let status = stack.status.clone().unwrap_or_default();
    let mut out = String::new();
    let mut field = |label: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(out, "{:<14}{value}", format!("{label}:"));
        }
    };
    let condition_of = |kind: &str| conditions::find(&status.conditions, kind);
    let message = |kind: &str| {
        condition_of(kind).map(|found| found.message.replace('\n', "\n              ")).unwrap_or_default()
    };
    field("Stack", &stack.name_any());
    if let Some(namespace) = stack.namespace() {
        field("Namespace", &namespace);
    }
    field("Age", &time::age(stack.metadata.creation_timestamp.as_ref(), now));
    field("Phase", &super::list::phase(stack));
    field("Ready", condition_of(condition::READY).map_or("Unknown", |ready| ready.status.as_str()));
    field("Message", &message(condition::READY));
    field("Warning", &message(condition::VARIABLES_UNDECLARED));
    field("Requester", knoll_core::stack::requested_by(stack).unwrap_or_default());
    field("Revision", &short(status.revision.as_deref()));
    field("Pending", &short(status.pending_revision.as_deref()));
    field("Applied", &status.applied_at.as_ref().map(|at| time::moment(at.0)).unwrap_or_default());
    field("Last run", status.last_run.as_deref().unwrap_or_default());
    // A source that cannot be fetched is what the Stack waits for.
    let source = message(condition::FETCHED);
    field("Source", if source == message(condition::READY) { "" } else { &source });
    field("Depends on", &needs(stack).into_iter().collect::<Vec<_>>().join(", "));
    field("Drifted", condition_of(condition::DRIFTED).map(|drifted| drifted.status.as_str()).unwrap_or_default());
    field("Drift", &message(condition::DRIFTED));
    if !status.outputs.is_empty() {
        let _ = writeln!(out, "Outputs:");
        for (name, value) in &status.outputs {
            let _ = writeln!(out, "  {name} = {value}");
        }
    }
    out
}
