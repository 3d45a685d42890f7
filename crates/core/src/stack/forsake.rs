//! A Stack that goes back with an Atom: one transaction over both worlds.
//!
//! When an update of the Atom has failed that used a revision of the Stack with which the Atom was never good, that
//! revision counts as failed, and the one before is applied again.

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

use super::{Observed, last_good};

/// Keeps what is applied now, before `next` takes its place.
pub(super) fn keep(stack: &Stack, status: &mut StackStatus, next: &Snapshot) {
    if stack.spec.rollback_with.is_none() {
        status.previous = None;
    } else if let Some(now) = last_good(status).filter(|now| now.revision != next.revision) {
        status.previous = Some(now);
    }
}

/// Notes that the revision that is applied has failed, if its Atom says so.
pub(super) fn by_its_atom(seen: &Observed<'_>, status: &mut StackStatus, now: Timestamp) {
    let Some(message) = seen.atom.and_then(|atom| refusal(seen.stack, status, atom)) else { return };
    let (Some(bad), Some(previous)) = (last_good(status), status.previous.take()) else { return };
    status.failure = Some(FailureStatus {
        revision: bad.revision.clone(),
        run: status.last_run.clone().unwrap_or_default(),
        reason: reason::ATOM_FAILED.to_owned(),
        message,
        phase: RunPhase::Failed,
        count: 1,
        at: Some(MicroTime(now)),
    });
    status.attempted = Some(bad);
    status.revision = Some(previous.revision);
    status.bundle = Some(previous.bundle);
    status.variables = Some(previous.variables);
}

/// Why the revision that is applied is no good to the Atom.
fn refusal(stack: &Stack, status: &StackStatus, atom: &Atom) -> Option<String> {
    let said = atom.status.as_ref()?;
    let failed = matches!(said.phase, AtomPhase::Rollback | AtomPhase::Reverted | AtomPhase::Failure);
    let name = stack.name_any();
    let used = |of: Option<&AtomRevision>| of.and_then(|of| of.stacks.get(&name).cloned());
    let (tried, good) = (used(said.tried.as_ref()), used(said.good.as_ref()));
    if !failed || tried.is_none() || tried != status.revision || tried == good {
        return None;
    }
    let why = said.failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
    let message = format!("The Atom `{}` did not come up with it. {why}", atom.name_any());
    Some(message.chars().take(2000).collect())
}
