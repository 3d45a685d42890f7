//! What a person's decision does to a run.
//!
//! *Guarantee.* Only an Approval that names the run and the exact digest that the run waits for has an effect. A run is
//! approved when as many different users as the Policies demand have approved it, each of whom may; one user is enough to
//! discard it. What is decided first counts; later decisions do not change it.

mod request;

use std::convert::Infallible;

use jiff::Timestamp;
use knoll_api::{
    approval::{Approval, ApprovalPhase, ApprovalStatus, Decision},
    names::{condition, reason},
    run::{FrozenJobSummary, ReviewDecision, Run, RunPhase, RunSpec, RunStatus},
};
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::{
    conditions::{ConditionWriter, Truth},
    machine,
    policy::Reviewers,
    run::requested_by,
};

pub use request::{Decider, NotWaiting, request, waiting_digest};

/// What the Approvals of a run come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The run is neither approved nor discarded.
    Open {
        /// An Approval that names the run, but another digest.
        mismatch: Option<String>,
        /// The users whose Approvals count.
        counted: Vec<String>,
        /// The number of users whose Approvals the run needs.
        needed: u32,
        /// The last Approval that does not count, and why.
        uncounted: Option<(String, String)>,
    },
    Decided(ReviewDecision),
}

/// What one Approval of a run is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Worth {
    /// It is one of the Approvals that the run needs.
    Counts,
    /// It overrides denials, and is by a user who has approved before.
    Lifts,
    /// It discards the run.
    Discards,
    /// It names another digest.
    OtherDigest,
    /// It has no effect, for a reason and with a sentence.
    Refused(&'static str, String),
}

/// Judges the Approvals of a run that waits for `digest`.
#[must_use]
pub fn judge<'a>(
    run: &Run,
    digest: &str,
    approvals: impl IntoIterator<Item = &'a Approval>,
    reviewers: &Reviewers,
) -> Verdict {
    let needed = reviewers.needed(requested_by(run));
    let (mut mismatch, mut uncounted) = (None, None);
    let (mut counted, mut lifting): (Vec<&Approval>, Vec<&Approval>) = (Vec::new(), Vec::new());
    for (approval, worth) in weigh(run, digest, approvals, reviewers) {
        match worth {
            Worth::Counts => counted.push(approval),
            Worth::Lifts => lifting.push(approval),
            Worth::Discards => return Verdict::Decided(decision(Decision::Discard, &[approval])),
            Worth::OtherDigest => mismatch = Some(approval.name_any()),
            Worth::Refused(_, why) => uncounted = Some((approval.name_any(), why)),
        }
        let all = [counted.as_slice(), lifting.as_slice()].concat();
        if counted.len() >= usize::try_from(needed).unwrap_or(usize::MAX) && is_lifted(&all, reviewers) {
            return Verdict::Decided(decision(Decision::Approve, &all));
        }
    }
    let counted = counted.iter().map(|approval| approval.spec.by.clone()).collect();
    Verdict::Open { mismatch, counted, needed, uncounted }
}

/// Whether the Approvals override each Policy that denies the plan.
fn is_lifted(counted: &[&Approval], reviewers: &Reviewers) -> bool {
    reviewers.overriders.values().all(|groups| counted.iter().any(|approval| overrides(approval, groups)))
}

fn overrides(approval: &Approval, groups: &[String]) -> bool {
    approval.spec.policy.is_some() && groups.iter().any(|group| approval.spec.groups.contains(group))
}

fn decision(decision: Decision, approvals: &[&Approval]) -> ReviewDecision {
    let mut by: Vec<&str> = Vec::new();
    for approval in approvals {
        if !by.contains(&approval.spec.by.as_str()) {
            by.push(&approval.spec.by);
        }
    }
    ReviewDecision {
        approvals: approvals.iter().map(|approval| approval.name_any()).collect(),
        decision,
        by: by.join(", "),
    }
}

