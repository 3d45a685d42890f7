//! What a runner's report does to its Run's status.
//!
//! *Guarantees.* A report can be merged any number of times with the same result; one that arrives late never
//! undoes what a newer one said; after an end nothing changes.
//!
//! *Assumption.* The caller has checked that the report comes from the Run's current pod.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    names::{condition, reason},
    run::{PlanSummary, Run, RunPhase, RunStatus, StepName, StepState, StepStatus},
    verdict::PlanVerdict,
    wire::{EndReason, Exit, Progress},
};

use crate::{
    approval,
    conditions::{ConditionWriter, Truth},
    policy::plan,
    run::isolated,
    status::{self, Cause},
    steps::{self, Stage},
};

/// What a run is told whose plan cannot be described in a pod of its own.
const NOT_DESCRIBED: &str = "The pod of its own that describes the plan for the rules of Policies (spec.plan.isolated) has not done so, and nothing is applied: ";

/// How many variables a status names that the module does not declare.
const UNDECLARED_MAX: usize = 32;

/// The longest name of a variable that a status takes from a report.
const NAME_BYTES: usize = 253;

/// The status of a run after its pod has reported.
#[must_use]
pub fn merge(run: &Run, progress: &Progress, now: Timestamp) -> RunStatus {
    let mut next = status::of(run);
    // In a review the pod has said its last word; what still comes of it is a repetition.
    if next.phase.is_finished() || next.phase == RunPhase::Review {
        return next;
    }
    next.reported_at.get_or_insert(MicroTime(now));
    // Taken before the steps of the report are: no pod moves its run to another stage.
    let stage = steps::stage(&run.spec, &next);
    for step in progress.steps.iter().filter(|step| may_report(stage, step.name)) {
        let known = status::step(&next, step.name);
        if known.is_none_or(|known| age(step) >= age(known)) {
            status::set_step(&mut next, step.clone());
        }
    }
    // A plan that somebody has decided on stays as it was when they did, and so do the images that it ran in.
    let job_is_open = stage == Stage::Plan;
    if let Some(plan) = progress.plan.as_ref().filter(|plan| may_describe(stage, &next, plan)) {
        next.plan = Some(plan.clone());
    }
    if let Some(bundle) = &progress.bundle {
        next.bundle.get_or_insert_with(|| bundle.to_string());
    }
    // A second pod reads the same module, and an earlier report may not know it yet.
    if !progress.undeclared_variables.is_empty() {
        let names = progress.undeclared_variables.iter().filter(|name| name.len() <= NAME_BYTES);
        next.undeclared_variables = names.take(UNDECLARED_MAX).cloned().collect();
    }
    note(&mut next, run, progress, now);
    match &progress.exit {
        None => {
            let cause = under_way(&next, run, progress.prompted_at.as_ref());
            status::enter(&mut next, run, RunPhase::Running, &cause, now);
        }
        Some(exit) => {
            if let (Some(job), true) = (next.job.as_mut(), job_is_open) {
                job.image_digests.clone_from(&progress.image_digests);
            }
            end(&mut next, run, exit, now);
        }
    }
    next
}

/// Whether a pod of this stage says how the step goes. The review is no step of a pod: its sentence says who has decided.
/// The step `judge` is there from the moment in which the pod that plans was left behind, and says so.
fn may_report(stage: Stage, step: StepName) -> bool {
    match step {
        StepName::Review => false,
        StepName::Judge => stage == Stage::Judge,
        _ => true,
    }
}

/// Whether a pod of this stage says what the plan does. One that describes a stored plan speaks of that plan only.
fn may_describe(stage: Stage, status: &RunStatus, plan: &PlanSummary) -> bool {
    match stage {
        Stage::Whole | Stage::Plan => true,
        Stage::Judge => plan.changes && status.plan.as_ref().is_some_and(|known| known.digest == plan.digest),
        Stage::Apply => false,
    }
}

