//! What a pod's status says about the runner in it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use knoll_api::{
    names::{self, reason},
    wire::EndReason,
};

use super::{
    status::Cause,
    stop_times::{PATIENCE, POD_GRACE},
};

/// How long after its grace period a pod may still be there before its node counts as lost.
const LOST_AFTER: Duration = PATIENCE.saturating_sub(POD_GRACE);

/// How far the runner of a pod is, or how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodOutcome {
    /// Its runner has not started yet. Next: any other.
    Waiting {
        /// What it waits for, when that is worth telling.
        why: Option<Cause>,
    },
    /// Its runner has started. Next: `Ended`.
    Running,
    /// Its runner never starts, and this is why; the pod has to be deleted. Next: `Ended`.
    Hopeless(Cause),
    /// It will not run again, and this is why.
    Ended(Cause),
}

/// Reads the outcome of a pod. A pod that is still there long after its grace period has ended with its node.
#[must_use]
pub fn of(pod: &Pod, now: Timestamp) -> PodOutcome {
    match reported(pod) {
        PodOutcome::Ended(cause) => PodOutcome::Ended(cause),
        _ if lost_at(pod).is_some_and(|at| at <= now) => PodOutcome::Ended(lost_with_node(pod)),
        outcome => outcome,
    }
}

/// Reads the outcome that the node of a pod reports.
#[must_use]
pub fn reported(pod: &Pod) -> PodOutcome {
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or("Pending");
    if phase == "Succeeded" || phase == "Failed" {
        return PodOutcome::Ended(end(pod, &status));
    }
    if let Some(cause) = not_installed(&status) {
        return PodOutcome::Hopeless(cause);
    }
    let state = container(&status, names::pod::CONTAINER).and_then(|runner| runner.state.as_ref());
    if let Some(terminated) = state.and_then(|state| state.terminated.as_ref()) {
        return PodOutcome::Ended(exited(pod, terminated));
    }
    let is_installed = container(&status, names::pod::INSTALL_CONTAINER)
        .is_none_or(|install| install.state.as_ref().is_some_and(|state| state.terminated.is_some()));
    if is_installed && state.is_some_and(|state| state.running.is_some()) {
        return PodOutcome::Running;
    }
    PodOutcome::Waiting { why: waits_for(&status) }
}

/// When a pod that is being deleted counts as lost; deletionTimestamp is where its grace period ends.
#[must_use]
pub fn lost_at(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref().and_then(|time| time.0.checked_add(LOST_AFTER).ok())
}

/// The end of a pod whose node does not answer.
#[must_use]
pub fn lost_with_node(pod: &Pod) -> Cause {
    let (reason, message) = node_lost(pod);
    Cause::new(reason.as_str(), message)
}

fn container<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    status.container_statuses.iter().flatten().find(|container| container.name == name)
}

/// Why the runner was not brought, when that has failed; or what failed before, such as an init container of a mesh.
fn not_installed(status: &PodStatus) -> Option<Cause> {
    let install = container(status, names::pod::INSTALL_CONTAINER);
    let mut before = status.init_container_statuses.iter().flatten().chain(install);
    let (container, terminated) = before.find_map(|container| Some((container, failed(container)?)))?;
    let message = format!("Container `{}` failed: {}", container.name, sentence(terminated));
    Some(Cause::new(reason::POD_FAILED, message))
}

/// Why the cluster took a pod away, when it says so.
fn disrupted(pod: &Pod, status: &PodStatus) -> Option<(EndReason, String)> {
    let disruption = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True");
    let disrupted = disruption.and_then(|condition| condition.reason.as_deref());
    let because = |text: Option<&String>| text.map(|text| format!(": {text}")).unwrap_or_default();
    match (status.reason.as_deref(), disrupted) {
        (Some("Evicted"), _)
        | (_, Some("EvictionByEvictionAPI" | "TerminationByKubelet" | "PreemptionByScheduler")) => {
            let told = status.message.as_ref().or_else(|| disruption.and_then(|condition| condition.message.as_ref()));
            Some((EndReason::Evicted, format!("The pod was evicted{}.", because(told))))
        }
        (Some("NodeLost"), _) | (_, Some("DeletionByPodGC" | "DeletionByTaintManager")) => Some(node_lost(pod)),
        _ => None,
    }
}

/// Why a pod that has ended did, the most telling fact first.
fn end(pod: &Pod, status: &PodStatus) -> Cause {
    if let Some((reason, message)) = disrupted(pod, status) {
        return Cause::new(reason.as_str(), message);
    }
    let because = |text: Option<&String>| text.map(|text| format!(": {text}")).unwrap_or_default();
    if let Some(cause) = not_installed(status) {
        return cause;
    }
    match container(status, names::pod::CONTAINER)
        .and_then(|runner| runner.state.as_ref())
        .and_then(|state| state.terminated.as_ref())
    {
        Some(terminated) => exited(pod, terminated),
        None if pod.metadata.deletion_timestamp.is_some() => {
            Cause::new(reason::POD_DELETED, "The pod was deleted before its runner started.")
        }
        None => Cause::new(
            reason::POD_FAILED,
            format!("The pod ended before its runner started{}.", because(status.message.as_ref())),
        ),
    }
}

