//! What a user does on the page: the same objects and patches that the commands make, with the user's own client.

use std::time::Duration;

use knoll_api::approval::{Approval, ApprovalPhase, Decision};
use knoll_api::names::field_manager;
use knoll_api::run::Run;
use knoll_core::approval;
use knoll_core::run::cancellation;
use knoll_storage::Storage;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::PageError;
use crate::plan_blocks;
use crate::user::User;

/// How long the answer to a decision waits for the operator, which usually reads it within a second.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest comment that an Approval takes.
const LONGEST_COMMENT: usize = 4096;

/// A decision on a plan.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct DecisionRequest {
    /// `Approve` or `Discard`.
    pub decision: Decision,
    /// The digest that the user was shown: `digest` of the plan.
    pub digest: String,
    #[serde(default)]
    pub comment: Option<String>,
}

/// What came of a decision.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DecisionResult {
    /// The name of the Approval.
    pub approval: String,
    /// `Pending` if the operator has not read it yet.
    pub phase: String,
    pub message: Option<String>,
}

/// Records a decision. It is refused when the Run waits for a decision on another digest than the one that was shown,
/// and an approval when the text of the plan is not what the digest covers.
pub async fn decide(
    user: &User,
    namespace: &str,
    name: &str,
    request: DecisionRequest,
) -> Result<DecisionResult, PageError> {
    let comment = request.comment.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if comment.as_ref().is_some_and(|text| text.chars().count() > LONGEST_COMMENT) {
        return Err(PageError::Invalid(format!("The comment has more than {LONGEST_COMMENT} characters. Shorten it.")));
    }
    let runs: Api<Run> = Api::namespaced(user.client.clone(), namespace);
    let run = runs.get(name).await?;
    let waits_for = approval::waiting_digest(&run)?;
    if waits_for != request.digest {
        let text = "The run waits for a decision on another plan than the one that was shown. Reload the page, and look at it.";
        return Err(PageError::Conflict(text.to_owned()));
    }
    if request.decision == Decision::Approve {
        let text = Storage::new(user.client.clone()).plan_texts().of(&run).await?;
        if text.is_some_and(|text| !plan_blocks::shown(&text).1) {
            return Err(PageError::Conflict(format!("{}.", plan_blocks::TOO_LONG)));
        }
    }
    let approval = approval::request(&run, request.digest, request.decision, user.decider.clone(), comment);
    let approvals: Api<Approval> = Api::namespaced(user.client.clone(), namespace);
    let params = PostParams { field_manager: Some(field_manager::PAGE.to_owned()), ..PostParams::default() };
    let created = approvals.create(&params, &approval).await?;
    let is_read = |found: Option<&Approval>| found.is_none_or(|found| phase(found) != ApprovalPhase::Pending);
    let created_name = created.name_any();
    let effect = await_condition(approvals.clone(), &created_name, is_read);
    let read = tokio::time::timeout(PATIENCE, effect).await;
    let read = read.ok().and_then(Result::ok).flatten().unwrap_or(created);
    Ok(DecisionResult { approval: read.name_any(), phase: format!("{:?}", phase(&read)), message: message(&read) })
}

/// Cancels a Run in the name of the user.
pub async fn cancel(user: &User, namespace: &str, name: &str, now: bool) -> Result<(), PageError> {
    let runs: Api<Run> = Api::namespaced(user.client.clone(), namespace);
    let patch = cancellation::patch(&user.decider.name, now);
    runs.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

pub fn phase(approval: &Approval) -> ApprovalPhase {
    approval.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

/// The sentence of the operator on an Approval.
pub fn message(approval: &Approval) -> Option<String> {
    let conditions = approval.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|condition| condition.type_ == knoll_api::names::condition::READY);
    ready.next().map(|ready| ready.message.clone()).filter(|message| !message.is_empty())
}
