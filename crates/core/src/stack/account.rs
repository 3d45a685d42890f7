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
    Inputs, OwnRun, StackFacts, conditions as stack_conditions, deletion, drift, is_deleted, ordered, phase, requester,
    rollback_with_atom, state, unfinished, wording,
};
use crate::{
    conditions,
    outputs::{self, HiddenOutputs},
    run::is_superseded,
    status::Cause,
    steps::is_hook,
};

/// How a person lets a destroy pass that a hook refuses.
const HOOK_HINT: &str = " The hooks in spec.hooks run before a destroy as well: change the hook so that it allows the destroy, or remove it, and the next attempt uses the changed hooks.";

/// The published status, with all that has happened since.
pub(super) fn all(facts: &StackFacts<'_>, now: Timestamp) -> StackStatus {
    let mut status = facts.stack.status.clone().unwrap_or_default();
    if !state::is_claimed(facts) {
        return status;
    }
    ended_runs(facts, &mut status, now);
    stack_conditions::fetched(&mut status, facts.stack, facts.remote, now);
    // Also a change that a Policy refuses has an author, and may be a part of the next one.
    if let (false, Inputs::Resolved { snapshot, .. }) = (is_deleted(facts.stack), facts.inputs) {
        requester::account(facts.stack, &mut status, snapshot);
    }
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
    let snapshot = run.spec.snapshot.clone();
    let record = StartedRun { name, uid: run.uid().unwrap_or_default(), number, purpose, snapshot };
    status.runs = record.number;
    status.last_run = Some(record.name.clone());
    status.last_purpose = Some(record.purpose);
    // Every earlier Run is accounted for.
    status.started_runs.iter_mut().for_each(|earlier| earlier.snapshot = None);
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
    if ended.bundle.is_some() && matches!(run.purpose, Purpose::Apply | Purpose::Correct) {
        stack_conditions::undeclared(status, facts.stack, &ended.undeclared_variables, now);
    }
    match run.purpose {
        Purpose::Drift => {
            drift::account(facts.stack, run, status, &at);
            if succeeded {
                drift::compared(facts, run, status);
            }
        }
        Purpose::Destroy if succeeded => {
            status.set_applied(None);
            status.attempted = None;
            status.applied_at = None;
            status.outputs.clear();
            outputs::tell(&mut status.conditions, None, &HiddenOutputs::default(), now);
            status.outputs_digest = None;
            status.known_state = None;
            status.failure = None;
            status.drift = None;
        }
        Purpose::Destroy if is_replaced(run) => {}
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
    // A person does not want the drift corrected.
    let dismissed = purpose == Purpose::Correct && phase(run) != RunPhase::Failed && !tried;
    if is_replaced(run) || dismissed {
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

/// Whether the Run gave its place to another one before it changed anything.
fn is_replaced(run: &Run) -> bool {
    is_superseded(run) && phase(run) == RunPhase::Discarded
}

/// The newest Run was deleted before its end was accounted for, so its effect is not known.
fn deleted_run(facts: &StackFacts<'_>, status: &mut StackStatus, now: Timestamp) {
    let Some(StartedRun { name, purpose, snapshot: Some(snapshot), .. }) = status.started_runs.last().cloned() else {
        return;
    };
    // A drift check, a correction, a rollback and a destruction are repeated without any record of this one.
    if purpose != Purpose::Apply {
        return;
    }
    let revision = snapshot.revision.clone();
    status.attempted = Some(snapshot);
    // It is no failure of the revision that has taken its place.
    let is_outdated = facts.inputs.snapshot().is_some_and(|newest| newest.revision != revision);
    if is_outdated || is_deleted(facts.stack) {
        return;
    }
    let before = status.failure.as_ref().filter(|failure| failure.revision == revision);
    status.failure = Some(FailureStatus {
        message: format!(
            "Run `{name}` was deleted before its end. Change the Stack, or its annotation {}, to start another one.",
            annotation::RECONCILE
        ),
        reason: reason::FAILED.to_owned(),
        phase: RunPhase::Failed,
        purpose,
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
    let hint = if purpose == Purpose::Destroy && is_hook_failure(run) { HOOK_HINT } else { "" };
    status.failure = Some(FailureStatus {
        message: format!("Run `{}` ended as {}: {}{hint}", run.name_any(), phase(run).as_str(), cause.message),
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

/// Whether a hook made the Run fail.
fn is_hook_failure(run: &Run) -> bool {
    let steps = run.status.iter().flat_map(|status| &status.steps);
    steps.into_iter().any(|step| step.state == StepState::Failed && is_hook(step.name))
}

/// The number of failures in a row, with one more after `before`.
fn next_count(before: Option<&FailureStatus>) -> u32 {
    before.map_or(0, |failure| failure.count).saturating_add(1)
}

/// The reason and the message with which a Run has ended.
pub(super) fn why(run: &Run) -> Cause {
    let ready = run.status.as_ref().and_then(|status| conditions::find(&status.conditions, condition::READY));
    match ready {
        Some(ready) => Cause::new(ready.reason.clone(), wording::of_stack(&ready.message)),
        None => Cause::new(reason::FAILED, "The run has reported nothing."),
    }
}
