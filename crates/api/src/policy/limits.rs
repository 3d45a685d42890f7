//! `spec.limits` of a Policy: how much runs may take.

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, step::Timeouts};

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
