//! The machine of a Run: from what is seen to its next status and the one thing to do.
//!
//! ```text
//! Pending -> Queued -> Starting -> Running -> Succeeded | Failed | Cancelled
//!                                  Running -> Review -> Running | Discarded | Cancelled
//! Running -> Running               (the plan is handed over to a pod that describes it for the rules of Policies)
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

pub mod answer;
pub mod arguments;
pub mod cancellation;
mod cleanup;
pub mod covers;
pub mod frozen;
pub mod isolated;
pub mod pod;
pub mod pod_outcome;
pub mod progress;
mod review;
pub mod sizes;
pub mod status;
pub mod steps;
pub mod stop_times;
mod stopping;
mod windows;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::MicroTime};
use knoll_api::{
    approval::Approval,
    names::{annotation, cancel, condition, finalizer, reason},
    run::{FrozenJobSummary, Run, RunApproval, RunPhase, RunSpec, RunStatus, Timeouts},
    source::Source,
    stack::Stack,
    workspace::Workspace,
};
use kube::ResourceExt;

use crate::{
    conditions::{self, ConditionWriter},
    machine::{Decision, Settled},
    policy::{self, Demands, Effective},
    queue::{self, Lane},
    stack::{self, Launched},
};
use frozen::FrozenJob;
use pod_outcome::PodOutcome;
use review::in_review;
use status::Cause;
use steps::Stage;

pub use stopping::must_stop;

/// How long the pod of a run that has ended may go on before it is deleted.
const STRAY_AFTER: Duration = Duration::from_secs(300);

/// How soon to look again whether a Workspace has taken note of a run's end.
const TAKE_NOTE: Duration = Duration::from_secs(1);

/// The wait before the next attempt to create a pod that something stands in the way of.
const BLOCKED: Duration = Duration::from_secs(5);

/// The facts of one decision on a Run.
#[derive(Clone, Copy, Debug)]
pub struct RunFacts<'a> {
    pub run: &'a Run,
    pub workspace: Option<&'a Workspace>,
    /// The pod that the Run's status names by its UID; `None` when it has none or that pod is gone.
    pub pod: Option<&'a Pod>,
    /// Every pod whose label names the Run, those of earlier Runs of the same name included.
    pub pods: &'a [&'a Pod],
    /// The Approvals that name the Run.
    pub approvals: &'a [&'a Approval],
    /// The Stack that has the name of the Workspace.
    pub stack: Option<&'a Stack>,
    /// The demands of the Policies on the Workspace.
    pub policy: &'a Effective,
    /// The frozen job that the status of a Run without a pod names; `None` when it has none, or when it is not stored as
    /// it was frozen.
    pub frozen: Option<&'a FrozenJob>,
}

impl RunFacts<'_> {
    /// What the Run has to pass; `None` without a Workspace.
    fn demands(&self) -> Option<Demands> {
        self.workspace.map(|workspace| policy::demands(self.run, workspace, self.frozen, self.stack, self.policy))
    }

    /// The limits of the Run, as the Policies allow them.
    fn timeouts(&self) -> Timeouts {
        self.policy.shortened(steps::timeouts(&self.run.spec, self.workspace, &self.policy.default_timeouts()))
    }

    /// Why the pods of the Run cannot be made any more: its frozen job is not stored as it was frozen.
    fn lost_job(&self) -> Option<Cause> {
        let summary = self.run.status.as_ref()?.job.as_ref().filter(|_| self.frozen.is_none())?;
        let message = frozen::changed_since_planned(&frozen::job_of(&self.run.name_any(), summary));
        Some(Cause::new(reason::CHANGED_SINCE_PLANNED, message))
    }
}

