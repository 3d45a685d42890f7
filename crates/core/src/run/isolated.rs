//! The pod that describes the stored plan of a Run for the rules of Policies (`plan.isolated`).
//!
//! *Guarantees.* The pod that plans is fenced off before this one exists: from the write that hands the plan over, the Run
//! names no pod until the operator has created this one. It is made of the frozen job's scheduling and limits, of the
//! Policy's image and of the proxy of Policies; nothing that a user wrote runs in it or is mounted there.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{EnvVar, Pod},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use knoll_api::{
    names::{self, reason},
    pod::PodSettings,
    run::{PlanSummary, Run, RunPhase, RunStatus, StepName, StepState, StepStatus},
    verdict::IsolatedPlan,
    workspace::WorkspaceSpec,
};

use super::{
    RunDecision, RunFacts, after, create_pod, ended,
    frozen::{FrozenJob, PodTemplate},
    is_cancelled, is_past, is_superseded, not_in_time,
    pod::{self, Platform},
    start_problem,
    status::{self, Cause},
    steps::Stage,
    stopped,
};

/// Hands the stored plan over: the pod that planned has said its last word.
pub(super) fn hand_over(next: &mut RunStatus, run: &Run, now: Timestamp) {
    (next.pod_uid, next.reported_at) = (None, None);
    // What that pod says of the plan counts no more, but its digest.
    next.plan = next.plan.as_ref().map(|plan| PlanSummary {
        digest: plan.digest.clone(),
        changes: true,
        ..PlanSummary::default()
    });
    let step = StepStatus { state: StepState::Waiting, ..StepStatus::started(StepName::Judge, MicroTime(now), 0) };
    status::set_step(next, StepStatus { log_offset: None, ..step });
    let message = "The plan is stored. A pod of its own describes it for the rules of Policies (spec.plan.isolated).";
    status::enter(next, run, RunPhase::Running, &Cause::new(reason::PROGRESSING, message), now);
}

/// A Run whose plan is handed over, and that has no pod. It holds its Workspace's lock, so it does not wait for ever.
pub(super) fn before_judge(seen: &RunFacts<'_>, status: RunStatus, now: Timestamp) -> RunDecision {
    if is_cancelled(seen.run) {
        let cause = stopped(seen.run, " before its plan was judged.");
        return ended(seen, status, RunPhase::Cancelled, &cause, now);
    }
    if is_superseded(seen.run) {
        let cause = super::superseded("before its plan was judged");
        return ended(seen, status, RunPhase::Discarded, &cause, now);
    }
    let limit = seen.timeouts().pending;
    let since = status::step(&status, StepName::Judge).and_then(|step| step.started_at.as_ref()).map(|time| time.0);
    let deadline = after(since, limit.as_ref().map(knoll_api::Duration::get));
    if is_past(deadline, now) {
        let obstacle = start_problem(seen.run);
        let cause = not_in_time(limit, obstacle.as_ref(), image(&status, None).as_deref());
        return ended(seen, status, RunPhase::Failed, &cause, now);
    }
    create_pod(seen, status, Stage::Judge, now).at_the_latest(deadline)
}

/// The image of the pod that describes the plan, in a sentence; `None` for a Run whose pod has other work. An
/// administrator chooses it, and nothing in the Workspace says where it comes from.
pub(super) fn image(status: &RunStatus, pod: Option<&Pod>) -> Option<String> {
    let isolated = status.plan_verdict.as_ref()?.isolated.as_ref()?;
    status::step(status, StepName::Judge).filter(|_| status.decision.is_none())?;
    let containers = pod.and_then(|pod| pod.spec.as_ref()).into_iter().flat_map(|spec| &spec.containers);
    let of_pod = containers.into_iter().find(|container| container.name == names::pod::CONTAINER);
    let image = of_pod.and_then(|container| container.image.as_deref()).or(isolated.image.as_deref());
    Some(match (image, &isolated.image) {
        (Some(image), Some(_)) => {
            format!("It describes the plan in the image `{image}` of the Policy that demands it (spec.plan.image).")
        }
        (Some(image), None) => {
            format!(
                "It describes the plan in the image `{image}` of this installation; a Policy names another one in spec.plan.image."
            )
        }
        (None, _) => {
            "It describes the plan in an image of this installation; a Policy names another one in spec.plan.image."
                .to_owned()
        }
    })
}

/// What the pod is built from. Where and within which limits it runs is the user's choice, and what runs in it is not: its
/// environment is the `proxy` of Policies, which it may need to reach the providers.
#[must_use]
pub fn template(job: &FrozenJob, isolated: &IsolatedPlan, proxy: Vec<EnvVar>, platform: &Platform) -> PodTemplate {
    let PodSettings {
        resources,
        node_selector,
        tolerations,
        affinity,
        image_pull_secrets,
        priority_class_name,
        security_context,
        container_security_context,
        service_account_name: _,
        plan: _,
        apply: _,
        env: _,
        env_from: _,
        volumes: _,
        volume_mounts: _,
        // Both can make a webhook put containers into the pod.
        labels: _,
        annotations: _,
    } = job.pods.settings.clone();
    let settings = PodSettings {
        resources,
        node_selector,
        tolerations,
        affinity,
        image_pull_secrets,
        priority_class_name,
        security_context,
        container_security_context,
        env: proxy,
        ..PodSettings::default()
    };
    let of_installation = WorkspaceSpec {
        tool: job.inputs.tool,
        version: job.inputs.version.clone(),
        image: isolated.image.as_deref().filter(|image| is_tagged(image)).map(str::to_owned),
        ..WorkspaceSpec::default()
    };
    let image = pod::image(&of_installation, platform);
    let image = match (&isolated.image, image.rsplit_once(':')) {
        (Some(repository), Some((_, version))) if !is_tagged(repository) => format!("{repository}:{version}"),
        _ => image,
    };
    PodTemplate { image, image_is_named: false, settings, ..PodTemplate::default() }
}

/// Whether an image has a tag or a digest. The port of a registry is none.
fn is_tagged(image: &str) -> bool {
    image.contains('@') || image.rsplit('/').next().is_some_and(|last| last.contains(':'))
}
