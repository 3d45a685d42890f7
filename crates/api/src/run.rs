//! [`Run`]: one execution of terraform in a Workspace.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::{CustomResource, KubeSchema, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::step::{Retry, StepName, StepState, StepStatus, Timeouts};
use crate::{
    approval::Decision,
    duration::Duration,
    hooks::Hook,
    rules,
    source::Source,
    variables::{Variables, VariablesFrom},
};

/// What a Run is told; it never changes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "knoll.dev",
    version = "v1alpha1",
    kind = "Run",
    namespaced,
    status = "RunStatus",
    derive = "PartialEq",
    shortname = "kr",
    category = "knoll",
    doc = "One execution of terraform in a Workspace, step by step.",
    selectable = ".spec.workspace",
    validation = crate::rules::name_fits_label(),
    printcolumn(name = "Workspace", type_ = "string", json_path = ".spec.workspace"),
    printcolumn(name = "Operation", type_ = "string", json_path = ".spec.operation"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Add", type_ = "integer", json_path = ".status.plan.add"),
    printcolumn(name = "Change", type_ = "integer", json_path = ".status.plan.change"),
    printcolumn(name = "Destroy", type_ = "integer", json_path = ".status.plan.destroy"),
    printcolumn(name = "Exit", type_ = "integer", json_path = ".status.exitCode"),
    printcolumn(name = "Queue", type_ = "integer", json_path = ".status.position", priority = 1),
    printcolumn(name = "Pod", type_ = "string", json_path = ".status.podName", priority = 1),
    printcolumn(name = "Digest", type_ = "string", json_path = ".status.reviewDigest", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::immutable("a Run never changes: create another one, and cancel this one if it must not go on"))]
#[x_kube(validation = Rule::new("self.operation != 'command' || has(self.command)")
    .message("operation: command needs command, a terraform subcommand such as state list, or sh"))]
#[x_kube(validation = Rule::new("self.operation == 'command' || !has(self.command)")
    .message("command is for operation: command only; write that, or leave it out"))]
#[x_kube(validation = Rule::new("self.operation != 'command' || (!has(self.targets) && !has(self.replace))")
    .message("targets and replace are not for operation: command; put what the command needs into args"))]
#[x_kube(validation = Rule::new("self.operation in ['plan', 'apply', 'command'] || !has(self.replace)")
    .message("replace is for operation: plan or apply only; leave it out"))]
#[x_kube(validation = Rule::new("self.approval != 'Prompt' || (has(self.attach) && self.attach)")
    .message("approval: Prompt needs attach: true, so that there is somebody to ask"))]
#[x_kube(validation = Rule::new("self.approval != 'Prompt' || !has(self.hooks) || !self.hooks.exists(hook, hook.step in ['pre-plan', 'post-plan', 'pre-apply'])")
    .message("with approval: Prompt terraform plans and applies in one step, so hooks between the two never run; use Auto or Manual"))]
#[x_kube(validation = Rule::new("!has(self.attachTimeout) || (has(self.attach) && self.attach)")
    .message("attachTimeout needs attach: true"))]
pub struct RunSpec {
    /// The Workspace it runs in, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub workspace: String,
    /// What it does.
    pub operation: Operation,
    /// The command of `operation: command`: a terraform subcommand (`state mv`, `output`, ...), or `sh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::form(
        rules::COMMAND_PATTERN,
        "write a terraform subcommand such as state mv, or sh; what follows it belongs in args",
    ))]
    #[x_kube(validation = Rule::new("!(self in ['apply', 'destroy', 'refresh'])")
        .message("write operation: apply, destroy or refresh instead, so that there is a plan to look at"))]
    pub command: Option<String>,
    /// The arguments of `command`; for another operation, flags of terraform's command of that name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 32768)))]
    pub args: Vec<String>,
    /// The module's files; the bundle that the Workspace last applied when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Values of the module's variables, each any JSON value.
    #[serde(default, skip_serializing_if = "Variables::is_empty")]
    #[schemars(schema_with = "crate::variables::any_values")]
    pub variables: Variables,
    /// Where further values come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub variables_from: Vec<VariablesFrom>,
    /// Only these resource addresses and what they depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 1024)))]
    #[x_kube(validation = rules::not_empty("name at least one resource address, or leave targets out for all of them"))]
    #[x_kube(validation = addresses())]
    pub targets: Vec<String>,
    /// Resource addresses to destroy and create again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 1024)))]
    #[x_kube(validation = rules::not_empty("name at least one resource address, or leave replace out"))]
    #[x_kube(validation = addresses())]
    pub replace: Vec<String>,
    /// Whether a person decides on the plan.
    #[serde(default)]
    pub approval: RunApproval,
    /// Scripts between the steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub hooks: Vec<Hook>,
    /// How often a step is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long each part may take; they win over the Workspace's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// Waits for a client to attach before the first output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attach: bool,
    /// How long it waits for that client; 1m when absent. Then it goes on without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_timeout: Option<Duration>,
    /// How long it is kept after its end; for ever when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<Duration>,
}

