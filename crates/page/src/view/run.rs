//! A Run: its steps, its place in the queue, why it failed, and who decided.

use jiff::Timestamp;
use knoll_api::approval::Approval;
use knoll_api::names::{self, label};
use knoll_api::run::{Run, RunPhase, RunStatus};
use knoll_api::step::{StepName, StepState, StepStatus};
use knoll_api::workspace::Workspace;
use knoll_core::conditions;
use knoll_core::times;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use schemars::JsonSchema;
use serde::Serialize;

use super::shown::{self, Moment, PlanCounts, Status};
use crate::act;
use crate::error::PageError;
use crate::rights;
use crate::user::User;

/// The page of a Run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    pub namespace: String,
    pub name: String,
    pub workspace: String,
    /// The Stack that started it.
    pub stack: Option<String>,
    pub command: String,
    pub args: Vec<String>,
    /// The command with all its arguments, every invisible character written out.
    pub words: String,
    /// The Secret with its variable files, values and piped input.
    pub input: Option<String>,
    pub status: Status,
    pub finished: bool,
    /// Whether it waits for a decision.
    pub in_review: bool,
    pub requested_by: Option<String>,
    pub created: Option<Moment>,
    /// How long its pods have worked, or did.
    pub took: String,
    pub exit_code: Option<i32>,
    /// The sentence of the operator about where the run is.
    pub message: Option<String>,
    pub failure: Option<FailureView>,
    pub queue: Option<QueueView>,
    pub steps: Vec<StepView>,
    pub plan: Option<PlanCounts>,
    pub decisions: Vec<ApprovalView>,
    /// Variables with a value that the module does not declare.
    pub undeclared_variables: Vec<String>,
    pub pod: Option<String>,
    pub may_decide: bool,
    pub may_cancel: bool,
}

/// Why a run did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailureView {
    /// One word, such as `StepFailed`.
    pub reason: String,
    pub message: String,
    /// The step that failed.
    pub step: Option<String>,
}

/// The place of a run that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QueueView {
    /// 1 is the next to start.
    pub position: u32,
    /// The run that holds the lock.
    pub holder: Option<String>,
    pub holder_requested_by: Option<String>,
    pub holder_since: Option<Moment>,
    /// The runs before this one, the next first.
    pub ahead: Vec<String>,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    pub name: String,
    pub status: Status,
    pub took: String,
    /// Its share of the time of all steps, in percent; the bar of the timeline.
    pub share: u32,
    pub attempts: u32,
    pub exit_code: Option<i32>,
    pub message: Option<String>,
}

/// A decision of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ApprovalView {
    pub name: String,
    pub by: String,
    pub decision: String,
    pub comment: Option<String>,
    pub at: Option<Moment>,
    /// `Effective`, `Counted`, `NoEffect` or `Pending`.
    pub effect: Status,
    pub message: Option<String>,
}

/// What was read for the page of a Run.
pub struct RunObserved {
    pub run: Run,
    pub workspace: Option<Workspace>,
    pub approvals: Vec<Approval>,
    pub may_decide: bool,
    pub may_cancel: bool,
}

/// Reads a Run and what it waits for. What the user may not read of the latter is left out.
pub async fn observe(user: &User, namespace: &str, name: &str) -> Result<RunObserved, PageError> {
    let runs: Api<Run> = Api::namespaced(user.client.clone(), namespace);
    Ok(observe_change(user, runs.get(name).await?).await)
}

/// Reads what a Run waits for, when the Run itself is known.
pub async fn observe_change(user: &User, run: Run) -> RunObserved {
    let (namespace, name) = (&run.namespace().unwrap_or_default(), run.name_any());
    let status = run.status.clone().unwrap_or_default();
    let waits = status.phase == RunPhase::Queued;
    let reviewed = status.phase == RunPhase::Review || status.decision.is_some();
    let workspaces: Api<Workspace> = Api::namespaced(user.client.clone(), namespace);
    let approvals: Api<Approval> = Api::namespaced(user.client.clone(), namespace);
    let of_run = ListParams::default().fields(&format!("spec.run={name}"));
    let (workspace, approvals, may_decide, may_cancel) = tokio::join!(
        async { if waits { workspaces.get_opt(&run.spec.workspace).await.ok().flatten() } else { None } },
        async {
            if reviewed { approvals.list(&of_run).await.map(|list| list.items).unwrap_or_default() } else { Vec::new() }
        },
        async { status.phase == RunPhase::Review && rights::may(&user.client, "create", "approvals", namespace).await },
        async { !status.phase.is_finished() && rights::may(&user.client, "patch", "runs", namespace).await },
    );
    RunObserved { run, workspace, approvals, may_decide, may_cancel }
}

/// The view of what was read.
#[must_use]
pub fn view(seen: &RunObserved, now: Timestamp) -> RunView {
    let run = &seen.run;
    let status = run.status.clone().unwrap_or_default();
    RunView {
        namespace: run.namespace().unwrap_or_default(),
        name: run.name_any(),
        workspace: run.spec.workspace.clone(),
        stack: run.labels().get(label::STACK).cloned(),
        command: shown::command(run),
        args: run.spec.args.clone(),
        words: shown::words(run),
        input: run.spec.input.as_ref().map(|_| names::input_secret(&run.name_any())),
        status: Status::of_run(status.phase),
        finished: status.phase.is_finished(),
        in_review: status.phase == RunPhase::Review,
        requested_by: run.spec.requested_by.clone(),
        created: Moment::of_time(run.metadata.creation_timestamp.as_ref(), now),
        took: times::took(status.started_at.as_ref(), status.finished_at.as_ref(), now),
        exit_code: status.exit_code,
        message: shown::ready_message(&status.conditions),
        failure: failure(&status),
        queue: queue(run, &status, seen.workspace.as_ref(), now),
        steps: steps(&status.steps, now),
        plan: status.plan.as_ref().map(PlanCounts::of),
        decisions: seen.approvals.iter().map(|approval| decision(approval, now)).collect(),
        undeclared_variables: status.undeclared_variables.clone(),
        pod: status.pod_name.clone().filter(|_| !status.phase.is_finished()),
        may_decide: seen.may_decide,
        may_cancel: seen.may_cancel,
    }
}

