//! [`Policy`]: what an organisation demands of the runs in a set of Workspaces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod defaults;
pub mod limits;
mod plan;
pub mod windows;

pub use defaults::{AtomDefaults, DefaultSettings, ProxySettings, RegistrySettings, RegistryToken, TextSource};
pub use limits::{LimitRules, PriorityRule, RetentionLimits, RunLimits, SizeLimits};
pub use plan::{GitPack, OciPack, PackRef, PlanOverride, PlanRule, PlanRules, RuleAction, RulePack};
pub use windows::{Change, Freeze, OpenWindow, WindowRules};

use crate::{rules, run::Operation, stack::StackApproval, workspace::Tool};

/// The demands, and the Workspaces that they hold for. Of all Policies that match a Workspace the strictest counts, for
/// each setting.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "knoll.dev",
    version = "v1alpha1",
    kind = "Policy",
    plural = "policies",
    status = "PolicyStatus",
    derive = "PartialEq",
    category = "knoll",
    doc = "What an organisation demands of the runs in a set of Workspaces: reviews, sources, images, accounts, hooks, plans.",
    printcolumn(name = "Floor", type_ = "string", json_path = ".spec.review.floor"),
    printcolumn(name = "Approvers", type_ = "integer", json_path = ".spec.review.approvers"),
    printcolumn(name = "Four-Eyes", type_ = "boolean", json_path = ".spec.review.fourEyes"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Hooks", type_ = "string", json_path = ".spec.allow.hooks", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    /// The namespaces that the Policy holds for, by their labels. All if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// The Workspaces that the Policy holds for, by their labels. All of the namespaces if unset. The labels of a Stack
    /// count as labels of its Workspace. Whoever may write a Workspace or a Stack chooses its labels, so use
    /// `namespaceSelector` for demands that they must not leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_selector: Option<LabelSelector>,
    /// Who has to agree to a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewRules>,
    /// What runs may use. A list that is unset allows everything, an empty one nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<AllowRules>,
    /// How much runs may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitRules>,
    /// When changes may start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<WindowRules>,
    /// Rules on the plans of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRules>,
    /// Settings for Workspaces and Atoms that do not have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<DefaultSettings>,
}

/// What the operator found in a Policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// `Ready` if every field can be read and every pack of rules is there; otherwise its message names each field that
    /// cannot be read, and why. `Stalled` if the Policy has to be corrected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Who has to agree to a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewRules {
    /// The least that every run has to pass, however it was started. A command that may change something has no plan: it
    /// needs an Approval before it starts, unless the floor is `Auto`.
    #[serde(default)]
    pub floor: ReviewFloor,
    /// The number of different users whose Approvals a reviewed run needs. Defaults to 1. One user is enough to discard it.
    /// The number demands no review by itself: set `floor`, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub approvers: Option<u32>,
    /// An Approval counts only if its user is in one of these groups. In any group if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub groups: Vec<String>,
    /// Whether the user who asked for a run may not approve it. If that user is not known, the run needs one more approver.
    /// It demands no review by itself: set `floor`, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub four_eyes: bool,
}

/// The least that a run has to pass, in the order of strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum ReviewFloor {
    /// No review.
    #[default]
    Auto,
    /// A review of each plan that destroys or replaces a resource.
    ManualOnDestroy,
    /// A review of each plan that changes anything.
    Manual,
}

impl ReviewFloor {
    /// The serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "Auto",
            Self::ManualOnDestroy => "ManualOnDestroy",
            Self::Manual => "Manual",
        }
    }
}

impl From<StackApproval> for ReviewFloor {
    fn from(approval: StackApproval) -> Self {
        match approval {
            StackApproval::Auto => Self::Auto,
            StackApproval::ManualOnDestroy => Self::ManualOnDestroy,
            StackApproval::Manual => Self::Manual,
        }
    }
}