impl RunSpec {
    /// How long a run waits for its client when [`RunSpec::attach_timeout`] is absent.
    pub const DEFAULT_ATTACH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
}

fn addresses() -> Rule {
    Rule::new("self.all(address, address.matches('^[A-Za-z_][^ ]*[.][A-Za-z_]'))")
        .message("write resource addresses such as aws_instance.web or module.net")
}

/// What a Run does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Plans, and changes nothing.
    #[default]
    Plan,
    /// Plans, and applies the plan.
    Apply,
    /// Plans the destruction of everything, and applies that plan.
    Destroy,
    /// Takes what really exists into the state.
    Refresh,
    /// Runs one command.
    Command,
}

impl Operation {
    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Destroy => "destroy",
            Self::Refresh => "refresh",
            Self::Command => "command",
        }
    }
}

/// Whether a person decides on a Run's plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunApproval {
    /// The plan is applied at once.
    #[default]
    Auto,
    /// The plan waits for an Approval.
    Manual,
    /// The plan waits for an Approval when it destroys or replaces anything.
    ManualOnDestroy,
    /// Terraform asks the client that is attached.
    Prompt,
}

/// What became of a Run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// How far it is.
    #[serde(default)]
    pub phase: RunPhase,
    /// `Queued`, `Active`, `Attached`, `Planned`, `Approved`, `Exited`, and those of kstatus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What each step did, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub steps: Vec<StepStatus>,
    /// What the plan would do, or did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// The digest that an Approval has to name, while the run waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review_digest: Option<String>,
    /// The decision that ended the review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ReviewDecision>,
    /// The exit code of terraform, or of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The pod that runs it, or ran it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The UID of that pod; the hub listens to no other.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Its place in the queue, 1 for the next one to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// The digest of the bundle it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// When its first pod was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
}

/// How far a Run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RunPhase {
    /// Not yet looked at. Next: `Queued`, or `Starting` when it needs no lock.
    #[default]
    Pending,
    /// Waiting in the Workspace's queue. Next: `Starting`, when it reaches the front.
    Queued,
    /// Its pod is on the way. Next: `Running`, when the runner reports.
    Starting,
    /// Its steps run. Next: `Review`, or an end.
    Running,
    /// Its plan waits for an Approval. Next: `Running`, or `Discarded`.
    Review,
    /// It did what it was told. An end.
    Succeeded,
    /// It did not. An end.
    Failed,
    /// It was stopped. An end.
    Cancelled,
    /// Its plan was not applied: a person, a newer revision or a timeout decided so. An end.
    Discarded,
}

impl RunPhase {
    /// Whether nothing follows.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Discarded)
    }

    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Queued => "Queued",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Review => "Review",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
            Self::Discarded => "Discarded",
        }
    }
}

/// What a plan would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// `sha256:` and the hash of the plan's bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Resources to create.
    #[serde(default)]
    pub add: u32,
    /// Resources to change in place.
    #[serde(default)]
    pub change: u32,
    /// Resources to destroy.
    #[serde(default)]
    pub destroy: u32,
    /// Whether applying it would change anything: resources, or only outputs.
    #[serde(default)]
    pub changes: bool,
    /// The resources it would change, at most [`PlanSummary::MAX_RESOURCES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub resources: Vec<ResourceChange>,
    /// How many more there are than `resources` holds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

impl PlanSummary {
    /// How many resources a summary names.
    pub const MAX_RESOURCES: usize = 100;
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What a plan would do to one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceChange {
    /// The address of the resource.
    pub address: String,
    /// What would be done.
    pub action: ChangeAction,
    /// The attributes that would change, for a resource that is there: names, never values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub attributes: Vec<String>,
}

impl ResourceChange {
    /// How many attributes are named.
    pub const MAX_ATTRIBUTES: usize = 16;
}

/// What a plan would do to a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChangeAction {
    /// Create it.
    #[default]
    Create,
    /// Change it in place.
    Update,
    /// Destroy it.
    Delete,
    /// Destroy it and create it again, in either order.
    Replace,
    /// Read it (a data source).
    Read,
    /// Take an existing one into the state.
    Import,
    /// Know it under another address.
    Move,
    /// Let go of it without destroying it.
    Forget,
}

/// The decision that ended a review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewDecision {
    /// The name of the Approval.
    pub approval: String,
    /// What it decided.
    pub decision: Decision,
    /// Who decided.
    pub by: String,
}