fn failure(status: &RunStatus) -> Option<FailureView> {
    if !matches!(status.phase, RunPhase::Failed | RunPhase::Discarded | RunPhase::Cancelled) {
        return None;
    }
    let ready = conditions::find(&status.conditions, knoll_api::names::condition::READY)?;
    let step = status.steps.iter().find(|step| step.state == StepState::Failed);
    let detail = step.and_then(|step| step.message.clone()).unwrap_or_default();
    let message =
        if detail.contains(&ready.message) || ready.message.is_empty() { detail } else { ready.message.clone() };
    Some(FailureView { reason: ready.reason.clone(), message, step: step.map(|step| step.name.to_string()) })
}

fn queue(run: &Run, status: &RunStatus, workspace: Option<&Workspace>, now: Timestamp) -> Option<QueueView> {
    let position = status.position.filter(|_| status.phase == RunPhase::Queued)?;
    let waits = workspace.and_then(|workspace| workspace.status.clone()).unwrap_or_default();
    let name = run.name_any();
    Some(QueueView {
        position,
        holder: waits.active,
        holder_requested_by: waits.active_requested_by,
        holder_since: Moment::of_micro(waits.active_since.as_ref(), now),
        ahead: waits.queue.into_iter().take_while(|other| *other != name).collect(),
    })
}

/// The time of a step; a review is not work, so it has no share of the bars.
fn millis(step: &StepStatus, now: Timestamp) -> i64 {
    let Some(from) = step.started_at.as_ref().filter(|_| step.name != StepName::Review) else { return 0 };
    let to = step.finished_at.as_ref().map_or(now, |to| to.0);
    to.as_millisecond().saturating_sub(from.0.as_millisecond()).max(0)
}

fn steps(steps: &[StepStatus], now: Timestamp) -> Vec<StepView> {
    let longest = steps.iter().map(|step| millis(step, now)).max().unwrap_or_default().max(1);
    let view = |step: &StepStatus| StepView {
        name: step.name.to_string(),
        status: Status::of_step(step.state),
        took: times::took(step.started_at.as_ref(), step.finished_at.as_ref(), now),
        share: u32::try_from(millis(step, now).saturating_mul(100) / longest).unwrap_or(100).min(100),
        attempts: step.attempts,
        exit_code: step.exit_code,
        message: step.message.clone().filter(|message| !message.is_empty()),
    };
    steps.iter().map(view).collect()
}

/// The view of one Approval.
pub fn decision(approval: &Approval, now: Timestamp) -> ApprovalView {
    use super::shown::Tone;
    use knoll_api::approval::ApprovalPhase as Phase;
    let effect = match act::phase(approval) {
        Phase::Pending => Status::new("Pending", Tone::Quiet),
        Phase::Counted => Status::new("Counted", Tone::Busy),
        Phase::Effective => Status::new("Effective", Tone::Good),
        Phase::NoEffect => Status::new("No effect", Tone::Bad),
    };
    ApprovalView {
        name: approval.name_any(),
        by: approval.spec.by.clone(),
        decision: format!("{:?}", approval.spec.decision),
        comment: approval.spec.comment.clone(),
        at: Moment::of_time(approval.metadata.creation_timestamp.as_ref(), now),
        effect,
        message: act::message(approval),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;

    fn seen(status: Value, workspace: Value) -> RunObserved {
        let run = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Run",
            "metadata": {"name": "r", "namespace": "n"},
            "spec": {"workspace": "w", "operation": "apply"}, "status": status});
        RunObserved {
            run: serde_json::from_value(run).unwrap(),
            workspace: serde_json::from_value(workspace).unwrap(),
            approvals: Vec::new(),
            may_decide: true,
            may_cancel: true,
        }
    }

    #[test]
    fn a_failed_run_says_first_why() {
        let ready = json!([{"type": "Ready", "status": "False", "reason": "StepFailed", "message": "Step `plan` failed.",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let steps = json!([{"name": "plan", "state": "Failed", "attempts": 1, "exitCode": 1}]);
        let view = view(
            &seen(json!({"phase": "Failed", "conditions": ready, "steps": steps}), Value::Null),
            Timestamp::UNIX_EPOCH,
        );
        let expect = FailureView {
            reason: "StepFailed".into(),
            message: "Step `plan` failed.".into(),
            step: Some("plan".into()),
        };
        assert_eq!(view.failure, Some(expect));
        assert!(view.finished && view.queue.is_none());
    }

    #[test]
    fn a_queued_run_names_the_holder_and_those_ahead() {
        let workspace = json!({"apiVersion": "knoll.dev/v1alpha1", "kind": "Workspace", "metadata": {"name": "w"},
            "spec": {}, "status": {"active": "a", "queue": ["b", "r", "c"]}});
        let view = view(&seen(json!({"phase": "Queued", "position": 2}), workspace), Timestamp::UNIX_EPOCH);
        let queue = view.queue.unwrap();
        assert_eq!((queue.position, queue.holder.as_deref(), queue.ahead), (2, Some("a"), vec!["b".to_owned()]));
    }
}
