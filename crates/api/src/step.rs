//! The steps of a run: their names, how long each may take and how often it is tried.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// A step of a run, in the order in which steps run. A step that was not asked for is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepName {
    /// The module's files, the state and the variables are put in place.
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
    /// A person decides on the plan.
    Review,
    /// Hooks before `apply`.
    PreApply,
    /// `terraform apply` of the plan.
    Apply,
    /// Hooks after `apply`.
    PostApply,
    /// The command of a Run with `operation: command`.
    Command,
    /// The outputs are read from the state.
    Outputs,
}

impl StepName {
    /// Every step, in order.
    pub const ALL: [Self; 13] = [
        Self::Setup,
        Self::PreInit,
        Self::Init,
        Self::PostInit,
        Self::PrePlan,
        Self::Plan,
        Self::PostPlan,
        Self::Review,
        Self::PreApply,
        Self::Apply,
        Self::PostApply,
        Self::Command,
        Self::Outputs,
    ];

    /// The name as it is written.
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

/// How far a step is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepState {
    /// It has started. Next: any of the others.
    #[default]
    Running,
    /// It waits for a person (`review`). Next: `Succeeded`, or `Cancelled`.
    Waiting,
    /// It is done.
    Succeeded,
    /// It was tried as often as it may be, and failed.
    Failed,
    /// There was nothing to do.
    Skipped,
    /// It was stopped before its end.
    Cancelled,
}

impl StepState {
    /// Whether the step has come to its end.
    #[must_use]
    pub fn is_finished(self) -> bool {
        !matches!(self, Self::Running | Self::Waiting)
    }
}

/// What one step did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Which step.
    pub name: StepName,
    /// How far it is.
    pub state: StepState,
    /// How often it was started.
    #[serde(default)]
    pub attempts: u32,
    /// When the first attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When the last attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
    /// The exit code of the last attempt's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it failed, or why it did nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// Where in the run's log its output begins, in bytes.
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

/// How long each part of a run may take. What a Run does not set, its Workspace decides; what neither
/// sets has no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// In the queue, before the run is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Duration>,
    /// From the pod's creation until its runner reports, before the run fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Duration>,
    /// In `review`, before the plan is discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Duration>,
    /// The step `setup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Duration>,
    /// The step `init`, each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Duration>,
    /// The step `plan`, each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Duration>,
    /// The step `apply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<Duration>,
    /// The command of a Run with `operation: command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Duration>,
}

impl Timeouts {
    /// These, with what they leave open taken from `other`.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        let Self { queue, pending, review, setup, init, plan, apply, command } = self;
        Self {
            queue: queue.or_else(|| other.queue.clone()),
            pending: pending.or_else(|| other.pending.clone()),
            review: review.or_else(|| other.review.clone()),
            setup: setup.or_else(|| other.setup.clone()),
            init: init.or_else(|| other.init.clone()),
            plan: plan.or_else(|| other.plan.clone()),
            apply: apply.or_else(|| other.apply.clone()),
            command: command.or_else(|| other.command.clone()),
        }
    }

    /// The limit of a step that runs in a pod.
    #[must_use]
    pub fn of_step(&self, step: StepName) -> Option<&Duration> {
        match step {
            StepName::Setup => self.setup.as_ref(),
            StepName::Init => self.init.as_ref(),
            StepName::Plan => self.plan.as_ref(),
            StepName::Apply => self.apply.as_ref(),
            StepName::Command => self.command.as_ref(),
            StepName::PreInit
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

/// How often a step is tried before the run fails. `apply` is never tried twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Attempts at `setup`; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub setup: Option<u32>,
    /// Attempts at `init`; 3 when absent, as its network may fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub init: Option<u32>,
    /// Attempts at `plan`; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub plan: Option<u32>,
    /// The wait before the second attempt, doubled for each further one; 2s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Duration>,
}

impl Retry {
    /// The wait before the second attempt when [`Retry::backoff`] is absent.
    pub const DEFAULT_BACKOFF: std::time::Duration = std::time::Duration::from_secs(2);

    /// How often a step may be tried.
    #[must_use]
    pub fn attempts(&self, step: StepName) -> u32 {
        match step {
            StepName::Setup => self.setup.unwrap_or(3),
            StepName::Init => self.init.unwrap_or(3),
            StepName::Plan => self.plan.unwrap_or(1),
            _ => 1,
        }
    }

    /// The wait before the second attempt.
    #[must_use]
    pub fn backoff(&self) -> std::time::Duration {
        self.backoff.as_ref().map_or(Self::DEFAULT_BACKOFF, Duration::get)
    }
}
