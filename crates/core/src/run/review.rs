//! The part of a Run's machine in which a person decides.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    approval::Decision as Choice,
    names::{condition, reason},
    run::{ReviewDecision, Run, RunApproval, RunPhase, RunStatus, StepName, StepState},
};

use super::{
    RunDecision, RunFacts, after, before_pod, create_pod, ended, is_cancelled, is_past, is_superseded, progress,
    requested_by,
    status::{self, Cause},
    steps::{self, Stage},
    stopped,
};
use crate::{
    approval::{self, Verdict},
    conditions::{ConditionWriter, Truth},
    policy::{Demands, Reviewers},
};

/// A Run that waits for a decision. The Policies of this moment count, not those of its start.
pub(super) fn in_review(seen: &RunFacts<'_>, mut status: RunStatus, now: Timestamp) -> RunDecision {
    let run = seen.run;
    if is_cancelled(run) {
        let cause = stopped(run, " while it waited for a decision.");
        return ended(seen, status, RunPhase::Cancelled, &cause, now);
    }
    if is_superseded(run) {
        let cause = super::superseded("while it waited for a decision");
        return ended(seen, status, RunPhase::Discarded, &cause, now);
    }
    let demands = seen.demands();
    if let Some(rule) = rule_that_approves(run, &status, demands.as_ref()) {
        let by = format!("the rule {rule}");
        let decision = ReviewDecision { approvals: Vec::new(), decision: Choice::Approve, by };
        return decided(seen, status, decision, now);
    }
    let (reviewers, why) = match demands {
        Some(demands) => (demands.reviewers, demands.review_reason),
        None => (seen.policy.reviewers_of(run), None),
    };
    let digest = status.review_digest.clone().unwrap_or_default();
    let verdict = approval::judge(run, &digest, seen.approvals.iter().copied(), &reviewers);
    if let Verdict::Decided(decision) = verdict {
        return decided(seen, status, decision, now);
    }
    let timeouts = seen.timeouts();
    let since = status::step(&status, StepName::Review).and_then(|step| step.started_at.clone());
    let deadline = after(since.as_ref().map(|time| time.0), timeouts.review.as_ref().map(|limit| limit.get()));
    if let (true, Some(limit)) = (is_past(deadline, now), &timeouts.review) {
        let message = format!("It was not approved within {limit} (timeouts.review).");
        return ended(seen, status, RunPhase::Discarded, &Cause::new(reason::TIMED_OUT, message), now);
    }
    let details = why.into_iter().chain(open_points(run, &verdict, &reviewers)).collect::<Vec<_>>().join(" ");
    let waiting = progress::waiting_for_approval(run);
    let message = if details.is_empty() { waiting } else { format!("{waiting} {details}") };
    let cause = Cause::new(reason::WAITING_FOR_APPROVAL, message);
    status::enter(&mut status, run, RunPhase::Review, &cause, now);
    if let Some(step) = status.steps.iter_mut().find(|step| step.name == StepName::Review) {
        step.message = Some(details).filter(|details| !details.is_empty());
    }
    let mut conditions = ConditionWriter::new(&mut status.conditions, run.metadata.generation, now);
    if let Verdict::Open { mismatch: Some(_), uncounted: None, .. } = verdict {
        conditions.set(condition::APPROVED, false, reason::DIGEST_MISMATCH, cause.message);
    } else {
        conditions.set(condition::APPROVED, Truth::Unknown, reason::WAITING_FOR_APPROVAL, cause.message);
    }
    // The pod that planned has nothing more to do, and its files hold the state.
    super::cleanup::done(seen, since.map(|time| time.0), status, now).at_the_latest(deadline)
}