/// What runs may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowRules {
    /// The sources of Stacks and Runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<AllowedSources>,
    /// The images that Workspaces, hooks and image volumes may name: a repository such as
    /// `registry.example.com/team/terraform`, with a tag or a digest if only that one is allowed, or every repository
    /// below a path with `/*` at the end. A tag does not allow a digest beside it, as the digest decides which image runs.
    /// The images of the operator's own settings are always allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 512)))]
    #[x_kube(validation = Rule::new(format!("self.all(image, image.matches({}))", rules::literal(IMAGE_PATTERN)))
        .message("write a repository such as registry.example.com/team/terraform, or registry.example.com/team/* for all below a path"))]
    pub images: Option<Vec<String>>,
    /// The service accounts that Workspaces may name. `default` without a token, for Workspaces that name none, is always
    /// allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253)))]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'))")
        .message("write the names of service accounts, without their namespaces"))]
    pub service_accounts: Option<Vec<String>>,
    /// The tools and their versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub tools: Option<Vec<AllowedTool>>,
    /// What pods may have of their nodes: nothing that is not set here. Pods of runs never share the namespaces of a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<AllowedPod>,
    /// Whose hooks may run. Defaults to `Any`, and with `sources` to `Stack`: a hook could run another module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<AllowedHooks>,
    /// Whether Runs with `overrideStack: true` may change the infrastructure of a Stack that has not started them. Defaults to
    /// `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_override: Option<bool>,
    /// Operations and commands that are allowed with an Approval only, in addition to those of the Workspace's
    /// `privilegedCommands`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<Privileged>,
}

/// A repository with an optional tag or digest, or a path with `/*`.
const IMAGE_PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._:-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*(/[*]|(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?)$";

/// The sources that are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedSources {
    /// The kinds of sources. Every kind if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 5))]
    pub kinds: Option<Vec<SourceType>>,
    /// The hosts of git repositories and archives. Every host if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub hosts: Option<Vec<AllowedHost>>,
}

/// The kind of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::values::describe)]
pub enum SourceType {
    /// A ConfigMap.
    ConfigMap,
    /// Files in the object itself.
    #[default]
    Inline,
    /// A git repository.
    Git,
    /// An archive at a URL.
    Archive,
    /// A bundle that a user has uploaded.
    Bundle,
}

impl SourceType {
    /// The serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "configMap",
            Self::Inline => "inline",
            Self::Git => "git",
            Self::Archive => "archive",
            Self::Bundle => "bundle",
        }
    }
}

/// A host of git repositories and archives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedHost {
    /// The name of the host in lower case, with its port if addresses have one.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::form(
        "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]+)?$",
        "write the name of a host such as git.example.com or git.example.com:8443, without a scheme and without a path",
    ))]
    pub host: String,
    /// The paths on the host, such as `/platform`; a path allows what is below it. Every path when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 512)))]
    #[x_kube(validation = Rule::new("self.all(path, path.matches('^(/[A-Za-z0-9._~-]+)+/?$') && !path.matches('/[.][.]?(/|$)'))")
        .message("write paths such as /platform, with a leading / and without .. and *"))]
    pub paths: Vec<String>,
}

/// A tool that is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedTool {
    /// The tool.
    pub name: Tool,
    /// The versions, such as `1.11.4`, or `1.11.*` for all that begin so. Every version when empty; otherwise a Workspace
    /// has to name its version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)))]
    #[x_kube(validation = Rule::new(
        "self.all(version, version.matches('^[0-9]+[.]([*]|[0-9]+[.]([*]|[0-9]+(-[0-9A-Za-z.-]+)?))$'))")
        .message("write versions such as 1.11.4, 1.11.* or 1.*"))]
    pub versions: Vec<String>,
}

/// What pods may have of their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedPod {
    /// Volumes of the kind `hostPath`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_path: bool,
    /// Security contexts that loosen the isolation of a container: `privileged`, added capabilities, host processes,
    /// unconfined profiles, sysctls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
}

/// Whose hooks may run, in the order of strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum AllowedHooks {
    /// Hooks of any Run.
    #[default]
    Any,
    /// Hooks that the Stack of the Workspace has.
    Stack,
    /// No hooks.
    None,
}

impl AllowedHooks {
    /// The serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Any => "Any",
            Self::Stack => "Stack",
            Self::None => "None",
        }
    }
}

/// Operations and commands that need an Approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Privileged {
    /// Operations. Their plans are reviewed; `plan` itself needs an Approval before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    #[x_kube(validation = Rule::new("!('command' in self)")
        .message("write the commands in privileged.commands"))]
    pub operations: Vec<Operation>,
    /// Commands: terraform subcommands (`state rm`, `taint`, ...) or `sh`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = Rule::new(format!("self.all(command, command.matches('{}'))", rules::COMMAND_PATTERN))
        .message("write terraform subcommands such as state rm, or sh, without arguments"))]
    pub commands: Vec<String>,
}

/// One demand or setting that holds for a Workspace, in its status.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySetting {
    /// The field, such as `review.floor`.
    pub setting: String,
    /// The value that holds.
    #[schemars(length(max = 4096))]
    pub value: String,
    /// The object that demands or sets it: `Policy/NAME`, `Stack/NAME` or `Workspace/NAME`; `operator` for a setting of the
    /// installation.
    pub from: String,
}
