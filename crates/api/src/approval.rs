//! [`Approval`]: a user's decision on the exact bytes of a plan.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// The decision. Immutable.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "knoll.dev",
    version = "v1alpha1",
    kind = "Approval",
    namespaced,
    status = "ApprovalStatus",
    derive = "PartialEq",
    category = "knoll",
    doc = "A user's decision on the exact bytes of a plan.",
    selectable = ".spec.run",
    printcolumn(name = "Run", type_ = "string", json_path = ".spec.run"),
    printcolumn(name = "Decision", type_ = "string", json_path = ".spec.decision"),
    printcolumn(name = "By", type_ = "string", json_path = ".spec.by"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Comment", type_ = "string", json_path = ".spec.comment", priority = 1),
    printcolumn(name = "Digest", type_ = "string", json_path = ".spec.digest", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::immutable("an Approval never changes: create another one"))]
#[x_kube(validation = Rule::new("!has(self.policy) || (has(self.comment) && self.comment.size() > 0)")
    .message("policy: override needs a comment that says why"))]
#[x_kube(validation = Rule::new("!has(self.policy) || self.decision == 'Approve'")
    .message("policy: override is for decision: Approve only; leave it out"))]
pub struct ApprovalSpec {
    /// The name of the Run, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub run: String,
    /// The digest of the plan or of the privileged command: `status.reviewDigest` of the Run.
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::digest())]
    pub digest: String,
    /// The decision.
    pub decision: Decision,
    /// The user who decides. It must be the user who creates the object.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::not_empty("write the name of the user that creates the Approval, as kubectl auth whoami prints it"))]
    pub by: String,
    /// Groups of that user that a Policy asks for. Each must be a group of the user who creates the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)))]
    pub groups: Vec<String>,
    /// With `override`, the decision lifts the denials of Policies whose `plan.override` names one of `groups`. It needs a
    /// comment that says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyDecision>,
    /// A comment for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub comment: Option<String>,
}

/// What a decision does to the Policies that deny a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = crate::values::describe)]
pub enum PolicyDecision {
    /// Lifts their denials.
    #[default]
    Override,
}

/// A decision on a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum Decision {
    /// Apply exactly this plan.
    Approve,
    /// Do not apply the plan; the run ends.
    #[default]
    Discard,
}

/// The observed effect of an Approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalStatus {
    /// The phase of the Approval.
    #[serde(default)]
    pub phase: ApprovalPhase,
    /// `Ready`, with a message that explains the effect, or why there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The effect of an Approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::values::describe)]
pub enum ApprovalPhase {
    /// Not yet reconciled. Next: any other.
    #[default]
    Pending,
    /// It counts, and its Run waits for further Approvals. Next: `Effective`, or `NoEffect` if the Run ends otherwise.
    Counted,
    /// It decided the review of its Run, alone or with others.
    Effective,
    /// It has no effect: another digest, no such Run, a Run that is not waiting, or a user whose Approval does not count.
    NoEffect,
}
