//! [`Run`]: one execution of terraform in a Workspace.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube_core::Rule;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::step::{Retry, StepName, StepState, StepStatus, Timeouts};
use crate::{
    approval::Decision,
    duration::Duration,
    hooks::Hook,
    rules,
    size::Size,
    source::Source,
    stack::Snapshot,
    variables::{Variables, VariablesFrom},
    verdict::PlanVerdict,
    workspace::Tool,
};

/// The desired execution. Immutable.
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
    doc = "One execution of Terraform or OpenTofu in a Workspace.",
    selectable = ".spec.workspace",
    validation = crate::rules::name_fits_label(),
    printcolumn(name = "Workspace", type_ = "string", json_path = ".spec.workspace"),
    printcolumn(name = "Operation", type_ = "string", json_path = ".spec.operation"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Add", type_ = "integer", json_path = ".status.plan.add"),
    printcolumn(name = "Change", type_ = "integer", json_path = ".status.plan.change"),
    printcolumn(name = "Destroy", type_ = "integer", json_path = ".status.plan.destroy"),
    printcolumn(name = "Exit", type_ = "integer", json_path = ".status.exitCode"),
    printcolumn(name = "Requested by", type_ = "string", json_path = ".spec.requestedBy", priority = 1),
    printcolumn(name = "Decided by", type_ = "string", json_path = ".status.decision.by", priority = 1),
    printcolumn(name = "Queue", type_ = "integer", json_path = ".status.position", priority = 1),
    printcolumn(name = "Pod", type_ = "string", json_path = ".status.podName", priority = 1),
    printcolumn(name = "Digest", type_ = "string", json_path = ".status.reviewDigest", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::immutable("a Run never changes: create another one, and cancel this one if it must not continue"))]
#[x_kube(validation = Rule::new("self.operation != 'command' || has(self.command)")
    .message("operation: command needs command, a terraform subcommand such as state list, or sh"))]
#[x_kube(validation = Rule::new("self.operation == 'command' || !has(self.command)")
    .message("command is for operation: command only; write that, or leave it out"))]
#[x_kube(validation = Rule::new("self.operation != 'command' || (!has(self.targets) && !has(self.replace))")
    .message("targets and replace are not for operation: command; put what the command needs into args"))]
#[x_kube(validation = Rule::new("self.operation in ['plan', 'apply', 'command'] || !has(self.replace)")
    .message("replace is for operation: plan or apply only; leave it out"))]
#[x_kube(validation = Rule::new("self.approval != 'Prompt' || (has(self.attach) && self.attach) || has(self.input)")
    .message("approval: Prompt needs attach: true, or input with the answer, so that somebody can answer"))]
#[x_kube(validation = Rule::new("self.approval != 'Prompt' || !has(self.hooks) || !self.hooks.exists(hook, hook.step in ['pre-plan', 'post-plan', 'pre-apply'])")
    .message("with approval: Prompt terraform plans and applies in one step, so hooks between the two never run; use Auto or Manual"))]
#[x_kube(validation = Rule::new("!has(self.snapshot) || (!has(self.source) && !has(self.variablesFrom))")
    .message("snapshot has files and variables of its own; leave source and variablesFrom out"))]
#[x_kube(validation = Rule::new("!has(self.attachTimeout) || (has(self.attach) && self.attach)")
    .message("attachTimeout needs attach: true"))]
#[x_kube(validation = Rule::new("!(self.operation in ['destroy', 'refresh']) || !has(self.args) || !self.args.exists(arg, arg.startsWith('-destroy=') || arg.startsWith('--destroy=') || arg.startsWith('-refresh-only=') || arg.startsWith('--refresh-only='))")
    .message("leave -destroy=... and -refresh-only=... out of args: operation: destroy and refresh are what they are called; write operation: apply for another plan"))]
#[x_kube(validation = Rule::new("!has(self.startNow) || has(self.requestedBy)")
    .message("startNow needs requestedBy, so that the record says who did not wait"))]