/// How late in the run a picture of a step was taken. A second pod does a step again, and starts it later.
fn age(step: &StepStatus) -> (Option<Timestamp>, u32, bool, Option<Timestamp>) {
    let time = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0);
    (time(&step.started_at), step.attempts, step.state.is_finished(), time(&step.finished_at))
}

/// `Planned` and `Attached`.
fn note(next: &mut RunStatus, run: &Run, progress: &Progress, now: Timestamp) {
    let plan = next.plan.clone();
    let mut writer = ConditionWriter::new(&mut next.conditions, run.metadata.generation, now);
    if let Some(plan) = plan {
        let (why, message) = if plan.changes {
            (reason::PLANNED, format!("{}.", plan.counts()))
        } else {
            (reason::NO_CHANGES, "No changes.".to_owned())
        };
        writer.set(condition::PLANNED, true, why, message);
    }
    if progress.attached {
        writer.set(condition::ATTACHED, true, reason::ATTACHED, "A client is attached.");
    }
}

/// What a run under way says of itself.
fn under_way(next: &RunStatus, run: &Run, prompted_at: Option<&MicroTime>) -> Cause {
    if let Some(since) = prompted_at {
        let name = run.metadata.name.as_deref().unwrap_or_default();
        let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
        let since = since.0.strftime("%Y-%m-%dT%H:%M:%SZ");
        let message = format!("Waiting for an answer in a terminal since {since}: knoll attach {name} -n {namespace}");
        return Cause::new(reason::WAITING_FOR_ANSWER, message);
    }
    let message = match next.steps.iter().rfind(|step| step.state == StepState::Running) {
        Some(step) => format!("Step `{}` is running.", step.name),
        None => "The runner has started.".to_owned(),
    };
    Cause::new(reason::PROGRESSING, message)
}

/// The pod's work is done: a review begins, or the run ends.
fn end(next: &mut RunStatus, run: &Run, exit: &Exit, now: Timestamp) {
    let stage = steps::stage(&run.spec, next);
    let planned_for_review = exit.code == 0 && matches!(stage, Stage::Plan | Stage::Judge);
    if planned_for_review && stage == Stage::Plan && plan::is_isolated(next) {
        isolated::hand_over(next, run, now);
        return;
    }
    let has_plan = exit.code == 0 || exit.reason == Some(EndReason::Succeeded);
    if let Some(cause) = refused_plan(next, run).filter(|_| has_plan) {
        next.exit_code = Some(exit.code);
        status::finish(next, run, RunPhase::Failed, &cause, now);
        return;
    }
    if planned_for_review && next.plan.as_ref().is_none_or(|plan| plan.changes) {
        review(next, run, now);
        return;
    }
    next.exit_code = Some(exit.code);
    let told = |fallback: EndReason, sentence: String| {
        let reason = exit.reason.unwrap_or(fallback);
        let message = exit.message.clone().unwrap_or(sentence);
        let what = if stage == Stage::Judge { NOT_DESCRIBED } else { "" };
        Cause::new(reason.as_str(), format!("{what}{message}"))
    };
    let stopped = exit.reason == Some(EndReason::PodDeleted) && crate::run::is_cancelled(run);
    if stopped {
        // The pod of a run that does not stop in time is deleted by us.
        let cause = Cause::new(reason::CANCELLED, "It was cancelled, and its pod was stopped.");
        status::finish(next, run, RunPhase::Cancelled, &cause, now);
    } else if exit.reason == Some(EndReason::Cancelled) {
        let cause = told(EndReason::Cancelled, format!("It was cancelled; exit code {}.", exit.code));
        status::finish(next, run, RunPhase::Cancelled, &cause, now);
    } else if exit.code == 0 || exit.reason == Some(EndReason::Succeeded) {
        // `plan -detailed-exitcode` succeeds with 2.
        let operation = run.spec.operation.as_str();
        let cause = told(EndReason::Succeeded, format!("The {operation} succeeded."));
        status::finish(next, run, RunPhase::Succeeded, &cause, now);
    } else {
        let failed = next.steps.iter().rfind(|step| step.state == StepState::Failed);
        let sentence = match failed {
            Some(StepStatus { name, message: Some(message), .. }) => format!("Step `{name}` failed: {message}"),
            Some(StepStatus { name, .. }) => {
                format!("Step `{name}` failed with exit code {}.", exit.code)
            }
            None => format!("The runner ended with exit code {}.", exit.code),
        };
        let cause = told(EndReason::StepFailed, sentence);
        status::finish(next, run, RunPhase::Failed, &cause, now);
    }
}

