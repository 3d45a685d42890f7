//! Accounts in the status for what has happened since it was written. The end of each Run is accounted for once, in the
//! order of the Runs.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    Purpose,
    names::{annotation, condition, reason},
    run::{Run, RunPhase, StepName, StepState},
    stack::{FailureStatus, LaunchIntent, StackStatus, StartedRun},
};
use kube::ResourceExt;

use super::{
    Inputs, OwnRun, StackFacts, conditions as stack_conditions, deletion, drift, is_deleted, ordered, phase,
    rollback_with_atom, state, unfinished,
};
use crate::{
    conditions,
    outputs::{self, HiddenOutputs},
    run::is_superseded,
    status::Cause,
};

/// The published status, with all that has happened since.
pub(super) fn all(facts: &StackFacts<'_>, now: Timestamp) -> StackStatus {
    let mut status = facts.stack.status.clone().unwrap_or_default();
    if !state::is_claimed(facts) {
        return status;
    }
    ended_runs(facts, &mut status, now);
    stack_conditions::fetched(&mut status, facts.stack, facts.remote, now);
    if !is_deleted(facts.stack) && state::blocked(facts).is_none() {
        if unfinished(facts).is_none() {
            rollback_with_atom::account(facts, &mut status, now);
        }
        pending_revision(facts, &mut status);
    }
    status
}

/// Records the Run of the intent, which exists.
pub(super) fn launched(status: &mut StackStatus, run: &Run) -> Option<StartedRun> {
    let LaunchIntent { name, number, purpose, commitment: _ } = status.launching.take()?;
    let record = StartedRun { name, uid: run.uid().unwrap_or_default(), number, purpose };
    status.runs = record.number;
    status.last_run = Some(record.name.clone());
    status.last_purpose = Some(record.purpose);
    status.started_runs.push(record.clone());
    Some(record)
}

fn ended_runs(facts: &StackFacts<'_>, status: &mut StackStatus, now: Timestamp) {
    for run in &ordered(facts) {
        if run.number <= status.settled {
            continue;
        }
        if !phase(run).is_finished() {
            return;
        }
        ended_run(facts, run, status, now);
        status.settled = run.number;
    }
    if facts.last_run_is_gone && status.settled < status.runs {
        deleted_run(facts, status, now);
        status.settled = status.runs;
    }
}

/// The revision that is to be applied, if that is not the applied one.
fn pending_revision(facts: &StackFacts<'_>, status: &mut StackStatus) {
    let Inputs::Resolved { snapshot, source } = facts.inputs else { return };
    let is_new = status.revision.as_ref() != Some(&snapshot.revision);
    status.pending_revision = is_new.then(|| snapshot.revision.clone());
    status.source_revision.clone_from(source);
}

fn ended_run(facts: &StackFacts<'_>, run: &OwnRun<'_>, status: &mut StackStatus, now: Timestamp) {
    let Some(ended) = &run.status else { return };
    let at = ended.finished_at.clone().unwrap_or(MicroTime(now));
    let succeeded = ended.phase == RunPhase::Succeeded;
    match run.purpose {
        Purpose::Drift => drift::account(facts.stack, run, status, &at),
        Purpose::Destroy if succeeded => {
            status.set_applied(None);
            status.attempted = None;
            status.applied_at = None;
            status.outputs.clear();
            outputs::tell(&mut status.conditions, None, &HiddenOutputs::default(), now);
            status.outputs_digest = None;
            status.failure = None;
            status.drift = None;
        }
        Purpose::Destroy => fail(facts, status, run, at),
        purpose @ (Purpose::Apply | Purpose::Correct | Purpose::Rollback) => {
            if succeeded {
                applied(facts, run, purpose, status, &at);
            } else {
                not_applied(facts, run, purpose, status, at);
            }
        }
    }
}

