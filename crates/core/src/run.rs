//! The machine of a Run: from what is seen to its next status and the one thing to do.
//!
//! ```text
//! Pending -> Queued -> Starting -> Running -> Succeeded | Failed | Cancelled
//!                                  Running -> Review -> Running | Discarded | Cancelled
//! Pending -> Review -> Queued      (a privileged command is approved before it queues)
//! ```
//!
//! *Guarantees.* A pod is asked for only while the run is the active one of its Workspace, or needs no lock.
//! A run whose pod may still work never ends, unless its node is lost or its runner has said so. Deciding again
//! on the same facts decides the same. A run that may change the state holds on to itself by a finalizer until it has
//! ended: to delete it is to cancel it, and it is gone when its state is in.
//!
//! A run whose Workspace is missing stays `Pending` and says so: it goes on as soon as the Workspace is there,
//! which is what a user expects who applies both in one file. `timeouts.queue` bounds that wait too.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::MicroTime};
use knoll_api::{
    approval::{Approval, Decision as Choice},
    names::{annotation, cancel, condition, finalizer, reason},
    run::{ReviewDecision, Run, RunApproval, RunPhase, RunSpec, RunStatus, StepName, StepState},
    workspace::Workspace,
};
use kube::ResourceExt;

use crate::{
    approval::{self, Verdict},
    conditions::{self, Pen},
    fate::{self, Fate},
    pod::GRACE_SECONDS,
    progress,
    queue::{self, Lane},
    status::{self, Cause},
    steps::{self, Stage},
};

/// How long the pod of a run that has ended may go on before it is deleted.
const STRAY_AFTER: std::time::Duration = std::time::Duration::from_secs(300);

/// How soon to look again whether a Workspace has taken note of a run's end.
const TAKE_NOTE: std::time::Duration = std::time::Duration::from_secs(1);

/// Everything that the next step of a run depends on.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its Workspace, when there is one.
    pub workspace: Option<&'a Workspace>,
    /// The pod that the run's status names by its UID; `None` when it has none or that pod is gone.
    pub pod: Option<&'a Pod>,
    /// The Approvals that name the run.
    pub approvals: &'a [&'a Approval],
    /// The digest of the module's files, as far as it is known; only asked for when a command is privileged.
    pub bundle: Option<&'a str>,
}

/// What to do, each safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put the finalizer on the run, so that it stays until its pod has handed in its state.
    AddFinalizer,
    /// Take the finalizer off: nothing of the run is at work any more.
    RemoveFinalizer,
    /// Create the pod of this stage, then write the status that [`started`] gives.
    CreatePod(Stage),
    /// Delete this pod, with the grace period it came with.
    DeletePod {
        /// Its name.
        name: String,
        /// Its UID, so that no other pod of that name is hit.
        uid: String,
    },
    /// Delete the run itself: it was kept long enough.
    DeleteRun,
}

/// What follows from what was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The run's next status.
    pub status: RunStatus,
    /// What to do before the status is written.
    pub action: Option<Action>,
    /// When to look again although nothing has changed.
    pub requeue_at: Option<Timestamp>,
}

impl Decision {
    fn keep(status: RunStatus) -> Self {
        Self { status, action: None, requeue_at: None }
    }

    fn act(status: RunStatus, action: Action) -> Self {
        Self { status, action: Some(action), requeue_at: None }
    }

    fn at(mut self, time: Option<Timestamp>) -> Self {
        self.requeue_at = time;
        self
    }
}

/// Whether somebody asked for the run to be stopped: whoever deletes it does.
#[must_use]
pub fn is_cancelled(run: &Run) -> bool {
    run.annotations().contains_key(annotation::CANCEL) || run.metadata.deletion_timestamp.is_some()
}

/// What became of the run, in a sentence: it was cancelled, or deleted.
fn stopped(run: &Run, then: &str) -> Cause {
    let word = if run.annotations().contains_key(annotation::CANCEL) { "cancelled" } else { "deleted" };
    Cause::new(reason::CANCELLED, format!("It was {word}{then}"))
}

/// Whether the run holds on to itself until it has ended.
fn is_held(run: &Run) -> bool {
    run.finalizers().iter().any(|held| held == finalizer::RUN)
}

