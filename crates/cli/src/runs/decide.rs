//! `knoll approve` and `knoll discard`: a person's decision on exactly the plan that was shown.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use knoll_api::approval::{Approval, ApprovalSpec, Decision};
use knoll_api::names::field_manager;
use knoll_api::run::{Run, RunPhase};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};

use super::{diff, list, plan_text};
use crate::connect::{Connection, Explain};
use crate::run::follow;
use crate::workspace::Place;
use crate::{output, style};

/// To let the plan be applied.
pub const APPROVE: Decision = Decision::Approve;
/// To not let it be applied.
pub const DISCARD: Decision = Decision::Discard;

/// The arguments of `knoll approve` and `knoll discard`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    connection: Connection,
    /// The run
    #[arg(add = crate::complete::runs())]
    run: String,
    /// Why, for the record
    #[arg(long, short, env = "KNOLL_COMMENT", value_name = "TEXT")]
    comment: Option<String>,
    /// Do not ask
    #[arg(long, short, env = "KNOLL_YES")]
    yes: bool,
    /// Stay until the run has ended, and print what it prints
    #[arg(long, env = "KNOLL_FOLLOW")]
    follow: bool,
}

/// Shows the plan, asks, and records the decision.
pub async fn run(args: Args, decision: Decision, outer: &Connection) -> Result<ExitCode> {
    let (verb, done) = match decision {
        Decision::Approve => ("approve", "Approved"),
        Decision::Discard => ("discard", "Discarded"),
    };
    let place = Place::find(&args.connection.or(outer)).await?;
    let run = super::get(&place, &args.run).await?;
    let name = run.name_any();
    let digest = waiting_digest(&run)?;
    show(&place, &run).await?;
    if !args.yes {
        if !style::can_ask() {
            bail!(
                "`knoll {verb}` asks before it decides, and there is no terminal to ask on\n  add `--yes` if you have looked at the plan"
            );
        }
        if !style::confirm(&format!("{} exactly this plan ({})?", capital(verb), short(&digest)))? {
            bail!("nothing was decided; the run `{name}` waits on");
        }
        // Somebody else may have decided while the plan was looked at.
        waiting_digest(&super::get(&place, &name).await?)?;
    }
    let by = who(&place).await?;
    let spec = ApprovalSpec { run: name.clone(), digest, decision, by: by.clone(), comment: args.comment };
    let metadata = ObjectMeta { generate_name: Some(format!("{name}-")), ..ObjectMeta::default() };
    let params = PostParams { field_manager: Some(field_manager::CLI.to_owned()), ..PostParams::default() };
    let approval = Approval { metadata, spec, status: None };
    let created = place.api::<Approval>().create(&params, &approval).await;
    created.explain(&place.cluster, &format!("cannot {verb} the run `{name}`"))?;
    style::say(done, &format!("run `{name}`, as {by}"));
    if args.follow {
        let outcome = follow::follow(&place, super::get(&place, &name).await?).await?;
        return Ok(follow::exit(&outcome, &name));
    }
    Ok(ExitCode::SUCCESS)
}

fn waiting_digest(run: &Run) -> Result<String> {
    let (name, status) = (run.name_any(), run.status.clone().unwrap_or_default());
    match (status.phase, status.review_digest, status.decision) {
        (RunPhase::Review, Some(digest), _) => Ok(digest),
        (_, _, Some(decision)) => {
            Err(anyhow!("the run `{name}` was decided already: {:?} by {}", decision.decision, decision.by))
        }
        (phase, ..) if phase.is_finished() => {
            Err(anyhow!("the run `{name}` has ended ({}); there is nothing to decide", phase.as_str()))
        }
        (phase, ..) => Err(anyhow!(
            "the run `{name}` does not wait for a decision ({})\n  `knoll run show {name}` shows how far it is",
            phase.as_str()
        )),
    }
}

async fn show(place: &Place, run: &Run) -> Result<()> {
    let status = run.status.clone().unwrap_or_default();
    let mut text = format!("Run `{}` in workspace `{}`: {}", run.name_any(), run.spec.workspace, list::command(run));
    if !run.spec.args.is_empty() {
        text = format!("{text} {}", run.spec.args.join(" "));
    }
    text.push('\n');
    text += &plan_text::read(place, run).await.map(|plan| format!("\n{plan}\n")).unwrap_or_default();
    if let Some(plan) = &status.plan {
        text += &diff::changes(plan, style::stdout_is_coloured());
    }
    output::print(&text)
}

/// The name by which the cluster knows this user: an Approval in another name is refused.
async fn who(place: &Place) -> Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(place.cluster.client.clone());
    let answer = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let answer = answer.explain(&place.cluster, "cannot ask the cluster who you are")?;
    let name = answer.status.and_then(|status| status.user_info?.username);
    name.ok_or_else(|| anyhow!("the cluster does not say who you are; renew your access to it"))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn short(digest: &str) -> &str {
    digest.get(..19).unwrap_or(digest)
}