/// The Approvals of a run in the order of their creation, and what each is worth.
///
/// An Approval that is older than the run was meant for an earlier run of the same name.
fn weigh<'a>(
    run: &Run,
    digest: &str,
    approvals: impl IntoIterator<Item = &'a Approval>,
    reviewers: &Reviewers,
) -> Vec<(&'a Approval, Worth)> {
    let mut mine: Vec<&Approval> = approvals
        .into_iter()
        .filter(|approval| approval.spec.run == run.name_any())
        .filter(|approval| approval.metadata.deletion_timestamp.is_none())
        .filter(|approval| created(approval) >= run.metadata.creation_timestamp.as_ref().map(|time| time.0))
        .collect();
    mine.sort_by_key(|approval| (created(approval), approval.name_any()));
    let mut counted: Vec<(&str, String)> = Vec::new();
    let worth = |approval: &'a Approval| {
        let spec = &approval.spec;
        if spec.digest != digest {
            return Worth::OtherDigest;
        }
        if spec.decision == Decision::Discard {
            return Worth::Discards;
        }
        if let Some((reason, why)) = refusal(run, approval, reviewers) {
            return Worth::Refused(reason, why);
        }
        if let Some((_, other)) = counted.iter().find(|(by, _)| *by == spec.by) {
            if spec.policy.is_some() {
                return Worth::Lifts;
            }
            let why = format!("{} has already approved `{}` with Approval `{other}`.", spec.by, spec.run);
            return Worth::Refused(reason::DUPLICATE, why);
        }
        counted.push((&spec.by, approval.name_any()));
        Worth::Counts
    };
    let worths: Vec<Worth> = mine.iter().copied().map(worth).collect();
    mine.into_iter().zip(worths).collect()
}

/// Why the user of an Approval may not approve the run.
fn refusal(run: &Run, approval: &Approval, reviewers: &Reviewers) -> Option<(&'static str, String)> {
    let spec = &approval.spec;
    if let (Some(policy), Some(requester)) = (reviewers.four_eyes.first(), requested_by(run))
        && requester == spec.by
    {
        let why = format!(
            "{requester} asked for the run, so another user has to approve it: Policy `{policy}` (spec.review.fourEyes)."
        );
        return Some((reason::REQUESTER, why));
    }
    if spec.policy.is_some() && !reviewers.overriders.values().any(|groups| overrides(approval, groups)) {
        let policies: Vec<String> = reviewers.overriders.keys().take(8).map(|policy| format!("`{policy}`")).collect();
        let why = match policies.as_slice() {
            [] => "It has policy: override, and no Policy denies the plan.".to_owned(),
            policies => format!(
                "An override needs a user of a group that the denying Policy names (spec.plan.override.groups of {}), and the Approval names none of them in `groups`.",
                policies.join(", ")
            ),
        };
        return Some((reason::NOT_IN_GROUP, why));
    }
    let missed = reviewers.groups.iter().find(|(_, groups)| !groups.iter().any(|group| spec.groups.contains(group)));
    missed.map(|(policy, groups)| {
        let groups: Vec<String> = groups.iter().take(8).map(|group| format!("`{group}`")).collect();
        let why = format!(
            "Policy `{policy}` (spec.review.groups) requires an approver in one of the groups {}, and the Approval names none of them in `groups`.",
            groups.join(", ")
        );
        (reason::NOT_IN_GROUP, why)
    })
}

/// Decides the status of an Approval: the effect it had, or why it has none. `others` are the Approvals that name the same
/// Run, this one among them.
///
/// The status stays as it is while the run may still come to the Approval, so that a cache that is behind never
/// publishes an effect that is not true. A decision that took effect stays `Effective` when its Run is gone.
#[must_use]
pub fn decide(
    approval: &Approval,
    run: Option<&Run>,
    others: &[&Approval],
    reviewers: &Reviewers,
    now: Timestamp,
) -> machine::Decision<ApprovalStatus, Infallible> {
    let known = || approval.status.clone().unwrap_or_default();
    machine::Decision::status(effect(approval, run, others, reviewers, now).unwrap_or_else(known))
}

