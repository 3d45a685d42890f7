//! [`Hook`]: a user's script between the steps of a run.

use k8s_openapi::api::core::v1::EnvVar;
use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, rules, step::StepName, variables::KeyRef};

/// A script that runs before or after `init`, `plan` or `apply`. The hooks of a step run in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(&["script", "configMap"], "set exactly one of script or configMap"))]
pub struct Hook {
    /// The name of the hook, unique in the list.
    #[schemars(length(max = 50))]
    #[x_kube(validation = rules::form(
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "write a name of lower-case letters, digits and -, as it may name a container",
    ))]
    pub name: String,
    /// When the hook runs.
    pub step: HookStep,
    /// A shell script, or a script with a `#!` line. It runs in the directory of the module with `KNOLL_RUN`,
    /// `KNOLL_WORKSPACE`, `KNOLL_NAMESPACE`, `KNOLL_OPERATION`, `KNOLL_STEP` and `KNOLL_HOOK` in its environment.
    /// Between `plan` and `apply`, `KNOLL_PLAN_JSON` is the path of the plan as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub script: Option<String>,
    /// A key of a ConfigMap that contains the script, instead of `script`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<KeyRef>,
    /// The image to run the script in. Defaults to the image of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// Environment variables, in addition to those of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub env: Vec<EnvVar>,
    /// The timeout of the hook. No limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What happens to the run if the hook fails.
    #[serde(default)]
    pub on_failure: HookFailure,
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(transform = crate::values::describe)]
pub enum HookStep {
    /// Before `init`.
    PreInit,
    /// After `init`.
    PostInit,
    /// Before `plan`.
    #[default]
    PrePlan,
    /// After `plan`.
    PostPlan,
    /// Before `apply`.
    PreApply,
    /// After `apply`.
    PostApply,
}

impl From<HookStep> for StepName {
    fn from(step: HookStep) -> Self {
        match step {
            HookStep::PreInit => Self::PreInit,
            HookStep::PostInit => Self::PostInit,
            HookStep::PrePlan => Self::PrePlan,
            HookStep::PostPlan => Self::PostPlan,
            HookStep::PreApply => Self::PreApply,
            HookStep::PostApply => Self::PostApply,
        }
    }
}

/// What happens to the run if a hook fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum HookFailure {
    /// The run fails.
    #[default]
    Fail,
    /// The run continues; the step's message mentions the failed hook.
    Continue,
}
