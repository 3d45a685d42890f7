//! [`Atom`]: a set of Kubernetes objects that is updated as one transaction.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::Duration, rules, variables::KeyRef};

/// The desired state of an Atom.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "knoll.dev",
    version = "v1alpha1",
    kind = "Atom",
    namespaced,
    status = "AtomStatus",
    derive = "PartialEq",
    category = "knoll",
    doc = "A set of Kubernetes objects that is updated as one transaction, and rolled back when it does not come up.",
    validation = crate::rules::name_fits_label(),
    validation = Rule::new("!has(self.spec.dependsOn) || self.spec.dependsOn.all(other, other.kind != 'Atom' || other.name != self.metadata.name)")
        .message("spec.dependsOn: an Atom cannot depend on itself; name other Atoms or Stacks"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Current", type_ = "string", json_path = ".status.currentVersion"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", priority = 1),
    printcolumn(name = "Last-Good", type_ = "string", json_path = ".status.lastGoodVersion", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AtomSpec {
    /// The name of the AtomVersion that should run, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub version: String,
    /// How long an update may take until every object is ready.
    #[serde(default = "default_deadline")]
    #[x_kube(validation = rules::at_least("1s"))]
    pub deadline: Duration,
    /// How long a rollback may take.
    #[serde(default = "default_deadline")]
    #[x_kube(validation = rules::at_least("1s"))]
    pub rollback_deadline: Duration,
    /// How many older AtomVersions that carry this Atom's label are kept.
    #[serde(default = "default_history_limit")]
    #[schemars(range(min = 0, max = 1000))]
    pub history_limit: u32,
    /// Objects in the same namespace that must be Ready first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub depends_on: Vec<AtomDependency>,
    /// Values that the template can use as `${input.NAME}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub inputs: Vec<AtomInput>,
    /// Cancels the update to one version, and rolls it back. It has no effect on other versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<AtomCancel>,
    /// Takes over fields that other field managers own. Without it, such a field is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The service account in the same namespace that the Atom acts as: it reads the inputs, and reads and writes the
    /// objects. Without it, that is the account that `spec.defaults.atom` of a Policy names, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::account_name())]
    pub service_account_name: Option<String>,
}

impl Default for AtomSpec {
    fn default() -> Self {
        Self {
            version: String::new(),
            deadline: default_deadline(),
            rollback_deadline: default_deadline(),
            history_limit: default_history_limit(),
            depends_on: Vec::new(),
            inputs: Vec::new(),
            cancel: None,
            force: false,
            service_account_name: None,
        }
    }
}

fn default_deadline() -> Duration {
    Duration::from_secs(300)
}

fn default_history_limit() -> u32 {
    10
}

/// The update that is cancelled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomCancel {
    /// The version whose update is cancelled. No update to it starts as long as this field names it.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub version: String,
    /// Ends the rollback of that update as well. The phase is then `Failure`, and objects stay as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback: bool,
}

/// An object that must be Ready before an Atom is updated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomDependency {
    /// Its kind.
    #[serde(default)]
    pub kind: DependencyKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
}

/// The kind of a dependency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum DependencyKind {
    /// Another Atom.
    #[default]
    Atom,
    /// A Stack.
    Stack,
}

/// A value that the template may use: exactly one of the fields beside `name` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::exactly_one(
    &["value", "stackRef", "secretKeyRef", "configMapKeyRef"],
    "set exactly one of value, stackRef, secretKeyRef or configMapKeyRef",
))]
pub struct AtomInput {
    /// The name that the template uses.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::form(
        "^[A-Za-z_][A-Za-z0-9_]*$",
        "write a name of letters, digits and _, with no digit first",
    ))]
    pub name: String,
    /// The value itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub value: Option<String>,
    /// An output of a Stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_ref: Option<StackOutputRef>,
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// The type that the value is converted to. Without it, the output of a Stack keeps its type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<InputType>,
}

/// The type of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum InputType {
    /// The text as it is.
    String,
    /// The text as a number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// Any JSON value, such as a list or an object.
    Json,
}

/// One output of a Stack in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StackOutputRef {
    /// The name of the Stack.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub name: String,
    /// The name of its output.
    #[schemars(length(min = 1, max = 253))]
    pub output: String,
}

