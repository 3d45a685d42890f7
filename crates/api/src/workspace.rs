//! [`Workspace`]: the state of one module, the queue of its runs and their settings.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    pod::PodSettings,
    policy::PolicySetting,
    rules,
    step::Timeouts,
    variables::{Variable, Variables},
};

/// The desired settings of a Workspace.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "knoll.dev",
    version = "v1alpha1",
    kind = "Workspace",
    namespaced,
    status = "WorkspaceStatus",
    derive = "PartialEq",
    shortname = "ws",
    category = "knoll",
    doc = "The state of one configuration, the queue of its runs, and their settings.",
    validation = crate::rules::name_fits_label(),
    validation = crate::rules::name_is_of_no_state(),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Active", type_ = "string", json_path = ".status.active"),
    printcolumn(name = "Serial", type_ = "integer", json_path = ".status.state.serial"),
    printcolumn(name = "Resources", type_ = "integer", json_path = ".status.state.resources"),
    printcolumn(name = "Tool", type_ = "string", json_path = ".spec.tool", priority = 1),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version", priority = 1),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.queue[0]", priority = 1),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSpec {
    /// The tool that runs the module.
    #[serde(default)]
    pub tool: Tool,
    /// The version of the tool, for example `1.11.4`. Defaults to the operator's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::form(
        "^[0-9]+[.][0-9]+[.][0-9]+(-[0-9A-Za-z.-]+)?$",
        "write a full version such as 1.11.4",
    ))]
    pub version: Option<String>,
    /// The image of the pods, instead of the one derived from `tool` and `version`. It must contain the tool and
    /// `/bin/sh`. The embedded cluster of `knoll up` uses the programs of the machine instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// Variables of every run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["key".into(), "category".into()]))]
    pub variables: Vec<Variable>,
    /// Where the state is stored.
    #[serde(default)]
    #[x_kube(validation = rules::immutable("state cannot be changed: the state would stay where it is; create another Workspace"))]
    pub state: StateKind,
    /// The value of `terraform.workspace` in the module, for managed state. Defaults to the name of the Workspace. Write
    /// `default` for a state that was made outside of terraform's named workspaces, if the module depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 90))]
    #[x_kube(validation = rules::form(
        "^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
        "write the name of a terraform workspace such as default or prod: letters, digits, _, . and -",
    ))]
    pub terraform_workspace: Option<String>,
    /// The number of state versions to keep.
    #[serde(default = "default_state_history")]
    #[schemars(range(min = 1, max = 1000))]
    pub state_history: u32,
    /// The number of finished Runs to keep, with their logs and plans: as many that may change the state, and as many that
    /// only plan. Finished reading commands are kept for an hour. A Run with `ttlAfterFinished` is kept for as long as that
    /// says.
    #[serde(default = "default_run_history")]
    #[schemars(range(min = 1, max = 1000))]
    pub run_history: u32,
    /// Commands and operations that need an Approval: terraform subcommands (`state rm`, `taint`, ...), `sh`, and `apply`,
    /// `destroy`, `refresh` or `plan`. While there is one, Runs may have no hooks but those of the Workspace's Stack, as a
    /// hook could run any command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = Rule::new(format!("self.all(command, command.matches('{}'))", rules::COMMAND_PATTERN))
        .message("write terraform subcommands such as state rm, or sh, without arguments"))]
    pub privileged_commands: Vec<String>,
    /// Settings of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodSettings>,
    /// Timeouts of the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// What happens to the state when the Workspace is deleted.
    #[serde(default)]
    pub deletion_policy: WorkspaceDeletionPolicy,
}

impl WorkspaceSpec {
    /// The name of the terraform workspace that the managed state of the Workspace `name` belongs to.
    #[must_use]
    pub fn terraform_workspace(&self, name: &str) -> String {
        self.terraform_workspace.clone().unwrap_or_else(|| name.to_owned())
    }
}

impl Default for WorkspaceSpec {
    fn default() -> Self {
        Self {
            tool: Tool::default(),
            version: None,
            image: None,
            variables: Vec::new(),
            state: StateKind::default(),
            terraform_workspace: None,
            state_history: default_state_history(),
            run_history: default_run_history(),
            privileged_commands: Vec::new(),
            pod: None,
            timeouts: None,
            deletion_policy: WorkspaceDeletionPolicy::default(),
        }
    }
}

fn default_state_history() -> u32 {
    10
}

fn default_run_history() -> u32 {
    20
}

/// The tool that runs a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = crate::values::describe)]
pub enum Tool {
    /// Terraform.
    #[default]
    Terraform,
    /// OpenTofu.
    Tofu,
}

impl Tool {
    /// The name of the executable.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::Tofu => "tofu",
        }
    }
}

/// Where the state is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = crate::values::describe)]
pub enum StateKind {
    /// In Secrets of the namespace, managed by Knoll.
    #[default]
    Managed,
    /// In the backend that the module declares.
    External,
}

/// What happens to the state when the Workspace is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum WorkspaceDeletionPolicy {
    /// The Secrets of the state are kept.
    #[default]
    Orphan,
    /// The Secrets of the state are deleted.
    Delete,
}

/// The observed state of a Workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// The phase of the Workspace.
    #[serde(default)]
    pub phase: WorkspacePhase,
    /// `Ready`, `Reconciling`, `Stalled`, `BackedUp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The Run that holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<String>,
    /// When that Run got the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_since: Option<MicroTime>,
    /// The user who asked for that Run. Unset if that user is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_requested_by: Option<String>,
    /// The waiting Runs, next first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<String>,
    /// A summary of the current state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateSummary>,
    /// The outputs of the state, without sensitive ones.
    #[serde(default, skip_serializing_if = "Variables::is_empty")]
    #[schemars(schema_with = "crate::variables::any_values")]
    pub outputs: Variables,
    /// The demands that hold for the Workspace's runs, and the objects that they come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub policy: Vec<PolicySetting>,
    /// The settings that the Workspace's runs have, and where each comes from. Values of variables are not shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub settings: Vec<PolicySetting>,
    /// The digest of the bundle that was last applied. A Run without a source uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// The copies of the state outside of the cluster; absent if the operator makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupStatus>,
}

/// The copies of a state outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// The serial number of the newest version that is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// `sha256:` and the hash of the bytes of the newest version that is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The time at which that version was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_at: Option<MicroTime>,
    /// The number of versions that are not copied yet, one a Run.
    #[serde(default)]
    pub behind: u32,
    /// The time at which the first of them was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<MicroTime>,
}

/// The phase of a Workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum WorkspacePhase {
    /// Not yet reconciled. Next: `Idle` or `Active`.
    #[default]
    Pending,
    /// No run holds the lock. Next: `Active`.
    Idle,
    /// A run holds the lock. Next: `Idle`.
    Active,
    /// The Workspace is being deleted, and waits for its runs to end.
    Deleting,
}

/// A summary of a state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateSummary {
    /// Terraform's serial number of the state.
    pub serial: u64,
    /// Terraform's lineage of the state.
    pub lineage: String,
    /// The number of resource instances.
    #[serde(default)]
    pub resources: u32,
    /// `sha256:` and the hash of the state's bytes.
    pub digest: String,
    /// The time at which the state was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<MicroTime>,
    /// The Run that wrote the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}
