//! The steps of a run: their names, timeouts and retries.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// A step of a run, in execution order. Only requested steps are present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(transform = crate::values::describe)]
pub enum StepName {
    /// Prepares the module's files, the state and the variables.
    Setup,
    /// Hooks before `init`.
    PreInit,
    /// `terraform init`.
    Init,
    /// Hooks after `init`.
    PostInit,
    /// Hooks before `plan`.
    PrePlan,
    /// `terraform plan`.
    Plan,
    /// Hooks after `plan`.
    PostPlan,
    /// Describes the stored plan in a pod of its own, for the rules of Policies with `plan.isolated`.
    Judge,
    /// Waits for an Approval of the plan.
    Review,
    /// Hooks before `apply`.
    PreApply,
    /// `terraform apply` of the plan.
    Apply,
    /// Hooks after `apply`.
    PostApply,
    /// The command of a Run with `operation: command`.
    Command,
    /// Reads the outputs from the state.
    Outputs,
}

impl StepName {
    /// All steps, in order.
    pub const ALL: [Self; 14] = [
        Self::Setup,
        Self::PreInit,
        Self::Init,
        Self::PostInit,
        Self::PrePlan,
        Self::Plan,
        Self::PostPlan,
        Self::Judge,
        Self::Review,
        Self::PreApply,
        Self::Apply,
        Self::PostApply,
        Self::Command,
        Self::Outputs,
    ];

    /// The serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::PreInit => "pre-init",
            Self::Init => "init",
            Self::PostInit => "post-init",
            Self::PrePlan => "pre-plan",
            Self::Plan => "plan",
            Self::PostPlan => "post-plan",
            Self::Judge => "judge",
            Self::Review => "review",
            Self::PreApply => "pre-apply",
            Self::Apply => "apply",
            Self::PostApply => "post-apply",
            Self::Command => "command",
            Self::Outputs => "outputs",
        }
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The state of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum StepState {
    /// Running. Next: any other state.
    #[default]
    Running,
    /// Waiting for an Approval (`review`) or for its pod (`judge`). Next: `Running`, `Succeeded` or `Cancelled`.
    Waiting,
    /// Succeeded.
    Succeeded,
    /// Failed after the last attempt.
    Failed,
    /// There was nothing to do.
    Skipped,
    /// Stopped before its end.
    Cancelled,
}

impl StepState {
    /// Whether the step has ended.
    #[must_use]
    pub fn is_finished(self) -> bool {
        !matches!(self, Self::Running | Self::Waiting)
    }
}

/// The status of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// The name of the step.
    pub name: StepName,
    /// The state of the step.
    pub state: StepState,
    /// The number of attempts.
    #[serde(default)]
    pub attempts: u32,
    /// The time at which the first attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// The time at which the last attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
    /// The exit code of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why the step failed or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// The offset of its output in the run's log, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_offset: Option<u64>,
}

impl StepStatus {
    /// A step that has just started.
    #[must_use]
    pub fn started(name: StepName, at: MicroTime, log_offset: u64) -> Self {
        Self {
            name,
            state: StepState::Running,
            attempts: 1,
            started_at: Some(at),
            finished_at: None,
            exit_code: None,
            message: None,
            log_offset: Some(log_offset),
        }
    }
}

/// Timeouts of a run. A Run's timeouts override those of its Workspace. A timeout that neither sets is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Time in the queue, after which the run is cancelled. No limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Duration>,
    /// Time from the creation of the pod until its runner reports, after which the run fails. Defaults to 15m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Duration>,
    /// Time in `review`, after which the plan is discarded. No limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Duration>,
    /// Time that terraform waits for an answer in a terminal, after which it is stopped. Defaults to 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Duration>,
    /// Timeout of each attempt of `init`. No limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Duration>,
    /// Timeout of each attempt of `plan`, and of `judge`. No limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Duration>,
    /// Timeout of the step `apply`. No limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<Duration>,
    /// Timeout of the command of a Run with `operation: command`. No limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Duration>,
}

impl Timeouts {
    /// The limit of `pending` if it is unset: a cluster has added a node and pulled an image within it, and a Run that
    /// never starts does not hold its Workspace forever.
    pub const DEFAULT_PENDING: std::time::Duration = std::time::Duration::from_secs(15 * 60);

    /// Long enough to read a plan and to ask a colleague; the others wait for the lock meanwhile.
    pub const DEFAULT_ANSWER: std::time::Duration = std::time::Duration::from_secs(30 * 60);

    /// Returns these timeouts, with those of `other` as defaults.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        let Self { queue, pending, review, answer, init, plan, apply, command } = self;
        Self {
            queue: queue.or_else(|| other.queue.clone()),
            pending: pending.or_else(|| other.pending.clone()),
            review: review.or_else(|| other.review.clone()),
            answer: answer.or_else(|| other.answer.clone()),
            init: init.or_else(|| other.init.clone()),
            plan: plan.or_else(|| other.plan.clone()),
            apply: apply.or_else(|| other.apply.clone()),
            command: command.or_else(|| other.command.clone()),
        }
    }

    /// Returns these timeouts, each at most as long as that of `limit`.
    #[must_use]
    pub fn at_most(self, limit: &Self) -> Self {
        let shorter = |own: Option<Duration>, limit: &Option<Duration>| match (own, limit) {
            (Some(own), Some(limit)) if own.get() > limit.get() => Some(limit.clone()),
            (own, limit) => own.or_else(|| limit.clone()),
        };
        let Self { queue, pending, review, answer, init, plan, apply, command } = self;
        Self {
            queue: shorter(queue, &limit.queue),
            pending: shorter(pending, &limit.pending),
            review: shorter(review, &limit.review),
            answer: shorter(answer, &limit.answer),
            init: shorter(init, &limit.init),
            plan: shorter(plan, &limit.plan),
            apply: shorter(apply, &limit.apply),
            command: shorter(command, &limit.command),
        }
    }

    /// The timeout of a step that runs in a pod.
    #[must_use]
    pub fn of_step(&self, step: StepName) -> Option<&Duration> {
        match step {
            StepName::Init => self.init.as_ref(),
            StepName::Plan | StepName::Judge => self.plan.as_ref(),
            StepName::Apply => self.apply.as_ref(),
            StepName::Command => self.command.as_ref(),
            StepName::Setup
            | StepName::PreInit
            | StepName::PostInit
            | StepName::PrePlan
            | StepName::PostPlan
            | StepName::Review
            | StepName::PreApply
            | StepName::PostApply
            | StepName::Outputs => None,
        }
    }
}

/// How often a step is tried before the run fails. `apply` is never retried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Attempts of `init`, which depends on the network. Defaults to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub init: Option<u32>,
    /// Attempts of `plan`. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub plan: Option<u32>,
    /// The backoff before the second attempt, doubled for each further one. Defaults to 2s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Duration>,
}

impl Retry {
    /// The default of [`Retry::backoff`].
    pub const DEFAULT_BACKOFF: std::time::Duration = std::time::Duration::from_secs(2);

    /// The maximum number of attempts of a step.
    #[must_use]
    pub fn attempts(&self, step: StepName) -> u32 {
        match step {
            StepName::Init => self.init.unwrap_or(3),
            StepName::Plan => self.plan.unwrap_or(1),
            _ => 1,
        }
    }

    /// The backoff before the second attempt.
    #[must_use]
    pub fn backoff(&self) -> std::time::Duration {
        self.backoff.as_ref().map_or(Self::DEFAULT_BACKOFF, Duration::get)
    }
}
