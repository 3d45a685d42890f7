//! What a person's decision does to a run.
//!
//! *Guarantee.* Only an Approval that names the run and the exact digest that the run waits for has an effect.
//! The first such decision counts; later ones do not change it.

use std::convert::Infallible;

use jiff::Timestamp;
use knoll_api::{
    approval::{Approval, ApprovalPhase, ApprovalStatus, Decision},
    names::{condition, reason},
    run::{Operation, ReviewDecision, Run, RunPhase, RunSpec},
    workspace::WorkspaceSpec,
};
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::{
    conditions::{ConditionWriter, Truth},
    machine,
};

/// What the Approvals of a run come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody has decided on this digest.
    Open {
        /// An Approval that names the run, but another digest.
        mismatch: Option<String>,
    },
    Decided(ReviewDecision),
}

/// Judges the Approvals of a run that waits for `digest`.
///
/// An Approval that is older than the run was meant for an earlier run of the same name.
#[must_use]
pub fn judge<'a>(run: &Run, digest: &str, approvals: impl IntoIterator<Item = &'a Approval>) -> Verdict {
    let mut mine: Vec<&Approval> = approvals
        .into_iter()
        .filter(|approval| approval.spec.run == run.name_any())
        .filter(|approval| approval.metadata.deletion_timestamp.is_none())
        .filter(|approval| created(approval) >= run.metadata.creation_timestamp.as_ref().map(|time| time.0))
        .collect();
    mine.sort_by_key(|approval| (created(approval), approval.name_any()));

    match mine.iter().find(|approval| approval.spec.digest == digest) {
        Some(approval) => Verdict::Decided(ReviewDecision {
            approval: approval.name_any(),
            decision: approval.spec.decision,
            by: approval.spec.by.clone(),
        }),
        None => Verdict::Open { mismatch: mine.last().map(|approval| approval.name_any()) },
    }
}

/// Decides the status of an Approval: the effect it had, or why it has none.
///
/// The status stays as it is while the run may still come to the Approval, so that a cache that is behind never
/// publishes an effect that is not true.
#[must_use]
pub fn decide(approval: &Approval, run: Option<&Run>, now: Timestamp) -> machine::Decision<ApprovalStatus, Infallible> {
    let known = || approval.status.clone().unwrap_or_default();
    machine::Decision::status(effect(approval, run, now).unwrap_or_else(known))
}

fn effect(approval: &Approval, run: Option<&Run>, now: Timestamp) -> Option<ApprovalStatus> {
    let spec = &approval.spec;
    let status = run.and_then(|run| run.status.as_ref());
    let decided = status.and_then(|status| status.decision.as_ref());
    let (phase, why, message) = match (status, decided) {
        (_, Some(decision)) if decision.approval == approval.name_any() => {
            let did = match decision.decision {
                Decision::Approve => "approved",
                Decision::Discard => "discarded",
            };
            (ApprovalPhase::Effective, reason::EFFECTIVE, format!("`{}` was {did} by {}.", spec.run, spec.by))
        }
        (_, Some(decision)) => {
            let message = format!("`{}` was decided by Approval `{}`.", spec.run, decision.approval);
            (ApprovalPhase::NoEffect, reason::NOT_WAITING, message)
        }
        (Some(status), None) if status.phase == RunPhase::Review => {
            let wanted = status.review_digest.as_deref().unwrap_or_default();
            if wanted == spec.digest {
                return None;
            }
            let message =
                format!("`{}` waits for a decision on `{wanted}`, and this is one on `{}`.", spec.run, spec.digest);
            (ApprovalPhase::NoEffect, reason::DIGEST_MISMATCH, message)
        }
        (Some(status), None) if status.phase.is_finished() => {
            let message = format!("`{}` has ended ({}) and waits for no decision.", spec.run, status.phase.as_str());
            (ApprovalPhase::NoEffect, reason::NOT_WAITING, message)
        }
        (None, None) if run.is_none() => {
            let message = format!("There is no Run `{}` in this namespace.", spec.run);
            (ApprovalPhase::NoEffect, reason::NOT_WAITING, message)
        }
        _ => return None,
    };

    let mut next = approval.status.clone().unwrap_or_default();
    next.phase = phase;
    next.observed_generation = approval.metadata.generation;
    let effective = Truth::from(phase == ApprovalPhase::Effective);
    ConditionWriter::new(&mut next.conditions, approval.metadata.generation, now)
        .set(condition::READY, effective, why, message.clone())
        .set(condition::STALLED, phase == ApprovalPhase::NoEffect, why, message);
    Some(next)
}

/// Whether the run's command is one that its Workspace wants to be approved.
#[must_use]
pub fn is_privileged(spec: &RunSpec, workspace: &WorkspaceSpec) -> bool {
    if spec.operation != Operation::Command {
        return false;
    }
    let words: Vec<&str> = words_of(spec).collect();
    workspace.privileged_commands.iter().any(|privileged| {
        let privileged: Vec<&str> = privileged.split_whitespace().collect();
        !privileged.is_empty() && words.starts_with(&privileged)
    })
}

/// The digest that an Approval of a privileged command has to name: of its words and of the bundle it runs in.
///
/// Every part is preceded by its length, so that no two commands share their bytes.
#[must_use]
pub fn command_digest(spec: &RunSpec, bundle: Option<&str>) -> String {
    let mut hash = Sha256::new();
    for part in words_of(spec).chain([bundle.unwrap_or_default()]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn words_of(spec: &RunSpec) -> impl Iterator<Item = &str> {
    let command = spec.command.as_deref().unwrap_or_default();
    command.split_whitespace().chain(spec.args.iter().map(String::as_str))
}

fn created(approval: &Approval) -> Option<Timestamp> {
    approval.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests;
