//! [`Stack`]: infrastructure that should exist.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Purpose,
    duration::Duration,
    hooks::Hook,
    rules,
    run::RunPhase,
    source::{LocalRef, Source},
    step::Retry,
    variables::{Variables, VariablesFrom},
    workspace::WorkspaceSpec,
};

/// The desired infrastructure.
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
    validation = crate::rules::name_is_of_no_state(),
    validation = Rule::new("!has(self.spec.dependsOn) || self.spec.dependsOn.all(other, other.name != self.metadata.name)")
        .message("spec.dependsOn: a Stack cannot depend on itself; name other Stacks"),
    validation = Rule::new("!has(self.spec.variablesFrom) || self.spec.variablesFrom.all(from, !has(from.stackRef) || from.stackRef.name != self.metadata.name)")
        .message("spec.variablesFrom: a Stack cannot use its own outputs; name another Stack"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
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
    /// Checks for changes made outside of Knoll. None if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftSpec>,
    /// What happens when a run fails.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// How often a failed revision is tried again with `onFailure: Retry`. Defaults to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub retry_limit: Option<u32>,
    /// The wait before the next run after a failure, doubled for each further one up to 10m. Defaults to 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::at_least("1s"))]
    pub retry_backoff: Option<Duration>,
    /// How often a failed step is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Scripts between the steps of its runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub hooks: Vec<Hook>,
    /// Where the outputs are written. Only to the status if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<OutputsSpec>,
    /// What happens to the infrastructure when the Stack is deleted.
    #[serde(default)]
    pub deletion_policy: StackDeletionPolicy,
    /// Starts no runs while true.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// An Atom in the same namespace that this Stack is rolled back with: when an update of the Atom fails that used a new
    /// revision of the Stack, the previous revision is applied again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::object_name())]
    pub rollback_with: Option<String>,
}

impl StackSpec {
    /// How often a failed revision is tried again when [`StackSpec::retry_limit`] is unset.
    pub const DEFAULT_RETRY_LIMIT: u32 = 5;
    /// The first wait when [`StackSpec::retry_backoff`] is unset.
    pub const DEFAULT_RETRY_BACKOFF: std::time::Duration = std::time::Duration::from_secs(10);
}

/// When a person decides on a Stack's plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum StackApproval {
    /// Never: plans are applied at once.
    #[default]
    Auto,
    /// Always, unless the plan changes nothing.
    Manual,
    /// When the plan destroys or replaces anything.
    ManualOnDestroy,
}

/// Checks for changes made outside of Knoll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftSpec {
    /// The time between two checks.
    #[x_kube(validation = rules::at_least("10s"))]
    pub interval: Duration,
    /// What happens when there is drift.
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
    /// difference if unset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    pub attributes: Vec<String>,
}

/// What happens when there is drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum DriftAction {
    /// Only the condition `Drifted` is set.
    #[default]
    Report,
    /// A Run is started that waits for an Approval.
    Plan,
    /// A Run is started that corrects the drift, approved as `approval` says.
    Apply,
}

/// What happens when a run fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum OnFailure {
    /// Nothing is done until the Stack changes.
    #[default]
    Hold,
    /// The run is started again, with growing waits in between.
    Retry,
    /// The last revision that was applied successfully is applied again.
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
    /// Only these outputs. All of them if unset.
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
#[schemars(transform = crate::values::describe)]
pub enum StackDeletionPolicy {
    /// It is destroyed first.
    #[default]
    Destroy,
    /// It stays, and so does its state.
    Orphan,
}

/// The observed state of a Stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StackStatus {
    /// The phase of the Stack.
    #[serde(default)]
    pub phase: StackPhase,
    /// `Ready`, `Reconciling`, `Stalled`, `Drifted`, and `Fetched` for a source outside of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The applied revision: a digest of the source and the variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The revision that is to be applied, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_revision: Option<String>,
    /// The newest revision, and who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<RevisionRequest>,
    /// The digest of the applied bundle, which is kept so that a destroy always works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// The Secret with the applied variables, which is kept for the same reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<String>,
    /// The snapshot that was applied before, while `rollbackWith` names an Atom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Snapshot>,
    /// The snapshot that a run began to apply and did not finish: parts of it may exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted: Option<Snapshot>,
    /// The last failure, on which `onFailure` decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureStatus>,
    /// The commit, or the digest of the archive, that the newest revision came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_revision: Option<String>,
    /// The last fetched files, for a source outside of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Fetched>,
    /// The newest Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<String>,
    /// The purpose of the newest Run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_purpose: Option<Purpose>,
    /// The Run that is about to be created. It is written before the Run, so that an interrupted operator finds the Run
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launching: Option<LaunchIntent>,
    /// The Runs that the Stack has started and still keeps, the newest last. No other Run counts, whatever its labels say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started_runs: Vec<StartedRun>,
    /// The number of Runs that the Stack has started.
    #[serde(default)]
    pub runs: u32,
    /// The number of Runs whose end is accounted for in this status.
    #[serde(default)]
    pub settled: u32,
    /// When the applied revision was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<MicroTime>,
    /// The outputs, without the sensitive ones.
    #[serde(default, skip_serializing_if = "Variables::is_empty")]
    #[schemars(schema_with = "crate::variables::any_values")]
    pub outputs: Variables,
    /// The digest of the state and the settings that the outputs were last read with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs_digest: Option<String>,
    /// The digest of the state that the Stack knows: as one of its Runs wrote it, or as a drift check compared it. A state
    /// that another Run has written since sets `Drifted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_state: Option<String>,
    /// The result of the last drift check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftStatus>,
}