fn effect(
    approval: &Approval,
    run: Option<&Run>,
    others: &[&Approval],
    reviewers: &Reviewers,
    now: Timestamp,
) -> Option<ApprovalStatus> {
    if approval.status.as_ref().is_some_and(|status| status.phase == ApprovalPhase::Effective) {
        return None;
    }
    let spec = &approval.spec;
    let status = run.and_then(|run| run.status.as_ref());
    let decided = status.and_then(|status| status.decision.as_ref());
    let (phase, why, message) = match (status, decided) {
        (_, Some(decision)) if decision.approvals.contains(&approval.name_any()) => {
            let did = match decision.decision {
                Decision::Approve => "approved",
                Decision::Discard => "discarded",
            };
            (ApprovalPhase::Effective, reason::EFFECTIVE, format!("`{}` was {did} by {}.", spec.run, decision.by))
        }
        (_, Some(_)) if is_refused(approval) => return None,
        (_, Some(decision)) => {
            let approvals: Vec<String> = decision.approvals.iter().map(|name| format!("`{name}`")).collect();
            let message = match approvals.as_slice() {
                [] => format!("`{}` was decided by {}.", spec.run, decision.by),
                [one] => format!("`{}` was decided by Approval {one}.", spec.run),
                several => format!("`{}` was decided by Approvals {}.", spec.run, several.join(", ")),
            };
            (ApprovalPhase::NoEffect, reason::NOT_WAITING, message)
        }
        (Some(status), None) if status.phase == RunPhase::Review => {
            let wanted = status.review_digest.as_deref().unwrap_or_default();
            if wanted == spec.digest {
                waiting(approval, run?, wanted, others, reviewers)?
            } else {
                let message = format!(
                    "`{}` is waiting for an approval of `{wanted}`, and this Approval is for `{}`.",
                    spec.run, spec.digest
                );
                (ApprovalPhase::NoEffect, reason::DIGEST_MISMATCH, message)
            }
        }
        (Some(status), None) if status.phase.is_finished() => {
            let message =
                format!("`{}` has finished ({}), so there is nothing to decide.", spec.run, status.phase.as_str());
            (ApprovalPhase::NoEffect, reason::NOT_WAITING, message)
        }
        (None, None) if run.is_none() => {
            let message = format!("Run `{}` does not exist in this namespace.", spec.run);
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

/// The status of an Approval of the digest that its Run waits for: it counts beside others, or not at all. `None` while
/// the Run has yet to take the decision in.
fn waiting(
    approval: &Approval,
    run: &Run,
    digest: &str,
    others: &[&Approval],
    reviewers: &Reviewers,
) -> Option<(ApprovalPhase, &'static str, String)> {
    let Verdict::Open { counted, needed, .. } = judge(run, digest, others.iter().copied(), reviewers) else {
        return None;
    };
    let weighed = weigh(run, digest, others.iter().copied(), reviewers);
    let (_, worth) = weighed.into_iter().find(|(other, _)| other.metadata.name == approval.metadata.name)?;
    match worth {
        Worth::Counts | Worth::Lifts => {
            let message = format!("It counts: `{}` has {} of {needed} Approvals.", approval.spec.run, counted.len());
            Some((ApprovalPhase::Counted, reason::COUNTED, message))
        }
        Worth::Refused(reason, why) => Some((ApprovalPhase::NoEffect, reason, format!("It does not count. {why}"))),
        Worth::Discards | Worth::OtherDigest => None,
    }
}

/// Whether the status of an Approval says why it did not count: that stays true when others have decided.
fn is_refused(approval: &Approval) -> bool {
    let conditions = approval.status.iter().flat_map(|status| &status.conditions);
    let mut reasons = conditions.map(|condition| condition.reason.as_str());
    reasons.any(|found| [reason::NOT_IN_GROUP, reason::REQUESTER, reason::DUPLICATE].contains(&found))
}

/// The digest that an Approval of a plan has to name: of the plan's bytes, of its text that approvers read, of the bundle
/// that it was made from, and of the frozen job with its images. None while one of them is not known.
#[must_use]
pub fn plan_digest(status: &RunStatus) -> Option<String> {
    let plan = status.plan.as_ref()?;
    let (plan, text) = (plan.digest.as_deref()?, plan.text_digest.as_deref()?);
    let (bundle, job) = (status.bundle.as_deref()?, status.job.as_ref()?);
    Some(digest_of(["planned", plan, text, bundle].into_iter().chain(parts_of(job))))
}

/// The digest that an Approval has to name of a run without a plan: of its operation, its words, the bundle it runs in,
/// the input with the values that its words leave out, and the frozen job.
#[must_use]
pub fn command_digest(spec: &RunSpec, status: &RunStatus) -> String {
    let bundle = status.bundle.as_deref().unwrap_or_default();
    let words: Vec<&str> = words_of(spec).collect();
    // The number of the words, so that none of them can pass for the bundle.
    let count = words.len().to_string();
    let job = status.job.iter().flat_map(parts_of);
    let input = spec.input.as_ref().map_or("", |input| input.digest.as_str());
    digest_of([spec.operation.as_str(), count.as_str()].into_iter().chain(words).chain([bundle, input]).chain(job))
}

/// What stands for a frozen job. Its digest covers all but the images, which are known only when the plan was made.
fn parts_of(job: &FrozenJobSummary) -> impl Iterator<Item = &str> {
    let images = job.image_digests.iter().flat_map(|(container, image)| [container.as_str(), image.as_str()]);
    [job.digest.as_str()].into_iter().chain(images)
}

/// Every part is preceded by its length, so that no two lists of parts share their bytes.
fn digest_of<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    knoll_api::Digest::from_hash(hash.finalize().into()).into()
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