fn applied(facts: &StackFacts<'_>, run: &OwnRun<'_>, purpose: Purpose, status: &mut StackStatus, at: &MicroTime) {
    let Some(snapshot) = run.spec.snapshot.clone() else { return };
    rollback_with_atom::keep_previous(facts.stack, status, &snapshot);
    status.set_applied(Some(snapshot));
    status.attempted = None;
    status.applied_at = Some(at.clone());
    status.outputs_digest = None;
    if purpose != Purpose::Rollback {
        status.failure = None;
    }
    drift::clear(facts.stack, status, at);
}

fn not_applied(facts: &StackFacts<'_>, run: &OwnRun<'_>, purpose: Purpose, status: &mut StackStatus, at: MicroTime) {
    let steps = run.status.as_ref().map(|ended| ended.steps.as_slice()).unwrap_or_default();
    let tried = steps.iter().any(|step| step.name == StepName::Apply && step.state != StepState::Skipped);
    if tried {
        status.attempted.clone_from(&run.spec.snapshot);
    }
    let superseded = is_superseded(run) && phase(run) == RunPhase::Discarded;
    // A person does not want the drift corrected.
    let dismissed = purpose == Purpose::Correct && phase(run) != RunPhase::Failed && !tried;
    if superseded || dismissed {
        return;
    }
    if purpose != Purpose::Rollback {
        fail(facts, status, run, at);
    } else if let Some(failure) = &mut status.failure {
        failure.rollback_failed = true;
        let rollback = format!(" The rollback with run `{}` failed too: {}", run.name_any(), why(run).message);
        failure.message.push_str(&rollback);
    }
}

/// A Run was deleted before its end, so its effect is not known.
fn deleted_run(facts: &StackFacts<'_>, status: &mut StackStatus, now: Timestamp) {
    // A drift check, a rollback and a destruction are repeated without any record of this one.
    let repeated = matches!(status.last_purpose, Some(Purpose::Drift | Purpose::Rollback | Purpose::Destroy));
    if repeated || is_deleted(facts.stack) {
        return;
    }
    let Some(revision) = status.pending_revision.clone() else { return };
    let name = status.last_run.clone().unwrap_or_default();
    let before = status.failure.as_ref().filter(|failure| failure.revision == revision);
    status.failure = Some(FailureStatus {
        message: format!(
            "Run `{name}` was deleted before its end. Change the Stack, or its annotation {}, to start another one.",
            annotation::RECONCILE
        ),
        reason: reason::FAILED.to_owned(),
        phase: RunPhase::Failed,
        purpose: status.last_purpose.unwrap_or_default(),
        run: name,
        count: next_count(before),
        at: Some(MicroTime(now)),
        revision,
        ..FailureStatus::default()
    });
}

fn fail(facts: &StackFacts<'_>, status: &mut StackStatus, run: &OwnRun<'_>, at: MicroTime) {
    let cause = why(run);
    let purpose = run.purpose;
    let revision = run.spec.snapshot.as_ref().map(|snapshot| snapshot.revision.clone()).unwrap_or_default();
    let (before, request) = match purpose {
        Purpose::Destroy => (deletion::failure_of(facts.stack, status), deletion::request(facts.stack)),
        Purpose::Apply | Purpose::Correct | Purpose::Rollback | Purpose::Drift => {
            (status.failure.as_ref().filter(|failure| failure.revision == revision), None)
        }
    };
    let count = next_count(before);
    status.failure = Some(FailureStatus {
        message: format!("Run `{}` ended as {}: {}", run.name_any(), phase(run).as_str(), cause.message),
        reason: cause.reason,
        phase: phase(run),
        run: run.name_any(),
        purpose,
        request,
        revision,
        count,
        at: Some(at),
        ..FailureStatus::default()
    });
}

/// The number of failures in a row, with one more after `before`.
fn next_count(before: Option<&FailureStatus>) -> u32 {
    before.map_or(0, |failure| failure.count).saturating_add(1)
}

/// The reason and the message with which a Run has ended.
pub(super) fn why(run: &Run) -> Cause {
    let ready = run.status.as_ref().and_then(|status| conditions::find(&status.conditions, condition::READY));
    match ready {
        Some(ready) => Cause::new(ready.reason.clone(), ready.message.clone()),
        None => Cause::new(reason::FAILED, "The run has reported nothing."),
    }
}
