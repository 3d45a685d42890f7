//! [`Stack`]: infrastructure that should exist.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    duration::Duration,
    hooks::Hook,
    rules,
    run::RunPhase,
    source::{LocalRef, Source},
    step::Retry,
    variables::{Variables, VariablesFrom},
    workspace::WorkspaceSpec,
};

/// What a Stack is told.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "knoll.dev",
    version = "v1alpha1",
    kind = "Stack",
    namespaced,
    status = "StackStatus",
    derive = "PartialEq",
    shortname = "stk",
    category = "knoll",
    doc = "Infrastructure that should exist: a module, its variables, and what to do when they change, drift or fail.",
    validation = crate::rules::name_fits_label(),
    validation = Rule::new("!has(self.spec.dependsOn) || self.spec.dependsOn.all(other, other.name != self.metadata.name)")
        .message("spec.dependsOn: a Stack cannot depend on itself; name other Stacks"),
    validation = Rule::new("!has(self.spec.variablesFrom) || self.spec.variablesFrom.all(from, !has(from.stackRef) || from.stackRef.name != self.metadata.name)")
        .message("spec.variablesFrom: a Stack cannot use its own outputs; name another Stack"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.revision"),
    printcolumn(name = "Drifted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Drifted\")].status"),
    printcolumn(name = "Last-Run", type_ = "string", json_path = ".status.lastRun"),
    printcolumn(name = "Pending", type_ = "string", json_path = ".status.pendingRevision", priority = 1),
    printcolumn(name = "Source", type_ = "string", json_path = ".status.sourceRevision", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct StackSpec {
    /// The module's files.
    pub source: Source,
    /// Values of the module's variables, each any JSON value.
    #[serde(default, skip_serializing_if = "Variables::is_empty")]
    #[schemars(schema_with = "crate::variables::any_values")]
    pub variables: Variables,
    /// Where further values come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub variables_from: Vec<VariablesFrom>,
    /// The settings of the Workspace that the Stack owns.
    #[serde(default)]
    pub workspace: WorkspaceSpec,
    /// When a person decides on a plan.
    #[serde(default)]
    pub approval: StackApproval,
    /// Stacks in the same namespace that must be Ready first; they are destroyed after this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub depends_on: Vec<LocalRef>,
    /// The watch for changes made outside of Knoll; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftSpec>,
    /// What follows a run that failed.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// How often a failed revision is tried again with `onFailure: Retry`; 5 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub retry_limit: Option<u32>,
    /// The wait before a failed run is followed by another, doubled for each further one up to 10m; 10s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::at_least("1s"))]
    pub retry_backoff: Option<Duration>,
    /// How often a step is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Scripts between the steps of its runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub hooks: Vec<Hook>,
    /// Where the outputs are written; nowhere but the status when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<OutputsSpec>,
    /// What happens to the infrastructure when the Stack is deleted.
    #[serde(default)]
    pub deletion_policy: StackDeletionPolicy,
    /// Starts no runs while true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// The Atom in the same namespace that this Stack goes back with: when an update of it that used a new revision of
    /// the Stack fails, the revision before is applied again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::object_name())]
    pub rollback_with: Option<String>,
}

impl StackSpec {
    /// How often a failed revision is tried again when [`StackSpec::retry_limit`] is absent.
    pub const DEFAULT_RETRY_LIMIT: u32 = 5;
    /// The first wait when [`StackSpec::retry_backoff`] is absent.
    pub const DEFAULT_RETRY_BACKOFF: std::time::Duration = std::time::Duration::from_secs(10);
}

/// When a person decides on a Stack's plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StackApproval {
    /// Never: plans are applied at once.
    #[default]
    Auto,
    /// Always.
    Manual,
    /// When the plan destroys or replaces anything.
    ManualOnDestroy,
}

/// The watch for changes made outside of Knoll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftSpec {
    /// How often to look.
    #[x_kube(validation = rules::at_least("10s"))]
    pub interval: Duration,
    /// What a difference leads to.
    #[serde(default)]
    pub action: DriftAction,
    /// Differences that do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub ignore: Vec<DriftIgnore>,
}

/// Differences that do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftIgnore {
    /// The address of resources; `*` stands for any characters.
    #[schemars(length(min = 1, max = 1024))]
    pub address: String,
    /// Only those of these attributes, for resources that differ in no others; `*` stands for any characters. Every
    /// difference when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub attributes: Vec<String>,
}

/// What a difference leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftAction {
    /// The condition `Drifted`, and nothing else.
    #[default]
    Report,
    /// A Run that waits for an Approval.
    Plan,
    /// A Run that puts things right, approved as `approval` says.
    Apply,
}

/// What follows a run that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// Nothing, until the Stack changes.
    #[default]
    Hold,
    /// Another run, with growing waits between.
    Retry,
    /// The last good revision is applied again.
    Rollback,
}

