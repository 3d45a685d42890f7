//! What the end of a Run means to its Stack. Each end is accounted for once, in the order of the Runs.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    names::{condition, purpose, reason},
    run::{Run, RunPhase, StepName, StepState},
    stack::{FailureStatus, StackPhase, StackStatus},
};
use kube::ResourceExt;

use super::{Observed, deletion, drift, forsake, launch, number, phase, purpose_of};
use crate::{conditions, status::Cause};

/// Accounts for every Run that has ended since the last time. `runs` are in their order.
pub(super) fn all(seen: &Observed<'_>, runs: &[&Run], status: &mut StackStatus, now: Timestamp) {
    if let Some(newest) = runs.last().filter(|newest| number(newest) >= status.runs) {
        status.runs = number(newest);
        status.last_run = Some(newest.name_any());
    }
    for run in runs.iter().filter(|run| number(run) > 0) {
        if number(run) <= status.settled {
            continue;
        }
        if !phase(run).is_finished() {
            return;
        }
        one(seen, run, status, now);
        status.settled = number(run);
    }
    if seen.last_run_is_gone && status.settled < status.runs {
        lost(seen, status, now);
        status.settled = status.runs;
    }
}

fn one(seen: &Observed<'_>, run: &Run, status: &mut StackStatus, now: Timestamp) {
    let Some(ended) = &run.status else { return };
    let at = ended.finished_at.clone().unwrap_or(MicroTime(now));
    let is_for = purpose_of(run);
    let succeeded = ended.phase == RunPhase::Succeeded;
    match is_for {
        purpose::DRIFT => drift::settle(seen.stack, run, status, &at),
        purpose::DESTROY if succeeded => {
            status.revision = None;
            status.bundle = None;
            status.variables = None;
            status.attempted = None;
            status.applied_at = None;
            status.outputs.clear();
            status.outputs_digest = None;
            status.failure = None;
            status.drift = None;
        }
        purpose::DESTROY => fail(status, run, deletion::attempt(seen.stack), at),
        _ if succeeded => {
            let snapshot = launch::snapshot(run);
            forsake::keep(seen.stack, status, &snapshot);
            status.revision = Some(snapshot.revision);
            status.bundle = Some(snapshot.bundle);
            status.variables = Some(snapshot.variables);
            status.attempted = None;
            status.applied_at = Some(at.clone());
            status.outputs_digest = None;
            if is_for != purpose::ROLLBACK {
                status.failure = None;
            }
            drift::clear(seen.stack, status, &at);
        }
        _ => {
            let tried = ended.steps.iter().any(|step| step.name == StepName::Apply && step.state != StepState::Skipped);
            if tried {
                status.attempted = Some(launch::snapshot(run));
            }
            let superseded = why(run).reason == reason::SUPERSEDED;
            let dismissed = is_for == purpose::CORRECT && ended.phase != RunPhase::Failed && !tried;
            if superseded || dismissed {
                return;
            }
            if is_for == purpose::ROLLBACK {
                status.phase = StackPhase::Failure;
                let rollback = format!(" The rollback with run `{}` failed too: {}", run.name_any(), why(run).message);
                if let Some(failure) = &mut status.failure {
                    failure.message.push_str(&rollback);
                }
                return;
            }
            fail(status, run, launch::snapshot(run).revision, at);
        }
    }
}

/// A Run was deleted before its end: nobody knows how far it came.
fn lost(seen: &Observed<'_>, status: &mut StackStatus, now: Timestamp) {
    let name = status.last_run.clone().unwrap_or_default();
    // Drift is looked for again, and a destruction is tried again, without any record of it.
    let Some(revision) = status.pending_revision.clone().filter(|_| seen.stack.metadata.deletion_timestamp.is_none())
    else {
        return;
    };
    let count = count(status, &revision);
    status.failure = Some(FailureStatus {
        message: format!("Run `{name}` was deleted before its end. Give the Stack another revision, or ask for a run."),
        reason: reason::FAILED.to_owned(),
        phase: RunPhase::Failed,
        run: name,
        revision,
        count,
        at: Some(MicroTime(now)),
    });
}

fn fail(status: &mut StackStatus, run: &Run, revision: String, at: MicroTime) {
    let cause = why(run);
    let count = count(status, &revision);
    status.failure = Some(FailureStatus {
        message: format!("Run `{}` ended as {}: {}", run.name_any(), phase(run).as_str(), cause.message),
        reason: cause.reason,
        phase: phase(run),
        run: run.name_any(),
        revision,
        count,
        at: Some(at),
    });
}

/// How often this revision has failed, with this time.
fn count(status: &StackStatus, revision: &str) -> u32 {
    let before = status.failure.as_ref().filter(|failure| failure.revision == revision);
    before.map_or(0, |failure| failure.count).saturating_add(1)
}

/// Why a Run has ended.
pub(super) fn why(run: &Run) -> Cause {
    let said = run.status.as_ref().and_then(|status| conditions::find(&status.conditions, condition::READY));
    match said {
        Some(ready) => Cause::new(ready.reason.clone(), ready.message.clone()),
        None => Cause::new(reason::FAILED, "It has said nothing."),
    }
}