/// The finalizers that a run is created with. What may change the state is not gone before its state is in.
#[must_use]
pub fn finalizers(spec: &RunSpec) -> Option<Vec<String>> {
    (queue::lane(spec) == Lane::Queue).then(|| vec![finalizer::RUN.to_owned()])
}

/// Whether a newer revision has taken the run's place.
#[must_use]
pub fn is_superseded(run: &Run) -> bool {
    run.annotations().contains_key(annotation::SUPERSEDED)
}

/// Whether the run asks for a decision only on what destroys, and its plan destroys nothing.
fn is_harmless(run: &Run, status: &RunStatus) -> bool {
    run.spec.approval == RunApproval::ManualOnDestroy
        && steps::is_reviewed(&run.spec)
        && status.plan.as_ref().is_some_and(|plan| plan.destroy == 0)
}

/// Decides what follows from what was seen.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Decision {
    let status = status::of(seen.run);
    match status.phase {
        RunPhase::Pending | RunPhase::Queued => before_pod(seen, status, now),
        RunPhase::Starting | RunPhase::Running => with_pod(seen, status, now),
        RunPhase::Review => in_review(seen, status, now),
        RunPhase::Succeeded | RunPhase::Failed | RunPhase::Cancelled | RunPhase::Discarded => {
            after_end(seen, status, now)
        }
    }
}

/// The status of a run whose pod has been created.
///
/// `decided` is the status that [`decide`] gave with [`Action::CreatePod`].
#[must_use]
pub fn started(run: &Run, mut decided: RunStatus, pod: &Pod, now: Timestamp) -> RunStatus {
    decided.pod_name = Some(pod.name_any());
    decided.pod_uid = pod.uid();
    decided.started_at.get_or_insert(MicroTime(now));
    // The second pod follows a review: its run was under way already.
    let phase = if decided.decision.is_some() && steps::is_reviewed(&run.spec) {
        RunPhase::Running
    } else {
        RunPhase::Starting
    };
    let cause = Cause::new(reason::POD_CREATED, format!("Pod `{}` was created.", pod.name_any()));
    status::enter(&mut decided, run, phase, &cause, now);
    decided
}

/// The status of a run whose pod can never be created.
#[must_use]
pub fn refused(run: &Run, mut decided: RunStatus, reason: &str, message: &str, now: Timestamp) -> RunStatus {
    status::finish(&mut decided, run, RunPhase::Failed, &Cause::new(reason, message), now);
    decided
}

/// The status of a run whose pod could not be created this time: it stays where it is, and says why.
#[must_use]
pub fn hindered(run: &Run, message: &str, now: Timestamp) -> RunStatus {
    let mut status = status::of(run);
    let phase = status.phase;
    status::enter(&mut status, run, phase, &Cause::new(reason::POD_FAILED, message), now);
    status
}

