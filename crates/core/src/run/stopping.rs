//! Stops the runner of a Run before its end.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::MicroTime};
use knoll_api::{
    names::{annotation, cancel, condition},
    run::{Run, RunStatus},
};
use kube::ResourceExt;

use super::{
    RunDecision, RunFacts, after, delete, is_cancelled, is_past, lost,
    pod_outcome::{self, PodOutcome},
    status,
    stop_times::{PATIENCE, POD_GRACE},
    stopped,
};
use crate::{conditions::ConditionWriter, machine::Decision};

/// Whether the runner of the run's current pod has to stop: somebody cancelled the run, or deleted its pod.
#[must_use]
pub fn must_stop(run: &Run) -> bool {
    is_cancelled(run) || run.status.as_ref().is_some_and(|status| status.stop_requested_at.is_some())
}

/// A cancelled run stops by itself when the hub tells its runner; a pod that has not started, does not stop in time, or
/// has to stop at once, is deleted: to its runner that is a second request.
pub(super) fn cancelled(
    seen: &RunFacts<'_>,
    mut status: RunStatus,
    pod: &Pod,
    outcome: &PodOutcome,
    now: Timestamp,
) -> RunDecision {
    let (run, phase) = (seen.run, status.phase);
    let cause = stopped(run, "; terraform is asked to stop.");
    status::enter(&mut status, run, phase, &cause, now);
    ConditionWriter::new(&mut status.conditions, run.metadata.generation, now).set(
        condition::EXITED,
        false,
        &cause.reason,
        cause.message,
    );
    let requested = status.stop_requested_at.get_or_insert(MicroTime(now)).0;
    let patience = after(Some(requested), Some(POD_GRACE));
    let hard = run.annotations().get(annotation::CANCEL).is_some_and(|value| value == cancel::NOW);
    if hard || matches!(outcome, PodOutcome::Waiting { .. }) || is_past(patience, now) {
        return delete(pod, status);
    }
    Decision::status(status).at(patience)
}

/// The pod of the run is being deleted. The hub tells its runner to stop, should the node not do it. When neither is heard
/// of, the run is given up only after a time in which the runner has stopped by itself.
pub(super) fn with_its_pod(seen: &RunFacts<'_>, mut status: RunStatus, pod: &Pod, now: Timestamp) -> RunDecision {
    let requested = status.stop_requested_at.get_or_insert(MicroTime(now)).0;
    let lost_at = [after(Some(requested), Some(PATIENCE)), pod_outcome::lost_at(pod)].into_iter().flatten().max();
    if is_past(lost_at, now) {
        return lost(seen, status, pod_outcome::lost_with_node(pod), now);
    }
    Decision::status(status).at(lost_at)
}
