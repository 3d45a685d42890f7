//! The pods of a Run that have nothing more to do: they are deleted with their files, among which is the state.
//!
//! *Guarantee.* The log of a pod is stored before the pod is deleted: its runner reports the end of a Run, and the plan of a
//! review, after the hub has the log. A pod whose runner did not report is kept for longer, because nothing else tells why.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use knoll_api::run::{RunPhase, RunStatus};

use super::{
    RunDecision, RunFacts, after, delete, is_past, pod,
    pod_outcome::{self, PodOutcome},
};
use crate::machine::Decision;

/// How long a client that follows a Run may still read the end of its log from the pod, which `knoll` does for at most 10 s.
const CLIENTS_READ: Duration = Duration::from_secs(20);

/// How long the pod of a Run is kept whose runner did not report its end: long enough for `kubectl describe` and
/// `kubectl logs`.
const EVIDENCE_KEPT: Duration = Duration::from_secs(3600);

/// Deletes a pod of the Run that has ended, some time after `since`; publishes the status when there is none.
pub(super) fn done(seen: &RunFacts<'_>, since: Option<Timestamp>, status: RunStatus, now: Timestamp) -> RunDecision {
    let is_reported = status.exit_code.is_some() || status.phase == RunPhase::Review;
    let expiry = after(since, Some(if is_reported { CLIENTS_READ } else { EVIDENCE_KEPT }));
    let is_done = |pod: &&&Pod| {
        let is_going = pod.metadata.deletion_timestamp.is_some();
        pod::is_of(pod, seen.run) && !is_going && matches!(pod_outcome::of(pod, now), PodOutcome::Ended(_))
    };
    match seen.pods.iter().find(is_done) {
        None => Decision::status(status),
        Some(pod) if is_past(expiry, now) => delete(pod, status),
        Some(_) => Decision::status(status).at(expiry),
    }
}