pub struct RunSpec {
    /// The name of the Workspace, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub workspace: String,
    /// The operation to execute.
    pub operation: Operation,
    /// The command of `operation: command`: a terraform subcommand (`state mv`, `output`, ...) or `sh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::form(
        rules::COMMAND_PATTERN,
        "write a terraform subcommand such as state mv, or sh; what follows it belongs in args",
    ))]
    #[x_kube(validation = Rule::new("!self.matches('^(apply|destroy|refresh)( |$)')")
        .message("write operation: apply, destroy or refresh instead, so that there is a plan to review"))]
    pub command: Option<String>,
    /// Arguments of `command`, or terraform flags for any other operation. Everybody who may read Runs reads them. With
    /// `input`, the values of `-var` and `-backend-config` are `...` here, and the Secret has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 32768)))]
    pub args: Vec<String>,
    /// Values that the client sent in a Secret of the Run, instead of in `args` and `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputRef>,
    /// The source of the module. If unset, the bundle that the Workspace last applied is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The revision of a Stack that the Run is for, with its files and its variables. Stacks set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Snapshot>,
    /// Values of the module's input variables, as any JSON value.
    #[serde(default, skip_serializing_if = "Variables::is_empty")]
    #[schemars(schema_with = "crate::variables::any_values")]
    pub variables: Variables,
    /// Further sources of variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub variables_from: Vec<VariablesFrom>,
    /// Limits the operation to these resource addresses and their dependencies (`-target`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 1024)))]
    #[x_kube(validation = rules::not_empty("name at least one resource address, or leave targets out for all of them"))]
    #[x_kube(validation = addresses())]
    pub targets: Vec<String>,
    /// Resource addresses to replace (`-replace`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 1024)))]
    #[x_kube(validation = rules::not_empty("name at least one resource address, or leave replace out"))]
    #[x_kube(validation = addresses())]
    pub replace: Vec<String>,
    /// Whether the plan needs an approval.
    #[serde(default)]
    pub approval: RunApproval,
    /// Whether an `apply`, `destroy` or `refresh` that was not started by the Stack of the Workspace may change the Stack's
    /// infrastructure. Without it, such a Run fails. The reviews of the Stack and of Policies hold all the same, and a
    /// Policy can forbid it (`allow.stackOverride: false`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub override_stack: bool,
    /// Whether the run starts without the dependency lock file that earlier runs have stored. `init` then selects the
    /// providers anew, and stores the lock file of its selection. A lock file in the module is used all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_lock_file: bool,
    /// Scripts that run between the steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub hooks: Vec<Hook>,
    /// How often a step is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Timeouts of the run. They override those of the Workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// Whether the run waits for a client to attach before it prints anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attach: bool,
    /// How long the run waits for a client. Defaults to 1m. After that it continues without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attach_timeout: Option<Duration>,
    /// How long the Run is kept after it has finished. If unset, its Workspace decides (`runHistory`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<Duration>,
    /// Starts the Run outside of the windows of Policies (`windows`), where they let its user. It needs `requestedBy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_now: Option<StartNow>,
    /// The user who asked for the run. It must be the user who creates the object; the operator copies it from a Stack
    /// to its Runs. If unset, that user is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::not_empty("write the name of the user that creates the Run, as kubectl auth whoami prints it, or leave requestedBy out"))]
    pub requested_by: Option<String>,
}

impl RunSpec {
    /// The default of [`RunSpec::attach_timeout`].
    pub const DEFAULT_ATTACH_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

    /// Whether the Run has files of its own. One without uses the bundle that its Workspace last applied.
    #[must_use]
    pub fn has_module(&self) -> bool {
        self.snapshot.is_some() || self.source.is_some()
    }

    /// The digest of the bundle with the module's files, if the spec names one.
    #[must_use]
    pub fn bundle(&self) -> Option<&str> {
        let of_snapshot = self.snapshot.as_ref().map(|snapshot| snapshot.bundle.as_str());
        of_snapshot.or_else(|| self.source.as_ref()?.bundle.as_ref().map(|bundle| bundle.digest.as_str()))
    }

    /// The source of the module's files: the bundle of the snapshot, or [`RunSpec::source`].
    #[must_use]
    pub fn module(&self) -> Option<Cow<'_, Source>> {
        match &self.snapshot {
            Some(snapshot) => Some(Cow::Owned(Source::bundle(&snapshot.bundle))),
            None => self.source.as_ref().map(Cow::Borrowed),
        }
    }
}

/// Why a Run does not wait for a window, for the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartNow {
    /// The reason, for people.
    #[schemars(length(min = 1, max = 1024))]
    pub because: String,
    /// The groups of the user, of which a Policy has to name one in `windows.overrideGroups`.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub groups: Vec<String>,
}

