//! `spec.limits` of a Policy: how much runs may take.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, run::Operation, size::Size, step::Timeouts};

/// How much runs may take. Of all Policies that match, the smallest limit counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitRules {
    /// How many Runs may have a pod at the same time. A Run that has to wait says so, and a namespace with many waiting
    /// Runs delays the first of another one by at most one Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<RunLimits>,
    /// The longest timeouts that Runs may have; Runs and Workspaces without a timeout, or with a longer one, have these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// How long finished Runs are kept, with their logs and plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionLimits>,
    /// The largest content that Runs may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<SizeLimits>,
    /// Which of the Runs of a namespace that wait for a slot go first. The first rule that fits a Run counts, and of several
    /// Policies the lowest priority. Turns between namespaces do not depend on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub priorities: Vec<PriorityRule>,
}

/// The largest content that Runs may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SizeLimits {
    /// The state. A state that has grown beyond it is stored all the same, so that nothing is lost; the next apply or refresh
    /// is refused before it plans. Destroys and commands make it smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Size>,
    /// A plan that is stored, because it is reviewed or judged. The Run fails before it is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Size>,
    /// The log. What comes after that is not stored; the Run goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Size>,
    /// The packed files of the module. The Run fails before it starts terraform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Size>,
}

/// The priority of some Runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PriorityRule {
    /// The priority: a Run with a higher one goes before those with a lower one. Runs without a rule have 0.
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// The operations that the rule is for; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub operations: Vec<Operation>,
}

/// How many Runs may have a pod at the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunLimits {
    /// The number in each namespace, of the Runs that the Policy holds for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub namespace: Option<u32>,
    /// The number in the cluster, of the Runs that the Policy holds for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100000))]
    pub cluster: Option<u32>,
}

/// How long finished Runs are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionLimits {
    /// The greatest `runHistory` of a Workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub runs: Option<u32>,
    /// How long finished reading commands are kept. Defaults to 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Duration>,
}