/// Where the outputs of a Stack are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputsSpec {
    /// The Secret that gets them, sensitive ones too; each output is a key.
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::object_name())]
    #[x_kube(validation = Rule::new("!self.startsWith('knoll-')")
        .message("write another name: Secrets whose names begin with knoll- are Knoll's own"))]
    pub secret_name: String,
    /// Only these outputs; every one when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub include: Vec<String>,
    /// Not these outputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub exclude: Vec<String>,
}

/// What happens to the infrastructure when the Stack is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StackDeletionPolicy {
    /// It is destroyed first.
    #[default]
    Destroy,
    /// It stays, and so does its state.
    Orphan,
}

/// What became of a Stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StackStatus {
    /// How far it is.
    #[serde(default)]
    pub phase: StackPhase,
    /// `Ready`, `Reconciling`, `Stalled`, `Drifted`, and `Fetched` for a source outside of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The digest of the source and the variables that are applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The digest of those that are to be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_revision: Option<String>,
    /// The digest of the bundle that is applied; it is kept so that a destroy always works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// The Secret with the variables that are applied; it is kept for the same reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<String>,
    /// What was applied before it; kept for as long as the Stack may have to go back with an Atom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Snapshot>,
    /// What a run began to apply and did not finish: parts of it may exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted: Option<Snapshot>,
    /// The failure that `onFailure` decides on; absent when the newest revision has not failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureStatus>,
    /// The commit, or the digest of the archive, that the newest revision came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_revision: Option<String>,
    /// What was last fetched, for a source outside of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Fetched>,
    /// The newest Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<String>,
    /// How many Runs the Stack has started.
    #[serde(default)]
    pub runs: u32,
    /// The end of how many of them is accounted for in this status.
    #[serde(default)]
    pub settled: u32,
    /// When the applied revision was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<MicroTime>,
    /// The outputs, without the sensitive ones.
    #[serde(default, skip_serializing_if = "Variables::is_empty")]
    #[schemars(schema_with = "crate::variables::any_values")]
    pub outputs: Variables,
    /// What the Secret of the outputs was last written from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_digest: Option<String>,
    /// What the last look for drift found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftStatus>,
}

/// What was fetched from outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fetched {
    /// The digest of the source as it is written.
    pub source: String,
    /// The commit, or the digest of the archive.
    pub revision: String,
    /// The digest of the bundle that was made of it.
    pub bundle: String,
}

/// The files and the variables of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The revision.
    pub revision: String,
    /// The digest of its bundle.
    pub bundle: String,
    /// The Secret with its variables.
    pub variables: String,
}

/// A revision that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureStatus {
    /// The revision.
    pub revision: String,
    /// The Run that failed.
    pub run: String,
    /// One word on why.
    pub reason: String,
    /// A sentence on why.
    #[schemars(length(max = 4096))]
    pub message: String,
    /// How the Run ended.
    #[serde(default)]
    pub phase: RunPhase,
    /// How many runs of it failed in a row.
    #[serde(default)]
    pub count: u32,
    /// When the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<MicroTime>,
}

/// How far a Stack is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum StackPhase {
    /// Not yet looked at. Next: any other.
    #[default]
    Pending,
    /// Waits for a dependency or for a source. Next: `Running`.
    Waiting,
    /// A run is under way. Next: `Review`, `Ready` or `Failed`.
    Running,
    /// A plan waits for an Approval. Next: `Running`, or `Held` when it is discarded.
    Review,
    /// The revision is applied. Next: `Running`, when there is a newer one.
    Ready,
    /// The last run failed or its plan was discarded, and nothing follows until the Stack changes.
    Held,
    /// The last run failed. Next: `Running`, after a wait.
    Retrying,
    /// The newest revision failed and the last good one is being applied again. Next: `Reverted` or `Failure`.
    Rollback,
    /// The last good revision is applied instead of the newest. Next: `Running`, when the Stack changes.
    Reverted,
    /// The last good revision could not be applied again either. Next: `Running`, when the Stack changes.
    Failure,
    /// The infrastructure is being destroyed.
    Destroying,
    /// `suspend` is true.
    Suspended,
}

impl StackPhase {
    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Waiting => "Waiting",
            Self::Running => "Running",
            Self::Review => "Review",
            Self::Ready => "Ready",
            Self::Held => "Held",
            Self::Retrying => "Retrying",
            Self::Rollback => "Rollback",
            Self::Reverted => "Reverted",
            Self::Failure => "Failure",
            Self::Destroying => "Destroying",
            Self::Suspended => "Suspended",
        }
    }
}

/// What the last look for drift found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftStatus {
    /// When a difference was first seen; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// When Knoll last looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<MicroTime>,
    /// Resources that are missing.
    #[serde(default)]
    pub add: u32,
    /// Resources that differ.
    #[serde(default)]
    pub change: u32,
    /// Resources that are too many.
    #[serde(default)]
    pub destroy: u32,
    /// The Run that looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The Run that was started to put it right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected_by: Option<String>,
}