fn before_pod(seen: &Observed<'_>, mut status: RunStatus, now: Timestamp) -> Decision {
    let run = seen.run;
    if is_cancelled(run) {
        let cause = stopped(run, " before it started.");
        return ended(seen, status, RunPhase::Cancelled, &cause, now);
    }
    if is_superseded(run) {
        let cause = Cause::new(reason::SUPERSEDED, "A newer revision took its place before it started.");
        return ended(seen, status, RunPhase::Discarded, &cause, now);
    }
    let timeouts = steps::timeouts(&run.spec, seen.workspace);
    let queued_since = run.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let deadline = after(queued_since, timeouts.queue.as_ref().map(|limit| limit.get()));
    if let (true, Some(limit)) = (is_past(deadline, now), &timeouts.queue) {
        let cause = Cause::new(reason::TIMED_OUT, format!("It did not get its turn within {limit} (timeouts.queue)."));
        return ended(seen, status, RunPhase::Cancelled, &cause, now);
    }
    let Some(workspace) = seen.workspace else {
        let (name, namespace) = (&run.spec.workspace, run.namespace().unwrap_or_default());
        let cause = Cause::new(
            reason::WORKSPACE_NOT_FOUND,
            format!(
                "There is no Workspace `{name}` in namespace `{namespace}`. Create it, and this run goes on; or delete the run."
            ),
        );
        status::enter(&mut status, run, RunPhase::Pending, &cause, now);
        return Decision::keep(status).at(deadline);
    };
    if status.decision.is_none() && approval::is_privileged(&run.spec, &workspace.spec) {
        let digest = approval::command_digest(&run.spec, seen.bundle);
        // What is approved is what runs, whatever becomes of its source.
        status.bundle = seen.bundle.map(str::to_owned);
        progress::begin_review(&mut status, run, digest, now);
        // An Approval may be there already, so that no event would bring it up again.
        return in_review(seen, status, now);
    }
    match turn(run, workspace) {
        // One that is being deleted takes no finalizers any more, and is not started either.
        Turn::Now if finalizers(&run.spec).is_some() && !is_held(run) => Decision::act(status, Action::AddFinalizer),
        Turn::Now => {
            let stage = steps::stage(&run.spec, &status);
            Decision::act(status, Action::CreatePod(stage))
        }
        Turn::Waits { position, behind } => {
            status.position = Some(position);
            let message = match behind {
                Some(active) => format!("It waits for run `{active}` in Workspace `{}`.", run.spec.workspace),
                None => format!("It waits for its turn in Workspace `{}`.", run.spec.workspace),
            };
            status::enter(&mut status, run, RunPhase::Queued, &Cause::new(reason::QUEUED, message), now);
            Decision::keep(status).at(deadline)
        }
        // The workspace controller has not placed it yet; a write now would be one for nothing.
        Turn::Unplaced => Decision::keep(status).at(deadline),
    }
}

fn with_pod(seen: &Observed<'_>, mut status: RunStatus, now: Timestamp) -> Decision {
    let run = seen.run;
    let limit = steps::timeouts(&run.spec, seen.workspace).pending.map(|limit| limit.get());
    let Some(pod) = seen.pod else {
        let since = status.started_at.as_ref().map(|time| time.0);
        let late = status.phase == RunPhase::Starting && is_past(after(since, limit), now);
        let cause = match told_late(&status) {
            Some(told) => told,
            None if late => not_in_time(run, seen.workspace, None),
            None => Cause::new(reason::POD_DELETED, "The pod was deleted before its runner had reported its end."),
        };
        return lost(seen, status, cause, now);
    };
    let fate = match fate::of(pod, now) {
        // A node tells of its containers a second later than a runner of itself.
        Fate::Waiting { .. } if has_reported(&status) => Fate::Running,
        fate => fate,
    };
    if let Fate::Ended(cause) | Fate::Hopeless(cause) = fate {
        // How a pod ends that was deleted for being late is no news; why it was late is.
        let cause = told_late(&status).unwrap_or(cause);
        return lost(seen, status, cause, now);
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Decision::keep(status).at(fate::lost_at(pod));
    }
    if is_cancelled(run) {
        return stopping(seen, status, pod, &fate, now);
    }
    let Fate::Waiting { why } = fate else {
        return Decision::keep(status);
    };
    let deadline = after(pod.creation_timestamp().map(|time| time.0), limit);
    if is_past(deadline, now) {
        let (phase, cause) = (status.phase, not_in_time(run, seen.workspace, why.as_ref()));
        status::enter(&mut status, run, phase, &cause, now);
        return Decision::act(status, delete(pod));
    }
    if let Some(cause) = why {
        let phase = status.phase;
        status::enter(&mut status, run, phase, &cause, now);
    }
    Decision::keep(status).at(deadline)
}

/// A cancelled run stops by itself when the hub tells its runner; a pod that has not started, does not stop in time, or
/// has to stop at once, is deleted: to its runner that is a second request.
fn stopping(seen: &Observed<'_>, mut status: RunStatus, pod: &Pod, fate: &Fate, now: Timestamp) -> Decision {
    let (run, phase) = (seen.run, status.phase);
    let cause = stopped(run, "; terraform is asked to stop.");
    status::enter(&mut status, run, phase, &cause, now);
    Pen::new(&mut status.conditions, run.metadata.generation, now).set(
        condition::EXITED,
        false,
        &cause.reason,
        cause.message,
    );
    let asked = conditions::find(&status.conditions, condition::EXITED).map(|exited| exited.last_transition_time.0);
    let patience = after(asked, u64::try_from(GRACE_SECONDS).ok().map(std::time::Duration::from_secs));
    let hard = run.annotations().get(annotation::CANCEL).is_some_and(|value| value == cancel::NOW);
    if hard || matches!(fate, Fate::Waiting { .. }) || is_past(patience, now) {
        return Decision::act(status, delete(pod));
    }
    Decision::keep(status).at(patience)
}

