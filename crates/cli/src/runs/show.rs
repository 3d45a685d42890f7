//! `knoll run show`.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use knoll_api::names::{self, condition};
use knoll_api::run::RunApproval;
use knoll_api::{Approval, Run};
use kube::ResourceExt;

use super::{diff, list, phase, plan_text, verdict};
use crate::connect::Connection;
use crate::output::table::{Cell, Table};
use crate::output::{self, OutputArgs, time, visible, visible_line};
use crate::style;
use crate::workspace::Session;

/// The arguments of `knoll run`.
#[derive(clap::Args)]
pub struct RunCommand {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show the steps, the plan and the result of a run
    Show(RunShowArgs),
}

/// The arguments of `knoll run show`.
#[derive(clap::Args)]
struct RunShowArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputArgs,
    /// The run
    #[arg(add = crate::complete::runs(), value_parser = crate::workspace::plain_name::<knoll_api::Run>)]
    run: String,
}

pub async fn run(args: RunCommand, outer: &Connection) -> Result<ExitCode> {
    let outer = args.connection.or(outer);
    let Command::Show(args) = args.command;
    let session = Session::find(&args.connection.or(&outer)).await?;
    let run = super::get(&session, &args.run).await?;
    let plan = match plan_text::read(&session, &run).await {
        Ok(plan) => plan,
        Err(error) => {
            style::note(&plan_text::refusal(&run, &error));
            None
        }
    };
    let comment = comment(&session, &run).await;
    output::one(&run, args.output.output, |_| {
        text(&run, comment.as_deref().unwrap_or_default(), plan.as_deref(), Timestamp::now())
    })
}

/// The comment of the Approval that decided the run.
async fn comment(session: &Session, run: &Run) -> Option<String> {
    let decision = run.status.as_ref()?.decision.as_ref()?;
    let approval = decision.approvals.last()?;
    session.api::<Approval>().get_opt(approval).await.ok()??.spec.comment
}

/// The details of a run, for a person.
pub fn text(run: &Run, comment: &str, plan_text: Option<&str>, now: Timestamp) -> String {
    let status = run.status.clone().unwrap_or_default();
    let mut out = String::new();
    let mut field = |label: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(out, "{:<12}{}", format!("{label}:"), visible(value));
        }
    };
    field("Run", &run.name_any());
    if let Some(namespace) = run.namespace() {
        field("Namespace", &namespace);
    }
    field("Workspace", &run.spec.workspace);
    field("Command", visible_line(&list::words(run)).as_str());
    field("Requester", knoll_core::run::requested_by(run).unwrap_or_default());
    let input = run.spec.input.as_ref().map(|_| format!("in the Secret `{}`", names::input_secret(&run.name_any())));
    field("Input", &input.unwrap_or_default());
    field("Phase", status.phase.as_str());
    field("Canceller", knoll_core::run::cancelled_by(run).unwrap_or_default());
    let ready = status.conditions.iter().find(|condition| condition.type_ == condition::READY);
    field("Message", &indented(ready.map(|ready| ready.message.as_str()).unwrap_or_default()));
    field("Exit code", &status.exit_code.map(|code| code.to_string()).unwrap_or_default());
    field("Started", &status.started_at.as_ref().map(|at| time::moment(at.0)).unwrap_or_default());
    field("Time", &time::took(status.started_at.as_ref(), status.finished_at.as_ref(), now));
    field("Bundle", status.bundle.as_deref().unwrap_or_default());
    let asks = matches!(run.spec.approval, RunApproval::Manual | RunApproval::ManualOnDestroy);
    if asks || status.review_digest.is_some() || status.decision.is_some() {
        let decided = status.decision.as_ref().map(|decision| format!("{:?} by {}", decision.decision, decision.by));
        field("Decision", &decided.unwrap_or_else(|| "open".to_owned()));
        field("Comment", comment);
        field("Digest", status.review_digest.as_deref().unwrap_or_default());
    }
    for (label, value) in knoll_core::run::covers::fields(&status) {
        field(label, &value);
    }
    if !status.steps.is_empty() {
        let mut table = Table::new(&["STEP", "STATE", "TIME", "ATTEMPTS", "EXIT", "MESSAGE"]);
        for step in &status.steps {
            let message = step.message.as_deref().and_then(|message| message.lines().next()).unwrap_or_default();
            table.row([
                Cell::from(step.name.as_str()),
                phase::step(step.state),
                time::took(step.started_at.as_ref(), step.finished_at.as_ref(), now).into(),
                step.attempts.to_string().into(),
                step.exit_code.map(|code| code.to_string()).unwrap_or_default().into(),
                message.into(),
            ]);
        }
        let _ = write!(out, "\n{table}");
    }
    if let Some(plan) = &status.plan {
        let _ = write!(out, "\nPlan:\n{}", diff::changes(plan, style::stdout_is_coloured()));
        if let Some(text) = plan_text {
            let _ = write!(out, "\n{text}");
        }
    }
    let rules = verdict::text(&status);
    if !rules.is_empty() {
        let _ = write!(out, "\n{rules}");
    }
    out
}

/// Indents the lines after the first below the value column.
fn indented(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(&format!("\n{:<12}", ""))
}