/// The observed state of an Atom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomStatus {
    /// The phase of the current update.
    #[serde(default)]
    pub phase: AtomPhase,
    /// `Ready`, `Reconciling`, `Stalled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The version whose objects exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// The last healthy version: the last one that reached `Running`. A rollback restores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_version: Option<String>,
    /// The version of the update that is under way, or that was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,
    /// When the current update or rollback started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// The progress of the current update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<AtomJournal>,
    /// The objects of the Atom.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<AtomObject>,
    /// The number of updates that were started.
    #[serde(default)]
    pub attempts: u32,
    /// The revision that was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<AtomRevision>,
    /// The last revision that reached `Running`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<AtomRevision>,
    /// Why the update that was tried last did not reach `Running`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<AtomFailure>,
}

/// A revision of an Atom: the content that its objects are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomRevision {
    /// The digest of the version and of its template.
    pub template: String,
    /// The digest of the inputs.
    pub inputs: String,
    /// The revisions of the Stacks that the Atom depends on, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stacks: BTreeMap<String, String>,
}

/// Why an update did not reach `Running`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomFailure {
    /// The phase in which the update ended: `Cancelled`, `Deadline` or `Error`.
    pub phase: AtomPhase,
    /// Why the update was cancelled. Set in the phase `Cancelled` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Cancellation>,
    /// Whether a user ended the rollback of the update.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback_cancelled: bool,
    /// The reason, as one word.
    pub reason: String,
    /// The reason, as a sentence.
    #[schemars(length(max = 8192))]
    pub message: String,
}

/// Why an update was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum Cancellation {
    /// `spec.cancel` names the version.
    Requested,
    /// A newer version, or newer inputs, replace it.
    Superseded,
}

/// The phase of an Atom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum AtomPhase {
    /// An update is due. Next: `Updating`; `Rollback` when an earlier update is unfinished and is cancelled or times out.
    #[default]
    Pending,
    /// The update is under way. Next: `Running`, `Cancelled`, `Deadline` or `Error`.
    Updating,
    /// The version runs and is ready. Next: `Pending`, for a new version.
    Running,
    /// The update was cancelled. Next: `Rollback`, or `Pending` for a new version.
    Cancelled,
    /// The update was not ready in time. Next: `Rollback`.
    Deadline,
    /// The update was refused, or an object failed for good. Next: `Rollback`.
    Error,
    /// The last healthy version is being restored. Next: `Reverted` or `Failure`.
    Rollback,
    /// The last healthy version runs again. Next: `Pending`, for a new version.
    Reverted,
    /// The rollback did not succeed in time, or was cancelled. Next: `Pending`, for a new version.
    Failure,
}

impl AtomPhase {
    /// Whether nothing happens until the spec or an input changes.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        matches!(self, Self::Running | Self::Reverted | Self::Failure)
    }

    /// The phase as the API writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Updating => "Updating",
            Self::Running => "Running",
            Self::Cancelled => "Cancelled",
            Self::Deadline => "Deadline",
            Self::Error => "Error",
            Self::Rollback => "Rollback",
            Self::Reverted => "Reverted",
            Self::Failure => "Failure",
        }
    }
}

/// The progress of an update. A stage is recorded before its first write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomJournal {
    /// The Secret with the objects as the version has them, and as they were before the update.
    pub secret_name: String,
    /// The stage that is under way.
    pub stage: JournalStage,
}

/// A stage of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum JournalStage {
    /// An earlier update is unfinished, and its journal is kept for the next one. Next: `Apply`.
    #[default]
    Kept,
    /// The objects are being written. Next: `Wait`.
    Apply,
    /// The objects have to become ready. Next: `Prune`.
    Wait,
    /// Objects that the version does not have any more are deleted. Next: `Done`.
    Prune,
    /// The update is being rolled back. Next: `Done`.
    Restore,
    /// Only the journal is left to be deleted.
    Done,
}

/// The key of an object in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectKey {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace. Unset for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(to, "{namespace}/")?;
        }
        to.write_str(&self.name)
    }
}

/// An object of an Atom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtomObject {
    /// The key of the object.
    #[serde(flatten)]
    pub object: ObjectKey,
    /// Its UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether it is ready.
    #[serde(default)]
    pub ready: bool,
    /// Why it is not ready, or not restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