/// The input of a Run: the values of `-var` and `-backend-config`, variable files and piped standard input. The Secret
/// `knoll-input-NAME` of the Run has the content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputRef {
    /// The digest of the content: `sha256:` and 64 hex digits. The content has a random part, so nobody can find out by
    /// the digest whether a guess of a value is right.
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::digest())]
    pub digest: String,
}

fn addresses() -> Rule {
    Rule::new("self.all(address, address.matches('^[A-Za-z_][^ ]*[.][A-Za-z_]'))")
        .message("write resource addresses such as aws_instance.web or module.net")
}

/// The operation of a Run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = crate::values::describe)]
pub enum Operation {
    /// Plans without changing anything.
    #[default]
    Plan,
    /// Plans, and applies the plan.
    Apply,
    /// Plans the destruction of all resources, and applies that plan.
    Destroy,
    /// Updates the state to match real resources.
    Refresh,
    /// Runs one command.
    Command,
}

impl Operation {
    /// The serialized name.
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

/// Whether the plan of a Run needs an approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum RunApproval {
    /// The plan is applied without approval.
    #[default]
    Auto,
    /// The plan waits for an Approval, unless it changes nothing.
    Manual,
    /// The plan waits for an Approval if it destroys or replaces a resource.
    ManualOnDestroy,
    /// Terraform asks the attached client.
    Prompt,
}

/// The observed state of a Run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// The phase of the Run.
    #[serde(default)]
    pub phase: RunPhase,
    /// `Queued`, `Active`, `Attached`, `Planned`, `Approved`, `Exited`, and the kstatus conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The `resourceVersion` with which the Run was created. It orders the Runs that were created in the same second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_version: Option<String>,
    /// The steps of the run, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub steps: Vec<StepStatus>,
    /// The approval that holds for the run: the strictest of its own, of its Stack and of the Policies when its first pod
    /// was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<RunApproval>,
    /// The timeouts that hold, if a Policy limits or supplies timeouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// The largest content that the run may have, if a Policy limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<SizesInForce>,
    /// The summary of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// What the rules of the Policies say of the plan. Present for a run that they judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_verdict: Option<PlanVerdict>,
    /// The tool of a run without a frozen job, as it was when the pod was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<RunTool>,
    /// The frozen job: what the pods of the run are made of. Present for a run that is reviewed, or that plans and applies
    /// with different service accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<FrozenJobSummary>,
    /// The digest that an Approval has to name, while the run waits for one. It covers the digests of the plan and of its
    /// text, or the command's words, and the bundle, and all of `job`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review_digest: Option<String>,
    /// The decision that ended the review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<ReviewDecision>,
    /// The exit code of terraform or of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The current or the last pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The UID of that pod. The hub accepts requests of this pod only.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// When the runner of that pod first reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<MicroTime>,
    /// When the runner of that pod was first asked to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_requested_at: Option<MicroTime>,
    /// Why the operator deleted that pod, if it did so because the pod did not start in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_failure: Option<String>,
    /// The position in the queue; 1 is the next to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// The digest of the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// The variables with a value that the module does not declare, at most 32. Their values have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub undeclared_variables: Vec<String>,
    /// The time at which the first pod was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// The time at which the run finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
}

/// The tool that a pod was made for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunTool {
    /// `terraform` or `tofu`.
    pub name: Tool,
    /// The version that the Workspace asked for. If unset, it is that of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The phase of a Run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum RunPhase {
    /// Not yet reconciled. Next: `Queued`, or `Starting` if it needs no lock.
    #[default]
    Pending,
    /// Waiting in the Workspace's queue. Next: `Starting`, when it reaches the front.
    Queued,
    /// Its pod is starting. Next: `Running`, when the runner reports.
    Starting,
    /// Its steps are running. Next: `Review`, or a final phase.
    Running,
    /// Its plan is waiting for an Approval. Next: `Running` or `Discarded`.
    Review,
    /// The operation succeeded. Final.
    Succeeded,
    /// The operation failed. Final.
    Failed,
    /// The run was cancelled. Final.
    Cancelled,
    /// Its plan was not applied, because of a decision, a newer revision or a timeout. Final.
    Discarded,
}

impl RunPhase {
    /// Whether the phase is final.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Discarded)
    }

    /// The serialized name.
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

