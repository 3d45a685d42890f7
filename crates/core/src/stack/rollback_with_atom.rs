//! The rollback of a Stack together with an Atom (`spec.rollbackWith`).
//!
//! An update of the Atom that used a new revision of the Stack may fail. If the Atom was never good with that revision, the
//! revision counts as failed, and the previous one is applied again.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knoll_api::{
    Atom, Stack,
    atom::{AtomPhase, AtomRevision},
    names::reason,
    run::RunPhase,
    stack::{FailureStatus, Snapshot, StackStatus},
};
use kube::ResourceExt;

use super::StackFacts;

/// The longest message of a failure, in characters.
const MESSAGE_MAX: usize = 2000;

/// Keeps the applied snapshot as the previous one, before `next` takes its place.
pub(super) fn keep_previous(stack: &Stack, status: &mut StackStatus, next: &Snapshot) {
    if stack.spec.rollback_with.is_none() {
        status.previous = None;
    } else if let Some(applied) = status.applied().filter(|applied| applied.revision != next.revision) {
        status.previous = Some(applied);
    }
}

/// Accounts for a failure of the Atom with the applied revision.
pub(super) fn account(facts: &StackFacts<'_>, status: &mut StackStatus, now: Timestamp) {
    let Some(atom) = facts.atom else { return };
    let Some(message) = refusal(facts.stack, status, atom) else { return };
    let (Some(bad), Some(previous)) = (status.applied(), status.previous.take()) else { return };
    status.failure = Some(FailureStatus {
        revision: bad.revision.clone(),
        run: status.last_run.clone().unwrap_or_default(),
        reason: reason::ATOM_FAILED.to_owned(),
        message,
        phase: RunPhase::Failed,
        atom: Some(atom.name_any()),
        count: 1,
        at: Some(MicroTime(now)),
        ..FailureStatus::default()
    });
    status.attempted = Some(bad);
    status.set_applied(Some(previous));
}

/// The message of the Atom's failure, if the applied revision is to blame for it.
fn refusal(stack: &Stack, status: &StackStatus, atom: &Atom) -> Option<String> {
    let of_atom = atom.status.as_ref()?;
    let failed = matches!(of_atom.phase, AtomPhase::Rollback | AtomPhase::Reverted | AtomPhase::Failure);
    let name = stack.name_any();
    let used = |of: Option<&AtomRevision>| of.and_then(|of| of.stacks.get(&name).cloned());
    let (tried, good) = (used(of_atom.tried.as_ref()), used(of_atom.good.as_ref()));
    if !failed || tried.is_none() || tried != status.revision || tried == good {
        return None;
    }
    let why = of_atom.failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
    let message = format!("The update of Atom `{}` with this revision failed. {why}", atom.name_any());
    Some(message.chars().take(MESSAGE_MAX).collect())
}