/// One action, safe to repeat. An action that goes with a new status carries it to [`settle`], so that both take one
/// write.
#[derive(Clone, Debug, PartialEq)]
pub enum RunAction {
    /// Put the finalizer on the Run, so that it stays until its pod has handed in its state.
    AddFinalizer,
    /// Take the finalizer off: nothing of the Run is at work any more.
    RemoveFinalizer,
    /// Freeze the job of a command, and store the files of its source as a bundle if it has one, so that what is approved
    /// is what runs.
    FreezeCommand(Option<Box<Source>>),
    /// Create the pod of this stage: from the frozen job that the status names, or from one that is frozen first if the
    /// run has more than one pod.
    CreatePod(Stage, Box<RunStatus>),
    /// Delete this pod, with the grace period it came with.
    DeletePod {
        name: String,
        /// The UID, so that no other pod of that name is deleted.
        uid: String,
        status: Box<RunStatus>,
    },
    /// Delete the Run itself: it was kept long enough.
    DeleteRun,
}

/// What came of a [`RunAction`].
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The job of a command is frozen. The files of its source are stored under the digest; `None` when they were stored
    /// already.
    CommandFrozen { bundle: Option<String>, job: Box<FrozenJobSummary> },
    /// The job of a command can never be frozen.
    CommandRejected { reason: &'static str, message: String },
    /// The API has answered the creation of the Run's pod with this UID.
    PodCreated { name: String, uid: String, status: Box<RunStatus> },
    /// The Run can never have a pod.
    PodRejected { reason: &'static str, message: String, status: Box<RunStatus> },
    /// The Run can have no pod until something changes. A job that was frozen for it is kept for the next attempt.
    PodBlocked { reason: &'static str, message: String, job: Option<Box<FrozenJobSummary>> },
    /// As many Runs have a pod as the Policies allow. The Run asks again after that time, or when a slot is free.
    NoSlot { message: String, again_in: Duration },
    /// The deletion of the pod was requested, or the pod is gone.
    PodDeleted(Box<RunStatus>),
    /// The deletion of the Run was requested.
    RunDeleted,
}

/// The decision of a Run's machine.
pub type RunDecision = Decision<RunStatus, RunAction>;

/// The user who asked for the run, as the API server has checked it; `None` when that user is unknown.
#[must_use]
pub fn requested_by(run: &Run) -> Option<&str> {
    run.spec.requested_by.as_deref()
}

/// Whether somebody asked for the run to be stopped: whoever deletes it does.
#[must_use]
pub fn is_cancelled(run: &Run) -> bool {
    run.annotations().contains_key(annotation::CANCEL) || run.metadata.deletion_timestamp.is_some()
}

/// The user who cancelled the run, as the API server has checked it; `None` when that user is unknown, or when its Stack
/// stopped it.
#[must_use]
pub fn cancelled_by(run: &Run) -> Option<&str> {
    let by_user = run.annotations().get(annotation::CANCEL).is_some_and(|value| value != cancel::BY_STACK);
    let by = run.annotations().get(annotation::CANCELLED_BY).filter(|by| by_user && !by.is_empty());
    by.map(String::as_str)
}

/// What became of the run, in a sentence: it was cancelled, or deleted.
fn stopped(run: &Run, then: &str) -> Cause {
    let word = if run.annotations().contains_key(annotation::CANCEL) { "cancelled" } else { "deleted" };
    let by = cancelled_by(run).map(|by| format!(" by {by}")).unwrap_or_default();
    Cause::new(reason::CANCELLED, format!("It was {word}{by}{then}"))
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

/// Why the pod of a run cannot start: its image, a node or its settings stand in the way, and no runner has reported
/// from it. `None` for a run that goes on, waits for a person, or has ended.
#[must_use]
pub fn start_problem(run: &Run) -> Option<Cause> {
    let status = run.status.as_ref()?;
    let has_started = status.reported_at.is_some() || status.phase == RunPhase::Review || status.phase.is_finished();
    let ready = conditions::find(&status.conditions, condition::READY).filter(|_| !has_started)?;
    let problems = [reason::IMAGE_PULL_BACK_OFF, reason::UNSCHEDULABLE, reason::POD_FAILED, reason::FOREIGN_POD];
    problems.contains(&ready.reason.as_str()).then(|| Cause::new(ready.reason.clone(), ready.message.clone()))
}

/// Decides what follows from what was seen.
#[must_use]
pub fn decide(seen: &RunFacts<'_>, now: Timestamp) -> RunDecision {
    let status = status::of(seen.run);
    let awaits_judge =
        matches!(status.phase, RunPhase::Starting | RunPhase::Running) && steps::awaits_judge(&seen.run.spec, &status);
    let has_no_pod = awaits_judge || matches!(status.phase, RunPhase::Pending | RunPhase::Queued | RunPhase::Review);
    if has_no_pod && seen.workspace.is_some_and(|workspace| workspace.metadata.deletion_timestamp.is_some()) {
        let message = format!("Workspace `{}` is being deleted, so nothing starts in it.", seen.run.spec.workspace);
        return ended(seen, status, RunPhase::Discarded, &Cause::new(reason::WORKSPACE_DELETED, message), now);
    }
    match status.phase {
        RunPhase::Pending | RunPhase::Queued => before_pod(seen, status, now),
        RunPhase::Starting | RunPhase::Running if awaits_judge => isolated::before_judge(seen, status, now),
        RunPhase::Starting | RunPhase::Running => with_pod(seen, status, now),
        RunPhase::Review => in_review(seen, status, now),
        RunPhase::Succeeded | RunPhase::Failed | RunPhase::Cancelled | RunPhase::Discarded => {
            after_end(seen, status, now)
        }
    }
}

/// The status after an action.
#[must_use]
pub fn settle(facts: &RunFacts<'_>, outcome: RunOutcome, now: Timestamp) -> Settled<RunStatus> {
    let run = facts.run;
    match outcome {
        RunOutcome::CommandFrozen { bundle, job } => {
            let mut status = status::of(run);
            status.bundle = bundle.or_else(|| named_bundle(facts).map(str::to_owned));
            status.job = Some(*job);
            review::begin_command(&mut status, run, now);
            // An Approval may be there already; the next decision judges it.
            status.into()
        }
        RunOutcome::CommandRejected { reason, message } => failed(run, status::of(run), reason, &message, now).into(),
        RunOutcome::PodCreated { name, uid, status } => started(run, *status, name, uid, now).into(),
        RunOutcome::PodRejected { reason, message, status } => failed(run, *status, reason, &message, now).into(),
        RunOutcome::PodBlocked { reason, message, job } => {
            let mut status = blocked(run, reason, &message, now);
            status.job = job.map_or(status.job, |job| Some(*job));
            Settled::from(status).at(now.checked_add(BLOCKED).ok())
        }
        RunOutcome::NoSlot { message, again_in } => {
            let status = waiting(run, &Cause::new(reason::WAITING_FOR_SLOT, message), now);
            Settled::from(status).at(now.checked_add(again_in).ok())
        }
        RunOutcome::PodDeleted(status) => (*status).into(),
        RunOutcome::RunDeleted => status::of(run).into(),
    }
}

fn started(run: &Run, mut status: RunStatus, pod: String, uid: String, now: Timestamp) -> RunStatus {
    let cause = Cause::new(reason::POD_CREATED, format!("Pod `{pod}` was created."));
    (status.pod_name, status.pod_uid) = (Some(pod), Some(uid));
    (status.reported_at, status.stop_requested_at, status.start_failure) = (None, None, None);
    status.started_at.get_or_insert(MicroTime(now));
    // A second pod follows a plan: its run was under way already.
    let planned = matches!(steps::stage(&run.spec, &status), Stage::Judge | Stage::Apply);
    let phase = if planned { RunPhase::Running } else { RunPhase::Starting };
    status::enter(&mut status, run, phase, &cause, now);
    status
}

fn failed(run: &Run, mut status: RunStatus, reason: &str, message: &str, now: Timestamp) -> RunStatus {
    status::finish(&mut status, run, RunPhase::Failed, &Cause::new(reason, message), now);
    status
}

/// The Run stays where it is, and its conditions say what stands in the way of its pod.
fn blocked(run: &Run, reason: &str, message: &str, now: Timestamp) -> RunStatus {
    let mut status = status::of(run);
    let phase = status.phase;
    status::enter(&mut status, run, phase, &Cause::new(reason, message), now);
    status
}

/// The Run has its turn, and something else than its Workspace keeps it from starting. A decision on its plan stays open in
/// its status, as the Policies of the moment at which it starts judge it.
fn waiting(run: &Run, cause: &Cause, now: Timestamp) -> RunStatus {
    let mut status = status::of(run);
    let is_under_way = matches!(status.phase, RunPhase::Review | RunPhase::Running);
    let phase = if is_under_way { status.phase } else { RunPhase::Pending };
    status::enter(&mut status, run, phase, cause, now);
    if phase == RunPhase::Pending && conditions::holds(&status.conditions, condition::QUEUED) {
        let message = "It has left the queue.";
        ConditionWriter::new(&mut status.conditions, run.metadata.generation, now)
            .set(condition::QUEUED, false, &cause.reason, message)
            .set(condition::ACTIVE, false, &cause.reason, &cause.message);
    }
    status
}

/// Whether the Run's status says that a pod which the operator did not create has the name of the Run's pod. From that
/// write on, no earlier attempt to create the pod can still become the Run's: its own write would meet this one.
#[must_use]
pub fn reports_foreign_pod(run: &Run) -> bool {
    let conditions = run.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::find(conditions, condition::READY).is_some_and(|ready| ready.reason == reason::FOREIGN_POD)
}

/// Creates the pod of `stage`, unless something stands in its way.
fn create_pod(facts: &RunFacts<'_>, mut status: RunStatus, stage: Stage, now: Timestamp) -> RunDecision {
    if facts.workspace.is_none() {
        return workspace_gone(facts, now);
    }
    if let Some(closed) = windows::check(facts, &mut status, stage, now) {
        return closed;
    }
    status.sizes = facts.policy.sizes();
    status.timeouts = facts.policy.has_timeouts().then(|| facts.timeouts());
    let obstacle = leftover(facts, now).map(|pod| {
        format!(
            "Pod `{pod}` of an earlier run of this name is still running; the run continues when that pod has ended."
        )
    });
    match obstacle {
        Some(message) => {
            Decision::status(blocked(facts.run, reason::POD_FAILED, &message, now)).at(now.checked_add(BLOCKED).ok())
        }
        None => Decision::act(RunAction::CreatePod(stage, Box::new(status))),
    }
}

/// The Run cannot go on without its Workspace, and is looked at again.
fn workspace_gone(facts: &RunFacts<'_>, now: Timestamp) -> RunDecision {
    let message = format!("Workspace `{}` was deleted.", facts.run.spec.workspace);
    Decision::status(blocked(facts.run, reason::POD_FAILED, &message, now)).at(now.checked_add(BLOCKED).ok())
}

/// The Run ends, because a Policy does not allow it.
fn refused(facts: &RunFacts<'_>, status: RunStatus, demands: &Demands, now: Timestamp) -> RunDecision {
    let cause = Cause::new(reason::POLICY_VIOLATION, policy::message(&demands.violations));
    ended(facts, status, RunPhase::Failed, &cause, now)
}

/// A pod of an earlier Run of the same name that may still be at work.
fn leftover(facts: &RunFacts<'_>, now: Timestamp) -> Option<String> {
    let at_work =
        |pod: &&&Pod| !pod::is_of(pod, facts.run) && !matches!(pod_outcome::of(pod, now), PodOutcome::Ended(_));
    facts.pods.iter().find(at_work).map(|pod| pod.name_any())
}

/// The digest of the files that the Run names, or that its Workspace last applied when the Run has no files of its own.
fn named_bundle<'a>(facts: &RunFacts<'a>) -> Option<&'a str> {
    let spec = &facts.run.spec;
    if spec.has_module() { spec.bundle() } else { facts.workspace?.status.as_ref()?.bundle.as_deref() }
}

fn before_pod(seen: &RunFacts<'_>, mut status: RunStatus, now: Timestamp) -> RunDecision {
    let run = seen.run;
    if is_cancelled(run) {
        let cause = stopped(run, " before it started.");
        return ended(seen, status, RunPhase::Cancelled, &cause, now);
    }
    if is_superseded(run) {
        let cause = superseded("before it started");
        return ended(seen, status, RunPhase::Discarded, &cause, now);
    }
    if stack::is_launched(run) {
        match stack::launched(seen.stack, run) {
            Launched::Confirmed => {}
            Launched::Intended => return Decision::status(status).at(now.checked_add(TAKE_NOTE).ok()),
            Launched::Never => {
                let message = format!(
                    "Stack `{}` has not started this run: its status does not name it. Only a Stack can start a run of a snapshot.",
                    run.spec.workspace
                );
                let cause = Cause::new(reason::NOT_OF_ITS_STACK, message);
                return ended(seen, status, RunPhase::Discarded, &cause, now);
            }
        }
    }
    let timeouts = seen.timeouts();
    let queued_since = run.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let deadline = after(queued_since, timeouts.queue.as_ref().map(|limit| limit.get()));
    if let (true, Some(limit)) = (is_past(deadline, now), &timeouts.queue) {
        let cause = Cause::new(reason::TIMED_OUT, format!("It was not started within {limit} (timeouts.queue)."));
        return ended(seen, status, RunPhase::Cancelled, &cause, now);
    }
    let Some(workspace) = seen.workspace else {
        let message = format!(
            "Workspace `{}` does not exist in this namespace. The run starts when it is created.",
            run.spec.workspace
        );
        let cause = Cause::new(reason::WORKSPACE_NOT_FOUND, message);
        status::enter(&mut status, run, RunPhase::Pending, &cause, now);
        return Decision::status(status).at(deadline);
    };
    if let Some(cause) = seen.lost_job() {
        return ended(seen, status, RunPhase::Failed, &cause, now);
    }
    if let (false, Some(stack)) = (run.spec.override_stack, stack::changed_by(run, workspace, seen.stack)) {
        let (stack, namespace) = (stack.name_any(), stack.namespace().unwrap_or_default());
        let message = format!(
            "Workspace `{}` belongs to Stack `{stack}`, which has not started this run. To apply the Stack: knoll stack apply {stack} -n {namespace}. To change its infrastructure all the same, set overrideStack: true (--override-stack of knoll apply and knoll destroy).",
            run.spec.workspace
        );
        return ended(seen, status, RunPhase::Failed, &Cause::new(reason::BELONGS_TO_STACK, message), now);
    }
    let demands = policy::demands(run, workspace, seen.frozen, seen.stack, seen.policy);
    if !demands.violations.is_empty() {
        return refused(seen, status, &demands, now);
    }
    if status.decision.is_none() && demands.before_start.is_some() {
        // What is approved is what runs, whatever becomes of its source and of its Workspace.
        let source = run.spec.source.clone().filter(|source| source.bundle.is_none());
        return Decision::act(RunAction::FreezeCommand(source.map(Box::new)));
    }
    let settings = seen.policy.pod(&workspace.spec.pod.clone().unwrap_or_default());
    let two_accounts = steps::has_two_accounts(&run.spec, &settings);
    if two_accounts && demands.approval == RunApproval::Prompt {
        let message = "With approval: Prompt terraform plans and applies in one process, and the Workspace has different service accounts for the two (pod.plan, pod.apply); use Auto or Manual.";
        return ended(seen, status, RunPhase::Failed, &Cause::new(reason::INVALID_SPEC, message), now);
    }
    match turn(run, workspace) {
        // One that is being deleted takes no finalizers any more, and is not started either.
        Turn::Now if finalizers(&run.spec).is_some() && !is_held(run) => Decision::act(RunAction::AddFinalizer),
        Turn::Now => {
            status.approval = Some(demands.approval);
            status.plan_verdict = policy::plan::open_verdict(&demands);
            let is_open = status.job.is_none();
            let stage = if is_open && two_accounts { Stage::Plan } else { steps::stage(&run.spec, &status) };
            create_pod(seen, status, stage, now).at_the_latest(deadline)
        }
        Turn::Waits { position, behind } => {
            status.position = Some(position);
            let message = match behind {
                Some(active) => {
                    let holder = workspace.status.as_ref().map(crate::workspace::holder).unwrap_or_default();
                    format!("Waiting for run `{active}`{holder} in Workspace `{}`.", run.spec.workspace)
                }
                None => format!("Waiting in the queue of Workspace `{}`.", run.spec.workspace),
            };
            status::enter(&mut status, run, RunPhase::Queued, &Cause::new(reason::QUEUED, message), now);
            Decision::status(status).at(deadline)
        }
        // The workspace controller has not placed it yet; a write now would be one for nothing.
        Turn::Unplaced => Decision::status(status).at(deadline),
    }
}

fn with_pod(seen: &RunFacts<'_>, mut status: RunStatus, now: Timestamp) -> RunDecision {
    let run = seen.run;
    let pending = seen.timeouts().pending;
    let limit = pending.as_ref().map(knoll_api::Duration::get);
    let Some(pod) = seen.pod else {
        let since = status.started_at.as_ref().map(|time| time.0);
        let late = status.phase == RunPhase::Starting && is_past(after(since, limit), now);
        let cause = match not_started(&status) {
            Some(cause) => cause,
            None if late => not_in_time(pending, None, None),
            None => Cause::new(reason::POD_DELETED, "The pod was deleted before its runner had reported its end."),
        };
        return lost(seen, status, cause, now);
    };
    let outcome = match pod_outcome::reported(pod) {
        // A runner reports up to a second before its node updates the pod's status.
        PodOutcome::Waiting { .. } if status.reported_at.is_some() => PodOutcome::Running,
        outcome => outcome,
    };
    if let PodOutcome::Ended(cause) | PodOutcome::Hopeless(cause) = outcome {
        // A pod that was deleted because it did not start in time ends as deleted, which is not why the run failed.
        let cause = not_started(&status).unwrap_or(cause);
        return lost(seen, status, cause, now);
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return stopping::with_its_pod(seen, status, pod, now);
    }
    if is_cancelled(run) {
        return stopping::cancelled(seen, status, pod, &outcome, now);
    }
    let PodOutcome::Waiting { why } = outcome else {
        return Decision::status(status);
    };
    if is_superseded(run) {
        let phase = status.phase;
        status::enter(&mut status, run, phase, &superseded("before its pod had started"), now);
        status.stop_requested_at.get_or_insert(MicroTime(now));
        return delete(pod, status);
    }
    let deadline = after(pod.creation_timestamp().map(|time| time.0), limit);
    if is_past(deadline, now) {
        let (phase, cause) =
            (status.phase, not_in_time(pending, why.as_ref(), isolated::image(&status, Some(pod)).as_deref()));
        status::enter(&mut status, run, phase, &cause, now);
        status.start_failure = Some(cause.message);
        return delete(pod, status);
    }
    if let Some(cause) = why {
        let phase = status.phase;
        let message = format!("{} {}", cause.message, way_on(run, limit));
        status::enter(&mut status, run, phase, &Cause::new(cause.reason, message), now);
    }
    Decision::status(status).at(deadline)
}

fn after_end(seen: &RunFacts<'_>, status: RunStatus, now: Timestamp) -> RunDecision {
    if is_held(seen.run) {
        return Decision::act(RunAction::RemoveFinalizer);
    }
    let ended_at = status.finished_at.as_ref().map(|time| time.0);
    let expiry = after(ended_at, seen.run.spec.ttl_after_finished.as_ref().map(|ttl| ttl.get()));
    if is_past(expiry, now) {
        // Its Workspace has yet to take note of what it did.
        let places = seen.workspace.and_then(|workspace| workspace.status.as_ref());
        if places.is_some_and(|places| places.active == seen.run.metadata.name) {
            return Decision::status(status).at(now.checked_add(TAKE_NOTE).ok());
        }
        return Decision::act(RunAction::DeleteRun);
    }
    let running = seen.pod.filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let patience = match running.map(|pod| (pod, pod_outcome::of(pod, now))) {
        None | Some((_, PodOutcome::Ended(_))) => {
            return cleanup::done(seen, ended_at, status, now).at_the_latest(expiry);
        }
        Some((pod, PodOutcome::Hopeless(_))) => (pod, ended_at),
        Some((pod, PodOutcome::Waiting { .. } | PodOutcome::Running)) => (pod, after(ended_at, Some(STRAY_AFTER))),
    };
    let (pod, patience) = patience;
    if is_past(patience, now) {
        return delete(pod, status).at(expiry);
    }
    Decision::status(status).at([expiry, patience].into_iter().flatten().min())
}

/// Where the run stands in its Workspace.
enum Turn {
    Now,
    /// It waits at this position.
    Waits {
        position: u32,
        behind: Option<String>,
    },
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
fn lost(seen: &RunFacts<'_>, status: RunStatus, cause: Cause, now: Timestamp) -> RunDecision {
    if is_cancelled(seen.run) {
        let message = format!("It was cancelled. {}", cause.message);
        return ended(seen, status, RunPhase::Cancelled, &Cause::new(reason::CANCELLED, message), now);
    }
    // Its pod was deleted before a runner had started, so nothing has changed.
    if is_superseded(seen.run) && status.stop_requested_at.is_some() && status.reported_at.is_none() {
        return ended(seen, status, RunPhase::Discarded, &superseded("before its pod had started"), now);
    }
    ended(seen, status, RunPhase::Failed, &cause, now)
}

/// A newer revision has taken the run's place.
fn superseded(when: &str) -> Cause {
    Cause::new(reason::SUPERSEDED, format!("A newer revision took its place {when}."))
}

/// What a person can do for a run whose pod cannot start.
fn way_on(run: &Run, limit: Option<Duration>) -> String {
    let (name, namespace) = (run.name_any(), run.namespace().unwrap_or_default());
    let limit = limit.map(|limit| format!(" by itself after {} (timeouts.pending)", knoll_api::Duration::from(limit)));
    let cancel = format!("knoll cancel {name} -n {namespace}");
    format!("The run ends{}, or with: {cancel}", limit.unwrap_or_default())
}

fn ended(seen: &RunFacts<'_>, mut status: RunStatus, phase: RunPhase, cause: &Cause, now: Timestamp) -> RunDecision {
    status::finish(&mut status, seen.run, phase, cause, now);
    let ttl = seen.run.spec.ttl_after_finished.as_ref().map(|ttl| ttl.get());
    Decision::status(status).at(after(Some(now), ttl))
}

/// Why the pod was deleted before its runner started, if the operator did so.
fn not_started(status: &RunStatus) -> Option<Cause> {
    status.start_failure.as_ref().map(|message| Cause::new(reason::TIMED_OUT, message.clone()))
}

/// `image` is what is to be said of an image that the user of the run has not chosen.
fn not_in_time(limit: Option<knoll_api::Duration>, why: Option<&Cause>, image: Option<&str>) -> Cause {
    let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
    let details = why.map(|why| why.message.as_str()).into_iter().chain(image);
    let details: String = details.map(|detail| format!(" {detail}")).collect();
    Cause::new(reason::TIMED_OUT, format!("The pod did not start within {limit} (timeouts.pending).{details}"))
}

fn delete(pod: &Pod, status: RunStatus) -> RunDecision {
    let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
    Decision::act(RunAction::DeletePod { name, uid, status: Box::new(status) })
}

fn after(since: Option<Timestamp>, limit: Option<Duration>) -> Option<Timestamp> {
    since?.checked_add(limit?).ok()
}

fn is_past(deadline: Option<Timestamp>, now: Timestamp) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}

#[cfg(test)]
mod tests;
