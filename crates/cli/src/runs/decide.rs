//! `knoll approve` and `knoll discard`: record a decision on the digest of the plan that was shown.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use knoll_api::approval::{Approval, ApprovalSpec, Decision};
use knoll_api::names::{self, field_manager};
use knoll_api::run::{Run, RunPhase};
use kube::api::{ObjectMeta, PostParams};
use kube::{Resource, ResourceExt};

use super::{covers, diff, list, plan_text};
use crate::connect::{Connection, Explain};
use crate::run::follow;
use crate::workspace::Session;
use crate::{output, style};

pub const APPROVE: Decision = Decision::Approve;
pub const DISCARD: Decision = Decision::Discard;

/// The arguments of `knoll approve` and `knoll discard`.
#[derive(clap::Args)]
pub struct DecisionArgs {
    #[command(flatten)]
    connection: Connection,
    /// The run
    #[arg(add = crate::complete::runs())]
    run: String,
    /// A comment for the record
    #[arg(long, short, env = "KNOLL_COMMENT", value_name = "TEXT")]
    comment: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short, env = "KNOLL_YES")]
    yes: bool,
    /// Follow the output until the run has finished
    #[arg(long, env = "KNOLL_FOLLOW")]
    follow: bool,
}

/// Shows the plan, asks for confirmation, and creates the Approval.
pub async fn run(args: DecisionArgs, decision: Decision, outer: &Connection) -> Result<ExitCode> {
    let (verb, done) = match decision {
        Decision::Approve => ("approve", "Approved"),
        Decision::Discard => ("discard", "Discarded"),
    };
    let session = Session::find(&args.connection.or(outer)).await?;
    let run = super::get(&session, &args.run).await?;
    let name = run.name_any();
    let digest = waiting_digest(&run)?;
    show(&session, &run).await?;
    if !args.yes {
        if !style::can_ask() {
            bail!(
                "`knoll {verb}` asks for confirmation, and there is no terminal\n  add `--yes` if you have reviewed the plan"
            );
        }
        if !style::confirm(&format!("{} this plan ({})?", capital(verb), short(&digest)))? {
            bail!("no decision was recorded; run `{name}` is still waiting for one");
        }
        // Someone else may have decided in the meantime.
        waiting_digest(&super::get(&session, &name).await?)?;
    }
    let by = session.cluster.user().await?.to_owned();
    let groups = session.cluster.groups().await?.to_vec();
    let spec = ApprovalSpec { run: name.clone(), digest, decision, by: by.clone(), groups, comment: args.comment };
    // The record is deleted with the Run that it is about.
    let owner_references = Some(run.owner_ref(&()).into_iter().collect());
    let metadata = ObjectMeta { generate_name: Some(format!("{name}-")), owner_references, ..ObjectMeta::default() };
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    let approval = Approval { metadata, spec, status: None };
    let created = session.api::<Approval>().create(&params, &approval).await;
    created.explain(&session.cluster, &format!("cannot {verb} run `{name}`"))?;
    style::say(done, &format!("run `{name}`, as {by}"));
    if args.follow {
        let outcome = follow::follow(&session, super::get(&session, &name).await?).await?;
        return Ok(follow::exit(&outcome, &name));
    }
    Ok(ExitCode::SUCCESS)
}

fn waiting_digest(run: &Run) -> Result<String> {
    let (name, status) = (run.name_any(), run.status.clone().unwrap_or_default());
    match (status.phase, status.review_digest, status.decision) {
        (RunPhase::Review, Some(digest), _) => Ok(digest),
        (_, _, Some(decision)) => {
            Err(anyhow!("run `{name}` already has a decision: {:?} by {}", decision.decision, decision.by))
        }
        (phase, ..) if phase.is_finished() => {
            Err(anyhow!("run `{name}` has finished ({}); there is nothing to decide", phase.as_str()))
        }
        (phase, ..) => Err(anyhow!(
            "run `{name}` is not waiting for a decision ({})\n  `knoll run show {name}` shows its progress",
            phase.as_str()
        )),
    }
}

async fn show(session: &Session, run: &Run) -> Result<()> {
    let status = run.status.clone().unwrap_or_default();
    let mut text = format!("Run `{}` in workspace `{}`: {}", run.name_any(), run.spec.workspace, list::command(run));
    if !run.spec.args.is_empty() {
        text = format!("{text} {}", run.spec.args.join(" "));
    }
    text.push('\n');
    if run.spec.input.is_some() {
        let secret = names::input_secret(&run.name_any());
        text += &format!("Its variable files, values and piped input are in the Secret `{secret}`.\n");
    }
    text += &plan_text::read(session, run).await.map(|plan| format!("\n{plan}\n")).unwrap_or_default();
    if let Some(plan) = &status.plan {
        text += &diff::changes(plan, style::stdout_is_coloured());
    }
    text += &covers::text(&status);
    output::print(&text)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}