fn failed(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref().filter(|terminated| terminated.exit_code != 0)
}

fn node_lost(pod: &Pod) -> (EndReason, String) {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("its node");
    (EndReason::NodeLost, format!("Node `{node}` does not answer any more; the run is lost with it."))
}

/// The runner is gone and did not say its end to the hub.
fn exited(pod: &Pod, terminated: &ContainerStateTerminated) -> Cause {
    match terminated.reason.as_deref() {
        Some("OOMKilled") => Cause::new(
            reason::OOM_KILLED,
            "The runner was killed because it used more memory than its limit; raise `pod.resources` of the Workspace.",
        ),
        Some("StartError" | "ContainerCannotRun" | "RunContainerError") => {
            Cause::new(reason::POD_FAILED, format!("The runner could not be started: {}", sentence(terminated)))
        }
        _ if pod.metadata.deletion_timestamp.is_some() => Cause::new(
            reason::POD_DELETED,
            format!("The pod was deleted before its runner had reported its end: {}", sentence(terminated)),
        ),
        _ => Cause::new(
            reason::RUNNER_LOST,
            format!("The runner ended before it had reported its end: {}", sentence(terminated)),
        ),
    }
}

/// How a container ended, with the last words it left.
fn sentence(terminated: &ContainerStateTerminated) -> String {
    let code = match terminated.signal {
        Some(signal) => format!("signal {signal}"),
        // A kubelet tells of signals as a shell does.
        None if (129..=192).contains(&terminated.exit_code) => {
            format!("exit code {} (signal {})", terminated.exit_code, terminated.exit_code - 128)
        }
        None => format!("exit code {}", terminated.exit_code),
    };
    match terminated.message.as_deref().map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{code}, {}", last_words(message)),
        None => format!("{code}."),
    }
}

/// The end of a long text, as the last lines of a log tell most.
fn last_words(text: &str) -> &str {
    const MOST: usize = 1024;
    let from = text.len().saturating_sub(MOST);
    let from = (from..text.len()).find(|index| text.is_char_boundary(*index)).unwrap_or(0);
    &text[from..]
}

/// Why a container has not started, when that is more than the usual wait.
fn hindered(container: &ContainerStatus) -> Option<Cause> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let (kind, told) = (waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default());
    if matches!(kind, "PodInitializing" | "ContainerCreating") {
        return None;
    }
    let reason = match kind {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => reason::IMAGE_PULL_BACK_OFF,
        _ => reason::POD_FAILED,
    };
    Some(Cause::new(reason, format!("Container `{}` waits: {kind} {told}", container.name).trim_end()))
}

/// Why a container beside the runner's will not come: it cannot be started, or has ended already.
#[must_use]
pub fn will_not_come(pod: &Pod, container: &str) -> Option<Cause> {
    let mut wanted = pod.spec.iter().flat_map(|spec| &spec.containers);
    if !wanted.any(|wanted| wanted.name == container) {
        return Some(Cause::new(reason::POD_FAILED, format!("The pod has no container `{container}`.")));
    }
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = containers.iter().find(|status| status.name == container)?;
    if let Some(terminated) = status.state.as_ref().and_then(|state| state.terminated.as_ref()) {
        let message = format!("Container `{container}` ended before its turn: {}", sentence(terminated));
        return Some(Cause::new(reason::POD_FAILED, message));
    }
    // The first failure to pull an image is followed by another attempt; after that the kubelet backs off.
    hindered(status).filter(|cause| !cause.message.contains(" waits: ErrImagePull"))
}

/// Why a pod was told to stop although nobody cancelled its run; `None` when nothing says that it has to go.
#[must_use]
pub fn told_to_stop(pod: &Pod) -> Option<(EndReason, String)> {
    let status = pod.status.clone().unwrap_or_default();
    if let Some(disruption) = disrupted(pod, &status) {
        return Some(disruption);
    }
    pod.metadata.deletion_timestamp.as_ref()?;
    let message = "The pod was deleted; terraform was stopped, and what it did is in the state.";
    Some((EndReason::PodDeleted, message.to_owned()))
}

/// What a pod that has not started waits for: an image, a volume, a node.
fn waits_for(status: &PodStatus) -> Option<Cause> {
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    if let Some(cause) = containers.into_iter().find_map(hindered) {
        return Some(cause);
    }
    let scheduled = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled");
    let unscheduled = scheduled.filter(|condition| condition.status == "False")?;
    let told = unscheduled.message.as_deref().unwrap_or("no node fits");
    Some(Cause::new(reason::UNSCHEDULABLE, format!("The pod waits for a node: {told}")))
}

#[cfg(test)]
mod tests;