/// What the pods of a run are made of, as it was frozen before the first of them was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrozenJobSummary {
    /// `sha256:` and the hash of the frozen job. It names the Secret that holds it.
    pub digest: String,
    /// The image of the tool.
    pub image: String,
    /// The digests of the images that the plan ran in, by container, as far as the node reported them. The pods that
    /// apply run in the same ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub image_digests: BTreeMap<String, String>,
    /// The service account of the pod that plans. If unset, it is `default`, without a token in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_service_account: Option<String>,
    /// The service account of the pod that applies, or of a command that may change the state. If unset, it is
    /// `default`, without a token in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_service_account: Option<String>,
    /// The hooks, as `STEP/NAME`, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// The Secrets and ConfigMaps that the pods refer to by name, as `KIND/NAME` or `KIND/NAME/KEY`. Nothing is applied
    /// after one of them has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// The UIDs of the Secrets with the copies of `references`, by their number. A copy that was deleted and made again is not
    /// used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
}

/// The summary of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// `sha256:` and the hash of the plan's bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// `sha256:` and the hash of the plan's text as terraform renders it for people. A plan that is reviewed has one, and
    /// the decision covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_digest: Option<String>,
    /// The number of resources to create.
    #[serde(default)]
    pub add: u32,
    /// The number of resources to update in place.
    #[serde(default)]
    pub change: u32,
    /// The number of resources to destroy. A change that this version of Knoll does not know counts as one.
    #[serde(default)]
    pub destroy: u32,
    /// The number of existing resources to import into the state.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub import: u32,
    /// The number of resources to move to another address.
    #[serde(default, rename = "move", skip_serializing_if = "is_zero")]
    pub moved: u32,
    /// The number of resources to remove from the state without destroying them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forget: u32,
    /// The number of actions that the plan invokes (`action_invocations`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub invoke: u32,
    /// Whether applying the plan changes anything: resources, or only outputs.
    #[serde(default)]
    pub changes: bool,
    /// The resource changes, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub resources: Vec<ResourceChange>,
    /// The number of resource changes that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

impl PlanSummary {
    /// The maximum number of listed resource changes.
    pub const MAX_RESOURCES: usize = 100;

    /// The counts in words, without a full stop: `3 to add, 0 to change, 1 to destroy, 2 to import`.
    #[must_use]
    pub fn counts(&self) -> String {
        let Self { add, change, destroy, import, moved, forget, invoke, .. } = self;
        let rest = [(import, "import"), (moved, "move"), (forget, "forget"), (invoke, "invoke")];
        let rest: String =
            rest.iter().filter(|(count, _)| **count > 0).map(|(count, word)| format!(", {count} to {word}")).collect();
        format!("{add} to add, {change} to change, {destroy} to destroy{rest}")
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// The planned change of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceChange {
    /// The address of the resource.
    pub address: String,
    /// What would be done.
    pub action: ChangeAction,
    /// The names of the attributes that change, for an existing resource. Values are never included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub attributes: Vec<String>,
}

impl ResourceChange {
    /// The maximum number of listed attributes.
    pub const MAX_ATTRIBUTES: usize = 16;
}

/// The planned action on a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = crate::values::describe)]
pub enum ChangeAction {
    /// Creates the resource.
    #[default]
    Create,
    /// Updates the resource in place.
    Update,
    /// Destroys the resource.
    Delete,
    /// Destroys the resource and creates it again, in either order.
    Replace,
    /// Reads a data source.
    Read,
    /// Imports an existing resource into the state.
    Import,
    /// Moves the resource to another address.
    Move,
    /// Removes the resource from the state without destroying it.
    Forget,
    /// Invokes an action.
    Invoke,
    /// A change that this version of Knoll does not know. It counts as one that destroys.
    Unknown,
}

/// The decision that ended a review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewDecision {
    /// The names of the Approvals that counted; none if no person had to decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// The decision.
    pub decision: Decision,
    /// The users who decided, separated by commas.
    pub by: String,
}

/// The largest content that a run may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SizesInForce {
    /// The state that an apply or a refresh begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SizeInForce>,
    /// A plan that is stored for its review or its rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<SizeInForce>,
    /// The part of the log that is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<SizeInForce>,
    /// The packed files of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<SizeInForce>,
}

/// A size, and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SizeInForce {
    /// The largest size that is allowed.
    pub most: Size,
    /// The name of the Policy that says so.
    pub policy: String,
}
