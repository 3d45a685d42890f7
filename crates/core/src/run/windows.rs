//! A Run that may change something waits until the windows of the Policies let it start.

use std::time::Duration;

use jiff::Timestamp;
use knoll_api::{
    names::{condition, reason},
    run::RunStatus,
};

use super::{RunDecision, RunFacts, status::Cause, steps::Stage, waiting};
use crate::{conditions::ConditionWriter, machine::Decision, policy};

/// How soon a Run that waits is looked at again at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// The decision that keeps the pod of a stage from being created now, if there is one. A pod that only plans is never kept.
/// Where the Run's user overrides a window, `status` says so from now on.
pub(super) fn check(facts: &RunFacts<'_>, status: &mut RunStatus, stage: Stage, now: Timestamp) -> Option<RunDecision> {
    let run = facts.run;
    let change = policy::change(run, facts.stack).filter(|_| !matches!(stage, Stage::Plan | Stage::Judge))?;
    if let Some(closed) = facts.policy.closed(run, change, now) {
        let soon = now.checked_add(LOOK_AGAIN).ok();
        let again = [closed.until, soon].into_iter().flatten().min();
        let cause = Cause::new(reason::WAITING_FOR_WINDOW, closed.message);
        return Some(Decision::status(waiting(run, &cause, now)).at(again));
    }
    let overridden = facts.policy.overridden(run, change, now);
    if let (Some(start), Some(by), [_, ..]) = (&run.spec.start_now, super::requested_by(run), overridden.as_slice()) {
        let names: Vec<String> = overridden.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("{by} did not wait for the windows of Policy {}: {}", names.join(", "), start.because);
        ConditionWriter::new(&mut status.conditions, run.metadata.generation, now).set(
            condition::WINDOW_OVERRIDDEN,
            true,
            reason::STARTED_NOW,
            message,
        );
    }
    None
}