/// How far an open review is, in sentences: the Approvals that count, and the last one that does not.
fn open_points(run: &Run, verdict: &Verdict, reviewers: &Reviewers) -> Vec<String> {
    let Verdict::Open { mismatch, counted, needed, uncounted } = verdict else { return Vec::new() };
    let mut points = Vec::new();
    if *needed > 1 {
        let by = if counted.is_empty() { String::new() } else { format!(" (by {})", counted.join(", ")) };
        points.push(format!("It has {} of {needed} Approvals{by}.", counted.len()));
    }
    if let (None, Some(policy)) = (requested_by(run), reviewers.four_eyes.first()) {
        points.push(format!(
            "It needs one more Approval, as spec.requestedBy does not name its requester: Policy `{policy}` (spec.review.fourEyes)."
        ));
    }
    if let Some((name, why)) = uncounted {
        points.push(format!("Approval `{name}` does not count. {why}"));
    } else if let Some(name) = mismatch {
        points.push(format!("Approval `{name}` names another digest and has no effect."));
    }
    points
}

/// A person has decided on exactly what the run waits for.
fn decided(seen: &RunFacts<'_>, mut status: RunStatus, decision: ReviewDecision, now: Timestamp) -> RunDecision {
    let run = seen.run;
    let approved = decision.decision == Choice::Approve;
    if approved {
        if let Some(cause) = seen.lost_job() {
            return ended(seen, status, RunPhase::Failed, &cause, now);
        }
        // A Policy may have become stricter since the run was planned. It judges the frozen job, which is what runs.
        match seen.demands() {
            None => return super::workspace_gone(seen, now),
            Some(demands) if !demands.violations.is_empty() => return super::refused(seen, status, &demands, now),
            Some(_) => {}
        }
    }
    let word = if approved { "approved" } else { "discarded" };
    let why = if approved { reason::APPROVED } else { reason::DISCARDED };
    let approvals: Vec<String> = decision.approvals.iter().map(|approval| format!("`{approval}`")).collect();
    let message = match approvals.as_slice() {
        [] => format!("It was {word} by {}.", decision.by),
        [approval] => format!("It was {word} by {} (Approval {approval}).", decision.by),
        approvals => format!("It was {word} by {} (Approvals {}).", decision.by, approvals.join(", ")),
    };
    let cause = Cause::new(why, message);
    if let Some(step) = status.steps.iter_mut().find(|step| step.name == StepName::Review) {
        step.state = if approved { StepState::Succeeded } else { StepState::Cancelled };
        step.finished_at = Some(MicroTime(now));
        step.message = Some(cause.message.clone());
    }
    ConditionWriter::new(&mut status.conditions, run.metadata.generation, now).set(
        condition::APPROVED,
        approved,
        &cause.reason,
        cause.message.clone(),
    );
    status.decision = Some(decision);
    status.review_digest = None;
    if !approved {
        return ended(seen, status, RunPhase::Discarded, &cause, now);
    }
    if steps::is_split(&run.spec, &status) {
        return create_pod(seen, status, Stage::Apply, now);
    }
    // A command was approved before it had its turn: now it queues as any other.
    status::enter(&mut status, run, RunPhase::Pending, &cause, now);
    before_pod(seen, status, now)
}

/// Begins the review of a privileged command: of its words, and of the bundle and the frozen job that the status names.
pub(super) fn begin_command(status: &mut RunStatus, run: &Run, now: Timestamp) {
    let digest = approval::command_digest(&run.spec, status);
    progress::begin_review(status, run, digest, now);
}

/// The rule by which the plan is applied without a person's decision, now as when the run started, if there is one.
fn rule_that_approves(run: &Run, status: &RunStatus, demands: Option<&Demands>) -> Option<&'static str> {
    if !steps::is_split(&run.spec, status) {
        return None;
    }
    let approvals = [steps::approval(&run.spec, status), demands?.approval];
    let destroys_nothing = status.plan.as_ref().is_some_and(|plan| plan.destroy == 0);
    if approvals == [RunApproval::Auto; 2] {
        Some("Auto")
    } else if destroys_nothing
        && approvals.iter().all(|it| matches!(it, RunApproval::Auto | RunApproval::ManualOnDestroy))
    {
        Some("ManualOnDestroy")
    } else {
        None
    }
}