impl StackStatus {
    /// The applied snapshot.
    #[must_use]
    pub fn applied(&self) -> Option<Snapshot> {
        Some(Snapshot {
            revision: self.revision.clone()?,
            bundle: self.bundle.clone()?,
            variables: self.variables.clone()?,
        })
    }

    /// Sets the fields of the applied snapshot.
    pub fn set_applied(&mut self, snapshot: Option<Snapshot>) {
        (self.revision, self.bundle, self.variables) = match snapshot {
            Some(Snapshot { revision, bundle, variables }) => (Some(revision), Some(bundle), Some(variables)),
            None => (None, None, None),
        };
    }
}

/// A revision, and who asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionRequest {
    /// The generation of the spec with which the revision was first seen.
    pub generation: i64,
    /// The revision.
    pub revision: String,
    /// The user whose change of the spec made the revision. Absent when nobody knows: something that the spec refers to
    /// has changed, or several users have changed the Stack since it was last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A Run that a Stack has started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartedRun {
    /// The name of the Run.
    pub name: String,
    /// The UID of the Run.
    pub uid: String,
    /// The number of the Run among those of the Stack.
    pub number: u32,
    /// The purpose of the Run.
    pub purpose: Purpose,
    /// The files and the variables that the newest Run uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
}

/// A Run that a Stack is about to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchIntent {
    /// The name of the Run.
    pub name: String,
    /// The number of the Run among those of the Stack.
    pub number: u32,
    /// The purpose of the Run.
    pub purpose: Purpose,
    /// The digest of the Run's content and of a nonce that nobody knows before the Run exists.
    pub commitment: String,
}

/// Files that were fetched from outside of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fetched {
    /// The digest of the source in the spec.
    pub source: String,
    /// The commit, or the digest of the archive.
    pub revision: String,
    /// The digest of the bundle with the files.
    pub bundle: String,
}

/// The files and the variables of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The revision.
    #[schemars(length(min = 1, max = 64))]
    pub revision: String,
    /// The digest of the bundle with its files.
    #[schemars(length(min = 1, max = 128))]
    pub bundle: String,
    /// The Secret with its variables.
    #[schemars(length(min = 1, max = 253))]
    pub variables: String,
}

/// A revision that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureStatus {
    /// The revision that the Run applied or destroyed.
    pub revision: String,
    /// The purpose of the Run.
    #[serde(default)]
    pub purpose: Purpose,
    /// The Run that failed.
    pub run: String,
    /// The reason, one word.
    pub reason: String,
    /// The reason in a sentence.
    #[schemars(length(max = 4096))]
    pub message: String,
    /// The phase in which the Run ended.
    #[serde(default)]
    pub phase: RunPhase,
    /// The Atom whose update failed with this revision, if that is the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atom: Option<String>,
    /// The value of the annotation `knoll.dev/reconcile` when a destroy failed. Another value starts another attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The rollback after this failure failed too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback_failed: bool,
    /// The number of runs that failed in a row.
    #[serde(default)]
    pub count: u32,
    /// When the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<MicroTime>,
}

/// The phase of a Stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum StackPhase {
    /// The operator has not seen the Stack yet. Next: any other.
    #[default]
    Pending,
    /// The Stack waits for a dependency or for its source, or the pod of its run cannot start. Next: `Running`, or
    /// `Ready` when nothing has changed.
    Waiting,
    /// A run is under way. Next: `Review`, `Ready`, `Held`, `Retrying`, `Rollback`, `Reverted` or `Failure`.
    Running,
    /// A plan waits for an Approval. Next: `Running`, or `Held` when it is discarded.
    Review,
    /// The revision is applied. Next: `Running`, when there is a newer one.
    Ready,
    /// The last run failed or its plan was discarded. Next: `Running`, when the Stack changes.
    Held,
    /// The last run failed and is repeated after a wait. Next: `Running`.
    Retrying,
    /// The newest revision failed, and the last one that was applied is being applied again. Next: `Reverted` or `Failure`.
    Rollback,
    /// The newest revision failed, and was rolled back to the last one that was applied. Next: `Running`, when the Stack changes.
    Reverted,
    /// The newest revision failed, and so did its rollback. Next: `Running`, when the Stack changes.
    Failure,
    /// The infrastructure is being destroyed. Next: `Review` or `Held`, or the Stack is deleted.
    Destroying,
    /// `suspend` is true. Next: any other, when it is false.
    Suspended,
}

impl StackPhase {
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

/// The result of the last drift check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftStatus {
    /// When drift was first seen. Unset if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// When the last check ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<MicroTime>,
    /// Resources that are missing.
    #[serde(default)]
    pub add: u32,
    /// Resources that differ.
    #[serde(default)]
    pub change: u32,
    /// Resources that should not exist.
    #[serde(default)]
    pub destroy: u32,
    /// The Run of the last check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The Run that was started to correct it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected_by: Option<String>,
}