fn in_review(seen: &Observed<'_>, mut status: RunStatus, now: Timestamp) -> Decision {
    let run = seen.run;
    if is_cancelled(run) {
        let cause = stopped(run, " while it waited for a decision.");
        return ended(seen, status, RunPhase::Cancelled, &cause, now);
    }
    if is_superseded(run) {
        let cause = Cause::new(reason::SUPERSEDED, "A newer revision took its place while it waited for a decision.");
        return ended(seen, status, RunPhase::Discarded, &cause, now);
    }
    if is_harmless(run, &status) {
        let by = "the rule ManualOnDestroy".to_owned();
        let decision = ReviewDecision { approval: String::new(), decision: Choice::Approve, by };
        return decided(seen, status, decision, now);
    }
    let digest = status.review_digest.clone().unwrap_or_default();
    match approval::judge(run, &digest, seen.approvals.iter().copied()) {
        Verdict::Decided(decision) => decided(seen, status, decision, now),
        Verdict::Open { mismatch } => {
            let timeouts = steps::timeouts(&run.spec, seen.workspace);
            let since = status::step(&status, StepName::Review).and_then(|step| step.started_at.as_ref());
            let deadline = after(since.map(|time| time.0), timeouts.review.as_ref().map(|limit| limit.get()));
            if let (true, Some(limit)) = (is_past(deadline, now), &timeouts.review) {
                let message = format!("Nobody decided within {limit} (timeouts.review).");
                return ended(seen, status, RunPhase::Discarded, &Cause::new(reason::TIMED_OUT, message), now);
            }
            if let Some(name) = mismatch {
                let message =
                    format!("Approval `{name}` names another digest and has no effect; this run waits for `{digest}`.");
                Pen::new(&mut status.conditions, run.metadata.generation, now).set(
                    condition::APPROVED,
                    false,
                    reason::DIGEST_MISMATCH,
                    message,
                );
            }
            Decision::keep(status).at(deadline)
        }
    }
}

/// A person has decided on exactly what the run waits for.
fn decided(seen: &Observed<'_>, mut status: RunStatus, decision: ReviewDecision, now: Timestamp) -> Decision {
    let run = seen.run;
    let approved = decision.decision == Choice::Approve;
    let word = if approved { "approved" } else { "discarded" };
    let why = if approved { reason::APPROVED } else { reason::DISCARDED };
    let message = match decision.approval.as_str() {
        "" => format!("It was {word} by {}.", decision.by),
        approval => format!("It was {word} by {} (Approval `{approval}`).", decision.by),
    };
    let cause = Cause::new(why, message);
    if let Some(step) = status.steps.iter_mut().find(|step| step.name == StepName::Review) {
        step.state = if approved { StepState::Succeeded } else { StepState::Cancelled };
        step.finished_at = Some(MicroTime(now));
        step.message = Some(cause.message.clone());
    }
    Pen::new(&mut status.conditions, run.metadata.generation, now).set(
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
    if steps::is_reviewed(&run.spec) {
        return Decision::act(status, Action::CreatePod(Stage::Apply));
    }
    // A command was approved before it had its turn: now it queues as any other.
    status::enter(&mut status, run, RunPhase::Pending, &cause, now);
    before_pod(seen, status, now)
}

fn after_end(seen: &Observed<'_>, status: RunStatus, now: Timestamp) -> Decision {
    if is_held(seen.run) {
        return Decision::act(status, Action::RemoveFinalizer);
    }
    let ended_at = status.finished_at.as_ref().map(|time| time.0);
    let expiry = after(ended_at, seen.run.spec.ttl_after_finished.as_ref().map(|ttl| ttl.get()));
    if is_past(expiry, now) {
        // Its Workspace has yet to take note of what it did.
        let places = seen.workspace.and_then(|workspace| workspace.status.as_ref());
        if places.is_some_and(|places| places.active == seen.run.metadata.name) {
            return Decision::keep(status).at(now.checked_add(TAKE_NOTE).ok());
        }
        return Decision::act(status, Action::DeleteRun);
    }
    let Some(pod) = seen.pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) else {
        return Decision::keep(status).at(expiry);
    };
    let patience = match fate::of(pod, now) {
        Fate::Ended(_) => return Decision::keep(status).at(expiry),
        Fate::Hopeless(_) => ended_at,
        Fate::Waiting { .. } | Fate::Running => after(ended_at, Some(STRAY_AFTER)),
    };
    if is_past(patience, now) {
        return Decision::act(status, delete(pod)).at(expiry);
    }
    Decision::keep(status).at([expiry, patience].into_iter().flatten().min())
}