/// Why the rules of Policies do not let the plan go further. A plan that was approved has passed them.
fn refused_plan(next: &RunStatus, run: &Run) -> Option<Cause> {
    let stage = steps::stage(&run.spec, next);
    if stage == Stage::Apply { None } else { plan::refusal(next, matches!(stage, Stage::Plan | Stage::Judge)) }
}

/// The verdict of the rules of Policies on the plan of a pod that is at work. It never changes once the pod has ended.
#[must_use]
pub fn judge(run: &Run, verdict: &PlanVerdict) -> RunStatus {
    let mut next = status::of(run);
    let is_open = !next.phase.is_finished() && next.phase != RunPhase::Review;
    let stage = steps::stage(&run.spec, &next);
    let Some(open) = next.plan_verdict.as_ref().filter(|_| is_open) else { return next };
    // Where a pod of its own describes the plan, nothing that any other pod sends counts.
    let may_judge = match stage {
        Stage::Whole | Stage::Plan => open.isolated.is_none(),
        Stage::Judge => true,
        Stage::Apply => false,
    };
    if may_judge {
        next.plan_verdict = Some(PlanVerdict { isolated: open.isolated.clone(), ..verdict.clone() });
    }
    next
}

/// The plan is stored and waits for a person; a plan without a digest cannot be approved byte for byte.
fn review(next: &mut RunStatus, run: &Run, now: Timestamp) {
    debug_assert!(steps::is_split(&run.spec, next));
    let Some(digest) = approval::plan_digest(next) else {
        let missing = match next {
            RunStatus { job: None, .. } => "The job of the run was not frozen",
            RunStatus { bundle: None, .. } => {
                "The planned files are no longer stored, because their source has changed"
            }
            _ => "The runner ended without the digests of its plan and of the plan's text",
        };
        let message = format!("{missing}, so there is nothing to approve; run it again.");
        status::finish(next, run, RunPhase::Failed, &Cause::new(reason::RUNNER_LOST, message), now);
        return;
    };
    begin_review(next, run, digest, now);
}

/// The message of a run that waits for an Approval.
pub(crate) fn waiting_for_approval(run: &Run) -> String {
    let name = run.metadata.name.as_deref().unwrap_or_default();
    let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
    format!("Waiting for approval: knoll approve {name} -n {namespace}, or knoll discard {name} -n {namespace}.")
}

/// Lets the run wait for an Approval of `digest`.
pub(crate) fn begin_review(next: &mut RunStatus, run: &Run, digest: String, now: Timestamp) {
    let message = waiting_for_approval(run);
    next.review_digest = Some(digest);
    let step = StepStatus { state: StepState::Waiting, ..StepStatus::started(StepName::Review, MicroTime(now), 0) };
    status::set_step(next, StepStatus { log_offset: None, ..step });
    let cause = Cause::new(reason::WAITING_FOR_APPROVAL, message);
    status::enter(next, run, RunPhase::Review, &cause, now);
    ConditionWriter::new(&mut next.conditions, run.metadata.generation, now).set(
        condition::APPROVED,
        Truth::Unknown,
        &cause.reason,
        cause.message,
    );
}

#[cfg(test)]
mod tests;