/// Where the run stands in its Workspace.
enum Turn {
    /// It may start.
    Now,
    /// It waits at this position.
    Waits { position: u32, behind: Option<String> },
    /// Nobody has given it a place yet.
    Unplaced,
}

fn turn(run: &Run, workspace: &Workspace) -> Turn {
    if queue::lane(&run.spec) == Lane::AtOnce {
        return Turn::Now;
    }
    let name = run.name_any();
    let Some(places) = &workspace.status else {
        return Turn::Unplaced;
    };
    if places.active.as_deref() == Some(name.as_str()) {
        return Turn::Now;
    }
    match places.queue.iter().position(|queued| *queued == name) {
        Some(index) => {
            let position = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
            Turn::Waits { position, behind: places.active.clone() }
        }
        None => Turn::Unplaced,
    }
}

/// The run's pod is gone and its runner said nothing: cancelled, when that was asked for, and failed otherwise.
fn lost(seen: &Observed<'_>, status: RunStatus, cause: Cause, now: Timestamp) -> Decision {
    if is_cancelled(seen.run) {
        let message = format!("It was cancelled. {}", cause.message);
        return ended(seen, status, RunPhase::Cancelled, &Cause::new(reason::CANCELLED, message), now);
    }
    ended(seen, status, RunPhase::Failed, &cause, now)
}

fn ended(seen: &Observed<'_>, mut status: RunStatus, phase: RunPhase, cause: &Cause, now: Timestamp) -> Decision {
    status::finish(&mut status, seen.run, phase, cause, now);
    let ttl = seen.run.spec.ttl_after_finished.as_ref().map(|ttl| ttl.get());
    Decision::keep(status).at(after(Some(now), ttl))
}

/// Whether the runner of the present pod has reported to the hub, or was asked to stop because it has.
fn has_reported(status: &RunStatus) -> bool {
    let is = |name, reason| conditions::find(&status.conditions, name).is_some_and(|found| found.reason == reason);
    is(condition::READY, reason::PROGRESSING) || is(condition::EXITED, reason::CANCELLED)
}

/// What the status says about a pod that was deleted because it did not start in time.
fn told_late(status: &RunStatus) -> Option<Cause> {
    let ready = conditions::find(&status.conditions, condition::READY);
    let late = ready.filter(|ready| status.phase == RunPhase::Starting && ready.reason == reason::TIMED_OUT)?;
    Some(Cause::new(reason::TIMED_OUT, late.message.clone()))
}

fn not_in_time(run: &Run, workspace: Option<&Workspace>, why: Option<&Cause>) -> Cause {
    let limit = steps::timeouts(&run.spec, workspace).pending.map(|limit| limit.to_string()).unwrap_or_default();
    let why = why.map(|why| format!(" {}", why.message)).unwrap_or_default();
    Cause::new(reason::TIMED_OUT, format!("The pod did not start within {limit} (timeouts.pending).{why}"))
}

fn delete(pod: &Pod) -> Action {
    Action::DeletePod { name: pod.name_any(), uid: pod.uid().unwrap_or_default() }
}

fn after(since: Option<Timestamp>, limit: Option<std::time::Duration>) -> Option<Timestamp> {
    since?.checked_add(limit?).ok()
}

fn is_past(deadline: Option<Timestamp>, now: Timestamp) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}

#[cfg(test)]
mod tests;
